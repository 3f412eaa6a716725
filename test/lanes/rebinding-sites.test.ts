/**
 * Two sites have two gateways each, all of them behind NATs, so there are four links: two punched, two relayed. The NAT
 * of one site forgets its mappings every 30 s and takes other ports, and a gateway of the other site is lost. Calls are
 * answered again within 10 s each time.
 *
 *   paris gw1, gw2 ── NAT that keeps a port ─────────────────┐
 *   roma gw1, gw2 ─── NAT that keeps one for gw1 alone ──────┴── internet ── milano gw1, which relays
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ConnectionStatus } from '../../model/objects.ts'
import { type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { BoxKind } from './support/nat-boxes.ts'
import { Wires } from './support/nat-wires.ts'

const HIDDEN = (name: string, uplinks: string, pods: string): SitePlan => ({
  ...{ name, uplinks, pods, nodes: ['gw1', 'gw2'] },
  spec: '  gateways: [{ node: gw1, lane: 0 }, { node: gw2, lane: 1 }]\n',
})
const MILANO: SitePlan = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1, publicAddress: 192.0.11.2, relay: true }]\n',
}
const [PARIS, ROMA] = [HIDDEN('paris', '198.51', '10.52'), HIDDEN('roma', '198.52', '10.62')]
/** Each gateway has a device for each of the two far ones. */
const DEVICE_PORTS = [4500, 4501]
const KEEPS: BoxKind = {
  ...{ lets: 'port', address: '203.0.114.51', inside: ['198.51.11.2', '198.51.12.2'], inner: DEVICE_PORTS },
  forgets: true,
}
const KEEPS_ONE: BoxKind = { lets: 'port', address: '203.0.116.52', inside: ['198.52.11.2'], inner: DEVICE_PORTS }
const REBINDS_MS = 30_000
const CARRIED_MS = 10_000

t.setTimeout(290_000)

/** The port of a machine at the router, and the router's address there. */
function portsOf({ uplinks, nodes }: SitePlan): readonly { readonly name: string; readonly address: string }[] {
  return nodes.map((_, i) => {
    const network = `${uplinks}.${11 + i}`
    return { name: `p${`${network}.2`.replaceAll('.', '-')}`, address: `${network}.1` }
  })
}

type Link = readonly [from: 'gw1' | 'gw2', to: 'gw1' | 'gw2']
const LINKS: readonly Link[] = [
  ['gw1', 'gw1'],
  ['gw2', 'gw1'],
  ['gw1', 'gw2'],
  ['gw2', 'gw2'],
]

t.test('links of two gateways on both sides', { skip: netnsMissing() ?? false }, (t) =>
  withNetns((one) =>
    withNetns(async (other) => {
      const boxes = [one, other]
      const make = (): Promise<Netns> => Promise.resolve(boxes.shift() ?? Promise.reject(new Error('two boxes')))
      let wires: Wires | undefined
      const prepare = async (internet: Netns): Promise<void> => {
        wires = new Wires(internet, make)
        await wires.interpose(KEEPS, portsOf(PARIS))
        await wires.interpose(KEEPS_ONE, portsOf(ROMA))
      }
      await withPlainSites(
        temporaryFolder(t),
        [MILANO, PARIS, ROMA],
        async ([milano, paris, roma]) => {
          if (milano === undefined || paris === undefined || roma === undefined) throw new Error('sites')
          if (wires === undefined) throw new Error('no boxes')
          try {
            await story(t, { milano, paris, roma, wires })
          } catch (error) {
            t.comment(JSON.stringify(['gw1', 'gw2'].map((node) => paris.gateway(node)?.connections)))
            t.comment([milano, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
            throw error
          }
        },
        { prepare },
      )
    }),
  ),
)

interface World {
  readonly milano: PlainSite
  readonly paris: PlainSite
  readonly roma: PlainSite
  readonly wires: Wires
}

async function story(t: Test, world: World): Promise<void> {
  const { milano, paris, roma, wires } = world
  milano.up('gw1')
  for (const node of ['gw1', 'gw2']) for (const site of [paris, roma]) site.up(node)
  const linkOf = ([from, to]: Link): ConnectionStatus | undefined =>
    paris.gateway(from)?.connections.find(({ endpoint }) => endpoint.startsWith(`roma.${to}-`))
  const rung = (link: Link): string => {
    const { state, usingAddress = '', usingRelay } = linkOf(link) ?? {}
    if (state !== 'up') return 'none'
    return usingRelay === 'milano' ? 'relayed' : usingAddress.startsWith(`${KEEPS_ONE.address}:`) ? 'punched' : 'other'
  }
  const expected = (to: Link[1]): string => (to === 'gw1' ? 'punched' : 'relayed')
  await eventually(() => LINKS.every((link) => rung(link) === expected(link[1])), {
    deadlineMs: 120_000,
    say: 'each link has its rung',
  })
  for (const [from] of LINKS.slice(0, 2)) {
    const shown = await paris.machine(from).run(['show', 'connections', '--site', paris.file])
    t.match(shown, /roma .* up .* punched /)
    t.match(shown, /roma .* up .* relayed /)
  }
  const carried = async (links: readonly Link[], say: string): Promise<void> => {
    const fromMs = performance.now()
    await Promise.all(
      links.map(([from, to]) =>
        eventually(() => paris.machine(from).pings(roma.machine(to).podAddress), {
          ...{ deadlineMs: CARRIED_MS, intervalMs: 50 },
          say: `${say}: a call of ${from} to ${to}`,
        }),
      ),
    )
    t.comment(`${say}: all calls are answered after ${Math.round(performance.now() - fromMs)} ms`)
  }
  await carried(LINKS, 'first')

  const rebind = async (port: number): Promise<number> => {
    await wires.rebind(KEEPS, port)
    return performance.now()
  }
  const places = (): Promise<string> =>
    milano.machine('gw1').netns.exec('nft', ['list', 'map', 'ip', 'sealane_relay', 'addresses'])
  const isRelayedFrom = async (port: number, count: number): Promise<boolean> => {
    const text = await places()
    const found = [0, 1, 2, 3].filter((i) => text.includes(`${KEEPS.address} . ${port + i} . `))
    return found.length >= count
  }
  const reboundAt = await rebind(42_000)
  await carried(LINKS, 'rebound')
  await eventually(() => isRelayedFrom(42_000, 4), { deadlineMs: CARRIED_MS, say: 'the relay knows all new places' })
  await eventually(() => LINKS.every((link) => rung(link) === 'relayed'), { say: 'the relay carries all links' })

  const lost = roma.machine('gw1')
  lost.signal('SIGKILL')
  await lost.netns.exec('ip', ['link', 'set', 'uplink', 'down'])
  const left = LINKS.filter(([, to]) => to === 'gw2')
  await carried(left, 'gw1 of roma is lost')

  await sleep(Math.max(0, reboundAt + REBINDS_MS - performance.now()))
  await rebind(43_000)
  await carried(left, 'rebound 30 s later')
  await eventually(() => isRelayedFrom(43_000, 2), { deadlineMs: CARRIED_MS, say: 'the relay knows the later places' })
  for (const link of left) t.equal(linkOf(link)?.usingRelay, 'milano')
}
