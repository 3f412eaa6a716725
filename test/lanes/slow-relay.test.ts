/**
 * Two sites behind NATs reach each other through a relay that is as far from each as a geostationary satellite and more:
 * the link comes up, and stays up. The kernel of the host may have no qdisc that delays, so a program in the router
 * carries what the two send to the relay's gateway, and takes the whole round trip for it.
 *
 *   paris 198.51.11.2, seen at 203.0.114.51 ──┐ slow
 *   roma  198.52.11.2, seen at 203.0.114.52 ──┴────── milano 192.0.11.2, which relays
 */
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import { LANE_BASE_PORT, RELAY_LAST_PORT, RELAY_PORT } from '../../model/kernel-ids.ts'
import { type PlainSite, withPlainSites } from '../netns/support/plain-sites.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const MILANO = '192.0.11.2'
/** A hidden site: its gateway, the router in front of it, and where others see it. */
const PARIS = { own: '198.51.11.2', router: '198.51.11.1', seen: '203.0.114.51' }
const ROMA = { own: '198.52.11.2', router: '198.52.11.1', seen: '203.0.114.52' }
const HIDDEN = [PARIS, ROMA]
const SITES = [
  {
    ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1'] },
    spec: `  gateways: [{ node: gw1, publicAddress: ${MILANO}, relay: true }]\n`,
  },
  { name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'], spec: '  gateways: [{ node: gw1 }]\n' },
  { name: 'roma', uplinks: '198.52', pods: '10.62', nodes: ['gw1'], spec: '  gateways: [{ node: gw1 }]\n' },
]
/** The device of lane 0 and the questions to relays leave by this port. */
const OUTSIDE = LANE_BASE_PORT
const SLOW_PORTS = `{ ${LANE_BASE_PORT}, ${RELAY_PORT}-${RELAY_LAST_PORT} }`

/** The round trip of the link, half of which is the way between each end and the relay and back. */
const ROUND_TRIP_MS = 2400
/** Longer than it takes on a busy machine, and shorter than where calls are repeated before their answers are here. */
const UP_WITHIN_MS = 45_000
/** The link has to stay up for so long that a probe without an answer in time would show as down. */
const STAYS_MS = Number(process.env['SEALANE_SLOW_TRIPS'] ?? 5) * ROUND_TRIP_MS

t.setTimeout(240_000)

const ruleset = (): string => {
  const into = HIDDEN.flatMap(({ own, router, seen }) => [
    `ip saddr ${own} ip daddr ${MILANO} udp sport ${OUTSIDE} udp dport ${SLOW_PORTS} notrack ip daddr set ${router}`,
    `ip saddr ${MILANO} ip daddr ${seen} udp dport ${OUTSIDE} notrack ip daddr set ${own}`,
  ])
  const out = HIDDEN.map(
    ({ router, seen }) =>
      `ip saddr ${router} ip daddr ${MILANO} udp sport ${SLOW_PORTS} notrack ip saddr set ${seen} udp sport set ${OUTSIDE}`,
  )
  const seenAs = `{ ${HIDDEN.map(({ own, seen }) => `${own} : ${seen}`).join(', ')} }`
  const ends = `{ ${HIDDEN.map(({ own }) => own).join(', ')} }`
  const chains = [
    `chain into { ${['type filter hook prerouting priority -300', ...into].join('; ')}; }`,
    `chain out { ${['type filter hook output priority -300', ...out].join('; ')}; }`,
    `chain hidden { type filter hook forward priority 0; ip saddr ${ends} ip daddr ${ends} drop; }`,
    `chain seen { type nat hook postrouting priority srcnat; snat to ip saddr map ${seenAs}; }`,
  ]
  return `table ip slow { ${chains.join('; ')}; }`
}

/** Resolves once packets to the relay take `wayMs`. */
async function slowDown(internet: Netns, wayMs: number): Promise<void> {
  const ports = [LANE_BASE_PORT, ...Array.from({ length: RELAY_LAST_PORT - RELAY_PORT + 1 }, (_, i) => RELAY_PORT + i)]
  const ways = HIDDEN.flatMap(({ router }) => ports.map((port) => `${router}:${port}=${MILANO}:${port}`))
  const program = join(import.meta.dirname, '../failover/delay-relay.ts')
  const child = internet.spawn(process.execPath, [program, String(wayMs), '0', ...ways])
  child.stderr?.pipe(process.stderr)
  if (child.stdout !== null) await once(child.stdout, 'data')
  await internet.exec('nft', ['-f', '-'], { input: `${ruleset()}\n` })
}

t.test('a relayed link comes up and stays up', { skip: netnsMissing() ?? false }, (t) =>
  withPlainSites(
    temporaryFolder(t),
    SITES,
    async ([milano, paris, roma]) => {
      if (milano === undefined || paris === undefined || roma === undefined) throw new Error('sites')
      const ends = [
        [paris, roma],
        [roma, paris],
      ] as const
      const link = (from: PlainSite, to: PlainSite) =>
        from.gateway('gw1')?.connections.find(({ cluster }) => cluster === to.plan.name)
      const state = (from: PlainSite, to: PlainSite): string =>
        `${link(from, to)?.state ?? ''} by ${link(from, to)?.usingRelay ?? ''}`
      try {
        for (const site of [milano, paris, roma]) site.up('gw1')
        const isNear = (): boolean => ends.every(([from]) => link(from, milano)?.state === 'up')
        await eventually(isNear, { deadlineMs: 90_000, say: 'the links with the relay' })
        const nearMs = performance.now()
        const isUp = (): boolean => ends.every(([from, to]) => state(from, to) === 'up by milano')
        await eventually(isUp, { deadlineMs: UP_WITHIN_MS, intervalMs: 50, say: 'the link by the relay' })
        const upMs = performance.now()
        t.comment(`up ${Math.round(upMs - nearMs)} ms after both ends had the relay`)
        const seen = new Set<string>()
        const stays = (): boolean => {
          for (const [from, to] of ends) seen.add(state(from, to))
          return performance.now() - upMs >= STAYS_MS
        }
        await eventually(stays, { deadlineMs: 120_000, intervalMs: 500, say: 'it stays up' })
        t.strictSame([...seen], ['up by milano'], 'it stays up')
        const said = ends.map(([from]) => from.machine('gw1').said).join('\n')
        t.notMatch(said, /"cluster":"(paris|roma)".*"from":"up","to":"down"/, 'it has not been down')
        for (const [from, to] of ends) t.ok((link(from, to)?.rttMs ?? 0) >= ROUND_TRIP_MS, 'it is as slow as that')
      } catch (error) {
        t.comment(JSON.stringify([paris, roma].map((site) => site.gateway('gw1')?.connections)))
        t.comment([milano, paris, roma].map((site) => `${site.plan.name} ${site.machine('gw1').said}`).join('\n'))
        throw error
      }
    },
    { prepare: (internet) => slowDown(internet, ROUND_TRIP_MS / 2) },
  ),
)
