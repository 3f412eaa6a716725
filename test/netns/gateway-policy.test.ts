/**
 * A compromised gateway, which has no policy, and sets routes and WireGuard as it likes. The other end drops what it
 * must not reach, in both families.
 */
import t, { type Test } from 'tap'
import { countArrivals } from '../gateway/support/arrivals.ts'
import { introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { dropped, takeOver } from '../gateway/support/take-over.ts'
import {
  DUAL_STACK_MILANO,
  DUAL_STACK_PARIS,
  type Running,
  msUntilUp,
  withTwo,
} from '../gateway/support/two-gateways.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

interface Reach {
  readonly family: 'ip' | 'ip6'
  /** Addresses that the compromised gateway adds to itself: one of its own cluster, and one of no cluster. */
  readonly own: string
  readonly spoofed: string
  /** The address of a pod of milano. */
  readonly pod: string
  /** Addresses behind the other gateway that are not pods, and one of a third cluster. */
  readonly forbidden: readonly (readonly [what: string, address: string])[]
}

const REACH: readonly [four: Reach, six: Reach] = [
  {
    family: 'ip',
    own: '244.1.0.9',
    spoofed: '244.7.0.9',
    pod: '244.0.0.5',
    forbidden: [
      ['an address of the node', '192.168.77.1'],
      ['a machine in its LAN', '192.168.77.2'],
      ['a pod, by its own address', '10.42.0.5'],
      ['a service', '10.43.0.1'],
      ['a third cluster', '244.9.0.1'],
      ['a clusterset IP', '245.0.0.1'],
      ['a lane address of a third cluster', '246.0.9.0'],
    ],
  },
  {
    family: 'ip6',
    own: 'fd42:2:0:9::9',
    spoofed: 'fd42:7::9',
    pod: 'fd42:1::5',
    forbidden: [
      ['an address of the node', 'fd77::1'],
      ['a machine in its LAN', 'fd77::2'],
      ['a third cluster', 'fd42:9::1'],
      ['a clusterset IP', 'fd53:ea1a:4e00::f500:1'],
    ],
  },
]

const NOT_FOR_US = 'in-not-ours'
const NOT_A_PROBE = 'lane-address-no-probe'

t.test('what an evil gateway cannot reach', { skip, timeout: 90_000 }, async (t) => {
  await withTwo(t, [DUAL_STACK_MILANO, DUAL_STACK_PARIS], async (milano, paris) => {
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    for (const address of ['192.168.77.1/24', 'fd77::1/64'])
      await milano.site.gateway.exec('ip', ['address', 'add', address, 'dev', 'lo'])
    await takeOver(paris, {
      own: REACH.flatMap(({ own, spoofed }) => [own, spoofed]),
      targets: REACH.flatMap(({ forbidden }) => forbidden.map(([, address]) => address)),
    })
    for (const reach of REACH) await reaches(t, milano, paris, reach)
    const [{ own }] = REACH
    const before = await dropped(milano, NOT_A_PROBE)
    const knock = `require('node:net').connect({ host: '246.0.1.0', port: 22, localAddress: '${own}' }).setTimeout(500, () => process.exit()).on('error', () => process.exit())`
    await paris.site.gateway.exec(process.execPath, ['-e', knock])
    t.ok((await dropped(milano, NOT_A_PROBE)) > before, 'nothing but probes at the lane address')
    t.match(await pings(milano.site.pod, '246.0.2.0', '-W', '1'), '0 received', 'and our pods do not reach theirs')
  })
})

async function reaches(t: Test, milano: Running, paris: Running, reach: Reach): Promise<void> {
  const { family, own, spoofed, pod, forbidden } = reach
  const arrived = await countArrivals(milano.site.pod, family, {
    own: `${family} saddr ${own}`,
    spoofed: `${family} saddr ${spoofed}`,
  })
  const evil = (to: string, from: string): Promise<string> =>
    pings(paris.site.gateway, to, '-I', from, '-W', '1', '-i', '0.2')
  t.match(await pings(paris.site.gateway, pod, '-I', own), '1 received', `${family}: a pod, as lanes are for that`)
  for (const [what, address] of forbidden) {
    const before = await dropped(milano, NOT_FOR_US, family)
    t.match(await evil(address, own), '0 received', `${family}: ${what}`)
    t.equal((await dropped(milano, NOT_FOR_US, family)) - before, 1, `${family}: ${what}: counted`)
  }
  await evil(pod, spoofed)
  t.strictSame(await arrived(), [1, 0], `${family}: a pod, but not in the name of a third cluster`)
}
