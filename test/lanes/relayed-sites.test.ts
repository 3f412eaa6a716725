/**
 * Two sites that nothing can call, each behind a translation of its own, reach each other through a third site that
 * offers to relay. There are three such sites, and as each is lost another one takes over, without the broker, which is
 * away from then on; without a relay the link is down, with its reason.
 */
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { hide } from '../netns/support/lost-faults.ts'
import { type PlainSite, withPlainSites } from '../netns/support/plain-sites.ts'

const RELAY = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: ${uplinks}.11.2, relay: true }]\n`,
})
const HIDDEN = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1 }]\n',
})
const SITES = [
  RELAY('milano', '192.0', '10.42'),
  RELAY('oslo', '192.1', '10.72'),
  RELAY('riga', '192.2', '10.82'),
  HIDDEN('paris', '198.51', '10.52'),
  HIDDEN('roma', '198.52', '10.62'),
]

t.setTimeout(290_000)

t.test('hidden sites reach each other through relays', { skip: netnsMissing() ?? false }, (t) =>
  withPlainSites(
    temporaryFolder(t),
    SITES,
    async ([milano, oslo, riga, paris, roma], { broker }) => {
      if (!milano || !oslo || !riga || !paris || !roma) throw new Error('sites')
      const gw = (site: PlainSite) => site.machine('gw1')
      const link = (from: PlainSite, to: PlainSite) =>
        from.gateway('gw1')?.connections.find(({ cluster }) => cluster === to.plan.name)
      const ends = [
        [paris, roma],
        [roma, paris],
      ] as const
      const relayed = async (by: readonly PlainSite[], say: string): Promise<string> => {
        const names = by.map(({ plan }) => plan.name)
        for (const [from, to] of ends) {
          await eventually(() => names.includes(link(from, to)?.usingRelay ?? '') && link(from, to)?.state === 'up', {
            deadlineMs: 90_000,
            say: `${say}: ${from.plan.name} to ${to.plan.name}`,
          })
          await eventually(() => gw(from).pings(gw(to).podAddress), { deadlineMs: 20_000, say: `${say}: a ping` })
        }
        return link(paris, roma)?.usingRelay ?? ''
      }
      for (const site of [milano, oslo, riga, paris, roma]) site.up('gw1')
      try {
        let relays = [milano, oslo, riga]
        await relayed(relays, 'the broker is there')
        await broker.stop()
        while (relays.length > 1) {
          const used = await relayed(relays, `${relays.length} relays run`)
          await eventually(() => link(roma, paris)?.usingRelay === link(paris, roma)?.usingRelay, {
            say: 'both ends use the same relay',
          })
          const lost = relays.find(({ plan }) => plan.name === used)
          if (lost === undefined) throw new Error(`no relay ${used}`)
          relays = relays.filter((site) => site !== lost)
          const lostAt = performance.now()
          await gw(lost).lose()
          await eventually(() => gw(paris).pings(gw(roma).podAddress), {
            deadlineMs: 30_000,
            say: `a ping after the loss of ${used}`,
          })
          t.comment(`${used} is lost, and calls go on after ${Math.round(performance.now() - lostAt)} ms`)
        }
        const [left] = relays
        if (left === undefined) throw new Error('no relay is left')
        await relayed([left], 'one relay runs')

        const tables = (site: PlainSite): Promise<string> => gw(site).netns.exec('nft', ['list', 'tables'])
        t.match(await tables(left), /sealane_relay/)
        t.match(await tables(paris), /sealane_reach/)
        await gw(left).stop()
        t.match(await tables(left), /sealane_relay/, 'a relay that is started again has cut nothing')
        for (const [from, to] of ends) t.ok(await gw(from).pings(gw(to).podAddress), 'calls go on meanwhile')
        await gw(left).lose()
        for (const [from, to] of ends) {
          await eventually(() => link(from, to)?.state === 'down' && link(from, to)?.cause === 'NeitherCallable', {
            deadlineMs: 90_000,
            say: `no relay runs: ${from.plan.name} to ${to.plan.name}`,
          })
        }
        await eventually(async () => !/sealane_reach/.test(await tables(paris)), {
          deadlineMs: 30_000,
          say: 'nothing is asked any more',
        })
      } catch (error) {
        t.comment(JSON.stringify([paris, roma].map((site) => site.gateway('gw1')?.connections)))
        t.comment([milano, oslo, riga, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
        throw error
      }
    },
    { prepare: hide },
  ),
)
