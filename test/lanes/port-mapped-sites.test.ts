/**
 * Two sites behind symmetric NATs, which no probe passes. The router of one maps ports (PCP, then NAT-PMP), so the link
 * does without the relay; the router of the other floods whoever asks it. A process that stops leaves the mapping, and a cluster that leaves ends it.
 */
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { chain, firewall } from '../netns/support/fault.ts'
import { withPlainSites } from '../netns/support/plain-sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { PortMappingRouterInit } from './support/port-mapping-router.ts'

const HIDDEN = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1 }]\n',
})
const MILANO = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1, publicAddress: 192.0.11.2, relay: true }]\n',
}
const SITES = [MILANO, HIDDEN('paris', '10.71', '10.52'), HIDDEN('roma', '10.72', '10.62')]
const PARIS = { inside: '10.71.11.2', router: '10.71.11.1', outside: '203.0.114.51' }
const ROMA = { inside: '10.72.11.2', router: '10.72.11.1', outside: '203.0.114.52' }
const ENDS = `{ ${PARIS.inside}, ${ROMA.inside} }`
const MAPPED = 51_000
const PROGRAM = join(import.meta.dirname, 'support', 'port-mapping-router.ts')

/** A NAT for each of the two that gives each destination another port, and lets nobody in but by a mapping. */
function translate(internet: Netns): Promise<unknown> {
  const out = [PARIS, ROMA].map(({ inside, outside }) => `ip saddr ${inside} snat to ${outside} fully-random`)
  return firewall(
    internet,
    `map led { type inet_service : ipv4_addr . inet_service; }
    chain out { type nat hook postrouting priority srcnat; ${out.join('; ')}; }
    chain back { type nat hook prerouting priority dstnat; ip daddr ${PARIS.outside} dnat ip addr . port to udp dport map @led; }
    ${chain('forward', `ct status dnat accept; ct state new ip saddr ${ENDS} ip daddr ${ENDS} drop`)}`,
  )
}

/** Starts a router. Returns what it has printed last. */
function route(internet: Netns, init: PortMappingRouterInit): () => string {
  const child = internet.spawn(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    PROGRAM,
    JSON.stringify(init),
  ])
  let last = ''
  for (const stream of [child.stdout, child.stderr])
    if (stream !== null) createInterface(stream).on('line', (line) => (last = line))
  return () => last
}

t.setTimeout(290_000 * SLOWNESS)

for (const speaks of ['pcp', 'natPmp'] as const) {
  t.test(`a router that speaks ${speaks} leads calls inside`, { skip: netnsMissing() ?? false }, async (t) => {
    await withPlainSites(
      temporaryFolder(t),
      SITES,
      async ([milano, paris, roma], { internet }) => {
        if (milano === undefined || paris === undefined || roma === undefined) throw new Error('sites')
        const table = { port: MAPPED, map: 'fault led' }
        const mapped = route(internet, { inside: PARIS.router, outside: PARIS.outside, speaks, ...table })
        const flooding = route(internet, { inside: ROMA.router, outside: ROMA.outside, ...table })
        await eventually(() => mapped() === '[]' && flooding() === '[]', { say: `routers ${mapped()} ${flooding()}` })
        const link = () => roma.gateway('gw1')?.connections.find(({ cluster }) => cluster === 'paris')
        const [here, there] = [roma.machine('gw1'), paris.machine('gw1')]
        for (const site of [milano, paris, roma]) site.up('gw1')
        try {
          const isUp = () => link()?.state === 'up' && link()?.usingAddress === `${PARIS.outside}:${MAPPED}`
          await eventually(isUp, { deadlineMs: 60_000, say: 'port-mapped' })
          t.equal(link()?.usingRelay, undefined)
          await eventually(() => here.pings(there.podAddress), { deadlineMs: 20_000, say: 'a ping' })
          t.match(await here.run(['show', 'connections', '--site', roma.file]), /paris .* up .* port-mapped /)
          const shown = () => there.run(['show', 'connections', '--site', paris.file])
          await eventually(async () => /roma .* up .* port-mapped /.test(await shown()), { say: 'at the other end' })
          const of = (site: typeof roma) => site.gateway('gw1')?.conditions?.find(({ type }) => type === 'PortMapped')
          t.match(of(paris), { status: 'True', reason: 'PortMapped' })
          await eventually(() => of(roma)?.reason === 'RouterMapsNoPorts', { say: 'the flood is given up' })
          const before = mapped()
          await there.stop()
          t.equal(mapped(), before, 'a process that stops leaves the mapping')
          t.ok(await here.pings(there.podAddress), 'and packets pass')
          paris.up('gw1')
          await eventually(() => of(paris)?.status === 'True' && isUp(), { say: 'up again, at the same place' })
          t.equal(mapped(), before)
          await there.run(['leave', '--yes', '--site', paris.file])
          await eventually(() => mapped() === '[]', { say: 'the mapping ends' })
          t.notMatch(await internet.exec('nft', ['list', 'map', 'ip', 'fault', 'led']), /elements/)
        } catch (error) {
          t.comment(mapped(), JSON.stringify([link(), paris.gateway('gw1')]))
          t.comment([milano, paris, roma].map((site) => `${site.plan.name} ${site.said()}`).join('\n'))
          throw error
        }
      },
      { prepare: translate },
    )
  })
}
