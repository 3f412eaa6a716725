/**
 * A gateway that has been taken over: no policy of its own, routes and WireGuard as it likes. What it cannot reach at
 * the other end is kept from it there.
 */
import t from 'tap'
import { countArrivals } from '../gateway/support/arrivals.ts'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { dropped, takeOver } from '../gateway/support/take-over.ts'
import { MILANO, PARIS, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

/** Addresses that the evil gateway gives itself: one of its own cluster, one of no cluster. */
const OWN = '244.1.0.9'
const SPOOFED = '244.7.0.9'

const FORBIDDEN: readonly (readonly [what: string, address: string])[] = [
  ['an address of the node', '192.168.77.1'],
  ['a machine in its LAN', '192.168.77.2'],
  ['a pod, by its own address', '10.42.0.5'],
  ['a service', '10.43.0.1'],
  ['a third cluster', '244.9.0.1'],
  ['a clusterset IP', '245.0.0.1'],
  ['a lane address of a third cluster', '246.0.9.0'],
]

const NOT_FOR_US = 'in-not-ours'
const NOT_A_PROBE = 'lane-address-no-probe'

t.test('what an evil gateway cannot reach', { skip, timeout: 60_000 }, async (t) => {
  await withTwo(t, [MILANO, PARIS], async (milano, paris) => {
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    await milano.site.gateway.exec('ip', ['address', 'add', '192.168.77.1/24', 'dev', 'lo'])
    await takeOver(paris, { own: [OWN, SPOOFED], targets: FORBIDDEN.map(([, address]) => address) })
    const arrived = await countArrivals(milano.site.pod, 'ip', {
      own: `ip saddr ${OWN}`,
      spoofed: `ip saddr ${SPOOFED}`,
    })
    const evil = (to: string, from: string): Promise<string> =>
      pings(paris.site.gateway, to, '-I', from, '-W', '1', '-i', '0.2')
    t.match(await pings(paris.site.gateway, '244.0.0.5', '-I', OWN), '1 received', 'a pod: what lanes are for')
    for (const [what, address] of FORBIDDEN) {
      const before = await dropped(milano, NOT_FOR_US)
      t.match(await evil(address, OWN), '0 received', what)
      t.equal((await dropped(milano, NOT_FOR_US)) - before, 1, `${what}: counted`)
    }
    await evil('244.0.0.5', SPOOFED)
    t.strictSame(await arrived(), [1, 0], 'a pod, but not in the name of a third cluster')
    const before = await dropped(milano, NOT_A_PROBE)
    const knock = `require('node:net').connect({ host: '246.0.1.0', port: 22, localAddress: '${OWN}' }).setTimeout(500, () => process.exit()).on('error', () => process.exit())`
    await paris.site.gateway.exec(process.execPath, ['-e', knock])
    t.ok((await dropped(milano, NOT_A_PROBE)) > before, 'nothing but probes at the lane address')
    t.match(await pings(milano.site.pod, '246.0.2.0', '-W', '1'), '0 received', 'and our pods do not reach theirs')
  })
})
