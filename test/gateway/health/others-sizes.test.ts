/**
 * What the objects of other gateways say about links here. Size changes that another gateway's object reports: none from this gateway's own object, and none of a size that was
 * not known before.
 */
import fc from 'fast-check'
import t from 'tap'
import { silentElsewhere, sizeHints } from '../../../gateway/health/probing.ts'
import type { ConnectionState, Gateway } from '../../../model/objects.ts'

interface Link {
  readonly to: string
  readonly mtu?: number
  readonly state?: ConnectionState
  readonly cause?: 'ProbesUnanswered'
}

/** `to` is the cluster and its lane, as `paris/0`. */
function gateway(node: string, links: readonly Link[]): Gateway {
  const connections = links.map(({ to, mtu, state = 'up', cause }) => {
    const [cluster = '', remoteLane] = to.split('/')
    const counts = { usingNat: false, rxBytes: 0, txBytes: 0 }
    const size = mtu === undefined ? {} : { mtu }
    const names = { cluster, lane: 1, remoteLane: Number(remoteLane), endpoint: `${cluster}-gw` }
    return { ...names, state, message: '', ...counts, ...size, ...(cause && { cause }) }
  })
  const metadata = { name: node }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata,
    status: { version: '1', lanes: [], connections },
  }
}

const text = (before: readonly Link[] | undefined, after: readonly Link[], node = 'gw2'): string => {
  const previous = before === undefined ? undefined : gateway(node, before)
  const hints = sizeHints({ type: 'set', object: gateway(node, after), previous }, 'gw1')
  return hints.map(({ cluster, what }) => `${cluster} ${what}`).join(', ')
}

t.test('what changed of links that were reported before', (t) => {
  const wide = [
    { to: 'paris/0', mtu: 1440 },
    { to: 'paris/1', mtu: 1440 },
    { to: 'tokyo/0', mtu: 1440 },
  ]
  t.equal(text(wide, wide), '')
  t.equal(text(undefined, wide), '', 'seen for the first time')
  t.equal(text(wide, [{ to: 'paris/0', mtu: 1216 }]), 'paris less', 'links that are gone say nothing')
  const narrow = wide.map(({ to }) => ({ to, mtu: 1216 }))
  t.equal(text(wide, narrow), 'paris less, tokyo less', 'each cluster once')
  t.equal(text(narrow, wide), 'paris more, tokyo more')
  t.equal(text([{ to: 'paris/0' }], wide), '', 'it was not known')
  t.equal(text(wide, [{ to: 'paris/0', mtu: 1216, state: 'down' }]), '', 'it carries nothing')
  const mixed = [
    { to: 'paris/0', mtu: 1500 },
    { to: 'paris/1', mtu: 1216 },
  ]
  t.equal(text(wide, mixed), 'paris less, paris more')
  t.equal(text(wide, narrow, 'gw1'), '', 'its own object')
  t.strictSame(sizeHints({ type: 'removed', object: gateway('gw2', wide) }, 'gw1'), [])
  t.strictSame(sizeHints(undefined, 'gw1'), [])
  t.end()
})

t.test('which clusters have become silent for another gateway', (t) => {
  const silent = (to: string): Link => ({ to, cause: 'ProbesUnanswered' })
  const rows: [before: readonly Link[] | undefined, after: readonly Link[], want: string, node?: string][] = [
    [[{ to: 'paris/0' }], [silent('paris/0')], 'paris'],
    [[{ to: 'paris/0' }], [silent('paris/0'), silent('paris/1'), { to: 'tokyo/0' }], 'paris'],
    [[{ to: 'paris/0' }], [silent('paris/0'), { to: 'paris/1' }], ''],
    [[silent('paris/0')], [silent('paris/0')], ''],
    [[silent('paris/0')], [silent('paris/0'), silent('tokyo/0')], 'tokyo'],
    [[silent('paris/0')], [{ to: 'paris/0' }], ''],
    [undefined, [silent('paris/0')], 'paris'],
    [[{ to: 'paris/0' }], [silent('paris/0')], '', 'gw1'],
  ]
  for (const [before, after, want, node = 'gw2'] of rows) {
    const previous = before === undefined ? undefined : gateway(node, before)
    t.equal(silentElsewhere({ type: 'set', object: gateway(node, after), previous }, 'gw1').join(), want)
  }
  t.strictSame(silentElsewhere({ type: 'removed', object: gateway('gw2', [silent('paris/0')]) }, 'gw1'), [])
  t.end()
})

t.test('no more than two of each cluster, and none that did not change', async () => {
  const link = fc.record({
    to: fc.constantFrom('paris/0', 'paris/1', 'tokyo/0'),
    mtu: fc.integer({ min: 576, max: 579 }),
  })
  fc.assert(
    fc.property(fc.array(link), fc.array(link), (before, after) => {
      const previous = gateway('gw2', before)
      const hints = sizeHints({ type: 'set', object: gateway('gw2', after), previous }, 'gw1')
      const names = hints.map(({ cluster, what }) => `${cluster} ${what}`)
      const last = (links: readonly Link[], to: string): number | undefined =>
        links.findLast((one) => one.to === to)?.mtu
      const isTrue = hints.every(({ cluster, what }) =>
        ['0', '1'].some((lane) => {
          const [was, is] = [last(before, `${cluster}/${lane}`), last(after, `${cluster}/${lane}`)]
          return was !== undefined && is !== undefined && (what === 'less' ? is < was : is > was)
        }),
      )
      return new Set(names).size === names.length && isTrue
    }),
  )
})
