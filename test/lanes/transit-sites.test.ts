/**
 * Two spokes that could call each other reach each other through the relays of two hubs, because the topology says so.
 * No packet passes between the spokes themselves, also when one of them comes later, and when the topology changes; the
 * loss of one hub moves the link to the other.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type PlainSite, withPlainSites } from '../netns/support/plain-sites.ts'

const SITE = (name: string, uplinks: string, pods: string, relay: boolean) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: ${uplinks}.11.2${relay ? ', relay: true' : ''} }]\n`,
})
const SITES = [
  SITE('milano', '192.0', '10.42', true),
  SITE('oslo', '192.1', '10.72', true),
  SITE('paris', '198.51', '10.52', false),
  SITE('roma', '198.52', '10.62', false),
]
const VIA = { mode: 'hub-and-spoke', hubs: ['milano', 'oslo'], via: ['milano', 'oslo'] }

/** Counts UDP between the two spokes at the router. */
const COUNTED = `table ip counted {
  counter direct { }
  chain forward {
    type filter hook forward priority 0;
    ip saddr 198.51.11.2 ip daddr 198.52.11.2 counter name direct
    ip saddr 198.52.11.2 ip daddr 198.51.11.2 counter name direct
  }
}
`

t.setTimeout(290_000)

t.test('spokes link through the hubs of the topology alone', { skip: netnsMissing() ?? false }, (t) => {
  const folder = temporaryFolder(t)
  return withPlainSites(folder, SITES, async ([milano, oslo, paris, roma], { internet, broker }) => {
    if (milano === undefined || oslo === undefined || paris === undefined || roma === undefined)
      throw new Error('sites')
    const file = join(folder, 'topology.json')
    const set = (topology: object): Promise<string> => {
      writeFileSync(file, JSON.stringify(topology))
      return broker.run(['topology', 'set', file, '--yes', '--state', join(folder, 'broker')])
    }
    const gw = (site: PlainSite) => site.machine('gw1')
    const link = (from: PlainSite, to: PlainSite) =>
      from.gateway('gw1')?.connections.find(({ cluster }) => cluster === to.plan.name)
    const ends = [
      [paris, roma],
      [roma, paris],
    ] as const
    const through = async (hubs: readonly string[], say: string): Promise<string> => {
      for (const [from, to] of ends) {
        await eventually(
          () => link(from, to)?.state === 'up' && hubs.includes(link(from, to)?.usingRelay ?? 'direct'),
          {
            deadlineMs: 60_000,
            say: `${say}: ${from.plan.name} to ${to.plan.name}`,
          },
        )
        await eventually(() => gw(from).pings(gw(to).podAddress), { deadlineMs: 20_000, say: `${say}: a ping` })
      }
      return link(paris, roma)?.usingRelay ?? 'direct'
    }
    const directPackets = async (): Promise<number> => {
      const text = await internet.exec('nft', ['list', 'counter', 'ip', 'counted', 'direct'])
      return Number(/packets (\d+) /.exec(text)?.[1])
    }
    await internet.exec('nft', ['-f', '-'], { input: COUNTED })
    await set(VIA)
    for (const site of [milano, oslo, paris]) site.up('gw1')
    try {
      await eventually(() => link(paris, milano)?.state === 'up', { deadlineMs: 60_000, say: 'a hub' })
      roma.up('gw1')
      await through(['milano', 'oslo'], 'a spoke that comes later')
      t.equal(await directPackets(), 0, 'no packet has passed between the spokes themselves')
      await set({ mode: 'full' })
      await through(['direct'], 'all clusters link')
      t.ok((await directPackets()) > 0, 'such packets are counted')
      const setAt = performance.now()
      await set(VIA)
      const first = await through(['milano', 'oslo'], 'through hubs again')
      t.comment(`through a hub after ${Math.round(performance.now() - setAt)} ms`)
      const before = await directPackets()
      t.match(link(paris, roma)?.message, /^RelayedByTopology: /)
      const shown = await gw(paris).run(['show', 'connections', '--site', paris.file])
      t.match(shown, new RegExp(`roma .*relayed by ${first}, by the topology`))

      const [lost, left] = first === 'milano' ? [milano, oslo] : [oslo, milano]
      const lostAt = performance.now()
      await gw(lost).lose()
      await eventually(() => gw(paris).pings(gw(roma).podAddress), { deadlineMs: 30_000, say: 'a ping over the other' })
      t.comment(`calls go on after ${Math.round(performance.now() - lostAt)} ms`)
      await through([left.plan.name], 'one hub is left')
      await gw(left).lose()
      for (const [from, to] of ends) {
        await eventually(() => link(from, to)?.state === 'down', { deadlineMs: 60_000, say: 'no hub runs' })
        await eventually(() => /TransitRelayMissing/.test(link(from, to)?.message ?? ''), {
          deadlineMs: 60_000,
          say: 'why it is down',
        })
      }
      t.equal(await directPackets(), before, 'no packet has passed between the spokes themselves since')
    } catch (error) {
      t.comment(JSON.stringify([paris, roma].map((site) => site.gateway('gw1')?.connections)))
      t.comment([milano, oslo, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
      throw error
    }
  })
})
