/**
 * A link between two spokes is handed from one hub's relay to the other's and back, as the topology names one hub or
 * both, while a spoke pings the other twenty times a second.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type PlainSite, withPlainSites } from '../netns/support/plain-sites.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

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
const HUBS = ['milano', 'oslo']
const PING_MS = 50
/** The bound for the loss of a hub. A hub that is only no longer named is left sooner. */
const MOST_GAP_MS = 3000

t.setTimeout(290_000)

t.test('a transit link moves between the relays of hubs', { skip: netnsMissing() ?? false }, (t) => {
  const folder = temporaryFolder(t)
  return withPlainSites(folder, SITES, async ([milano, oslo, paris, roma], { broker }) => {
    if (milano === undefined || oslo === undefined || paris === undefined || roma === undefined)
      throw new Error('sites')
    const file = join(folder, 'topology.json')
    const setVia = (via: readonly string[]): Promise<string> => {
      writeFileSync(file, JSON.stringify({ mode: 'hub-and-spoke', hubs: HUBS, via }))
      return broker.run(['topology', 'set', file, '--yes', '--state', join(folder, 'broker')])
    }
    const link = (from: PlainSite, to: PlainSite) =>
      from.gateway('gw1')?.connections.find(({ cluster }) => cluster === to.plan.name)
    const relays = (): (string | undefined)[] =>
      [link(paris, roma), link(roma, paris)].map((one) => (one?.state === 'up' ? one.usingRelay : undefined))
    const through = (hubs: readonly string[], say: string): Promise<unknown> =>
      eventually(() => relays().every((relay) => relay !== undefined && hubs.includes(relay)), {
        ...{ deadlineMs: 60_000, say },
      })
    await setVia(HUBS)
    for (const site of [milano, oslo, paris, roma]) site.up('gw1')
    try {
      await through(HUBS, 'through a hub')
      const [from, to] = [paris.machine('gw1'), roma.machine('gw1')]
      await eventually(() => from.pings(to.podAddress), { deadlineMs: 20_000, say: 'a ping' })
      for (const turn of ['there', 'and back']) {
        const [before] = relays()
        const other = HUBS.filter((hub) => hub !== before)
        let text = ''
        const args = ['-n', '-i', String(PING_MS / 1000), '-I', from.podAddress, to.podAddress]
        const ping = from.netns.spawn('ping', args)
        ping.stdout?.on('data', (bytes: Buffer) => (text += bytes.toString()))
        const answered = (): number[] => [...text.matchAll(/icmp_seq=(\d+) ttl/g)].map(([, seq]) => Number(seq))
        await eventually(() => answered().length > 10, { say: 'pings before' })
        await setVia(other)
        await through(other, `handed over ${turn}`)
        const handedOver = answered().length
        await eventually(() => answered().length > handedOver + 20, { deadlineMs: 20_000, say: 'pings after' })
        ping.kill('SIGINT')
        const sequence = answered()
        const gaps = sequence.slice(1).map((seq, i) => (seq - (sequence[i] ?? seq)) * PING_MS)
        const longestMs = Math.max(...gaps)
        t.ok(longestMs < MOST_GAP_MS, `${turn}, from ${before ?? 'none'}: ${longestMs} ms without an answer`)
        // Both ends are bound at both hubs again before the next turn, so the link keeps a relay.
        await setVia(HUBS)
        await through(other, 'it stays at the relay that it has')
      }
    } catch (error) {
      t.comment(JSON.stringify([paris, roma].map((site) => site.gateway('gw1')?.connections)))
      t.comment([milano, oslo, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
      throw error
    }
  })
})
