/** Which links work where probes passed without a relay. */
import t from 'tap'
import type { LinkInUse } from '../../../../gateway/reach/relay/plan-relay-use.ts'
import { PUNCH_SETTLES_MS, PunchedLinks } from '../../../../gateway/reach/relay/punched-links.ts'
import { parseAddressPort } from '../../../../model/addresses/address-port.ts'

t.test('links that do not work where probes passed go back to their relays', async (t) => {
  const [place, other, relay] = ['192.0.2.1:20000', '192.0.2.1:20001', '203.0.113.1:4601'].map((text) =>
    parseAddressPort(text),
  )
  if (place === undefined || other === undefined || relay === undefined) throw new Error('places')
  const story = (...looks: readonly (readonly [ms: number, at: typeof place, state: LinkInUse['state']])[]) => {
    const links = new PunchedLinks()
    const punched = new Map([['roma', place]])
    return looks.map(([ms, at, state]) => links.look([{ key: 'roma', at, state }], punched, ms).join())
  }
  t.strictSame(story([0, relay, 'up'], [400, place, 'up'], [90_000, place, 'up']), ['', '', ''])
  t.strictSame(story([0, place, 'up'], [5000, place, 'down']), ['', 'roma'], 'at once')
  t.strictSame(story([0, relay, 'up'], [2000, place, 'down'], [PUNCH_SETTLES_MS, place, 'down']), ['', '', 'roma'])
  t.strictSame(story([0, relay, 'up'], [PUNCH_SETTLES_MS, relay, 'up']), ['', 'roma'], 'the far end stays at the relay')
  t.strictSame(story([0, other, 'up'], [PUNCH_SETTLES_MS, other, 'up']), ['', ''], 'the far end has moved it')
  const doubted = (...places: readonly (typeof place)[]) => {
    const links = new PunchedLinks()
    const look = (at: typeof place, i: number) =>
      links
        .look([{ key: 'roma', at, state: 'up' }], new Map([['roma', place]]), i, { suspected: new Set(['roma']) })
        .join()
    return places.map(look)
  }
  t.strictSame(doubted(place, place, relay), ['', '', 'roma'], 'in doubt the far end has heard the relay alone')
  t.strictSame(doubted(relay, place), ['', ''], 'it was never there')
  const waiting = new PunchedLinks()
  const waits = ([nowMs, isSuspect]: readonly [number, boolean]): string => {
    const suspected = new Set(isSuspect ? ['roma'] : [])
    return waiting
      .look([{ key: 'roma', at: relay, state: 'up' }], new Map([['roma', place]]), nowMs, { suspected })
      .join()
  }
  const [heldMs, calledMs] = [PUNCH_SETTLES_MS + 1000, 2 * PUNCH_SETTLES_MS + 1000]
  const held = [[0, true] as const, [heldMs, true] as const, [calledMs - 1, false] as const, [calledMs, false] as const]
  t.strictSame(held.map(waits), ['', '', '', 'roma'], 'in doubt it is not called there, so that time does not count')
  const settled = [
    [0, relay, 'up'],
    [400, place, 'up'],
    [400 + PUNCH_SETTLES_MS, place, 'up'],
  ] as const
  const last = 500 + PUNCH_SETTLES_MS
  t.strictSame(story(...settled, [last, relay, 'up']), ['', '', '', 'roma'], 'the far end alone was in doubt')
  const soon = [
    [0, relay, 'up'],
    [400, place, 'up'],
    [800, relay, 'up'],
    [1200, place, 'up'],
  ] as const
  t.strictSame(story(...soon, [1600, relay, 'up']), ['', '', '', '', ''], 'it still draws the link back')
  const links = new PunchedLinks()
  const known = settled.map(([ms, at, state]) => {
    links.look([{ key: 'roma', at, state }], new Map([['roma', place]]), ms)
    return [...links.settled].join()
  })
  t.strictSame(known, ['', '', 'roma'], 'the next plan knows it before it reads where the link is')
})
