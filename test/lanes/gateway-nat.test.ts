/**
 * A gateway behind address translation that does not know about it, because the broker could not know. It publishes its
 * private address, which cannot be reached from outside, so the other end's calls get no answer. The other end must
 * answer at the address that the gateway calls from.
 */
import t, { type Test } from 'tap'
import type { ConnectionStatus } from '../../model/objects.ts'
import { translate } from '../failover/path-faults.ts'
import { Stream } from '../failover/receiver.ts'
import { GatewayProcess, type SiteInit, introduce } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import {
  BEHIND_NAT,
  MILANO,
  type Running,
  TOKYO,
  idOf,
  msUntilUp,
  vanish,
  withTwo,
} from '../gateway/support/two-gateways.ts'
import { cluster } from '../gateway/support/worlds.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.setTimeout(400_000 * SLOWNESS)
// Each row has a network of its own, and mostly waits.
t.jobs = 2

const { observedAddress: _unknown, ...UNAWARE } = TOKYO
/** The hidden site as the end that calls first, and as the one that calls second. */
const FIRST: SiteInit = { ...UNAWARE, cluster: cluster('aachen', 3, '10.42.0.0/16', '244.2.0.0/16') }
const SECOND: SiteInit = UNAWARE

/** The router between the sites translates; its address at milano is 192.0.2.1. */
const NAT = `table ip nat {
  chain out { type nat hook postrouting priority srcnat; ip saddr 198.51.100.20 masquerade random; }
  chain in { type filter hook forward priority filter; ip daddr 198.51.100.20 ct state new drop; }
}`

for (const [say, init] of [
  ['its id comes first', FIRST],
  ['the other end calls first', SECOND],
] as const) {
  t.test(`behind NAT unawares: ${say}`, { skip, buffered: true, timeout: 180_000 * SLOWNESS }, async (t) => {
    await withTwo(t, [MILANO, init], async (milano, hidden, internet) => {
      await internet.exec('nft', ['-f', '-'], { input: NAT })
      introduce(milano, hidden)
      t.comment(`up after ${await msUntilUp(milano, hidden)} ms`)
      await stays(t, milano, hidden)

      await vanish(milano)
      milano.process = new GatewayProcess(milano.site)
      introduce(milano, hidden)
      t.comment(`up again after ${await msUntilUp(milano, hidden, 60_000)} ms, the callable end made anew`)
      await stays(t, milano, hidden)

      await vanish(hidden)
      hidden.process = new GatewayProcess(hidden.site)
      introduce(milano, hidden)
      t.comment(`up again after ${await msUntilUp(milano, hidden, 60_000)} ms, the hidden end made anew`)
      await stays(t, milano, hidden)
    })
  })
}

t.test('the translation takes another port and another address', { skip, timeout: 120_000 * SLOWNESS }, async (t) => {
  await withTwo(t, [MILANO, BEHIND_NAT], async (milano, hidden, internet) => {
    const other = '192.0.2.77'
    await internet.exec('ip', ['address', 'add', `${other}/24`, 'dev', 'to-milano'])
    const map = (address: string, port: number): Promise<void> =>
      translate(internet, { inside: hidden.site.init.address, device: 'to-milano', mapping: { address, port } })
    await map(MILANO.router, 40_000)
    introduce(milano, hidden)
    await msUntilUp(milano, hidden)
    // Only one side sends at a time.
    for (const [say, from, to, address] of [
      ['to the hidden site', milano, hidden, '244.2.0.5'],
      ['from the hidden site', hidden, milano, '244.0.0.5'],
    ] as const) {
      const stream = await Stream.start('udp', from.site.pod, to.site.pod, address)
      for (const [at, port] of [
        [MILANO.router, 40_001],
        [other, 40_001],
        [MILANO.router, 40_000],
      ] as const) {
        await map(at, port)
        await eventually(() => connectionTo(milano, hidden)?.usingAddress === `${at}:${port}`, {
          deadlineMs: 20_000,
          say: `${say}: milano follows to ${at}:${port}`,
        })
        await stream.received()
        await eventually(async () => (await stream.received()).bytes > 0, { say: `${say}: by ${at}:${port}` })
        t.strictSame([milano.process.stateOf(idOf(hidden)), hidden.process.stateOf(idOf(milano))], ['up', 'up'], say)
      }
      await stream.stop()
    }
  })
})

function connectionTo(from: Running, to: Running): ConnectionStatus | undefined {
  return from.process.status?.connections.find(({ cluster: id }) => id === idOf(to))
}

async function stays(t: Test, milano: Running, hidden: Running): Promise<void> {
  const connection = () => connectionTo(milano, hidden)
  await eventually(() => /^192\.0\.2\.1:\d+$/.test(connection()?.usingAddress ?? ''), {
    say: 'used where it called from',
  })
  t.equal(connection()?.usingNat, true)
  t.match(hidden.process.objects.get(`Endpoint/${idOf(hidden)}.gw-lane0`), {
    spec: { candidates: [{ kind: 'private', address: '198.51.100.20' }] },
  })
  // Five pings in a row must arrive: the status may be older than the far end's failure, whose last misses take the
  // lane down a moment after the first ping has passed.
  await eventually(
    async () => (await pings(milano.site.pod, '244.2.0.5', '-c', '5', '-i', '0.2', '-W', '1')).includes(' 5 received'),
    {
      deadlineMs: 20_000,
      say: 'the way is there',
    },
  )
  const sent = await pings(milano.site.pod, '244.2.0.5', '-c', '40', '-i', '0.2')
  t.match(sent, '40 received', 'eight seconds without a loss')
}
