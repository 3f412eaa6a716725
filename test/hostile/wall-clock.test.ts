/** The wall clock of a gateway's machine is set forwards and back. */
import t, { type Test } from 'tap'
import { GatewayProcess, introduce, untilUp } from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS, type Running, msUntilUp } from '../gateway/support/two-gateways.ts'
import { sessions } from '../gateway/support/wireguard-calls.ts'
import { eventually } from '../support/eventually.ts'
import type { Netns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { withLaneUp } from './support/lane-up.ts'

t.setTimeout(240_000)

const HOUR_MS = 3_600_000

await attack('wall-clock-forward', (t) => isSet(t, HOUR_MS))
await attack('wall-clock-back', (t) => isSet(t, -HOUR_MS))

async function isSet(t: Test, wrongByMs: number): Promise<void> {
  await withLaneUp(t, [MILANO, PARIS], async (milano, paris, internet) => {
    milano.process.setWallClock(wrongByMs)
    await breaks(t, milano, paris, internet)
    const { handshakeAgeSeconds = NaN } = milano.process.status?.connections[0] ?? {}
    t.ok(handshakeAgeSeconds > 0 && handshakeAgeSeconds < 60, `a handshake ${handshakeAgeSeconds} s old`)
    await restarts(t, milano, paris, wrongByMs)
  })
}

/**
 * Blocks the path until both gateways notice. When it is open again, the WireGuard session must be the same as before.
 */
async function breaks(t: Test, milano: Running, paris: Running, internet: Netns): Promise<void> {
  const keys = await sessions(milano)
  await internet.exec('nft', ['-f', '-'], {
    input: 'table ip shut { chain f { type filter hook forward priority filter; policy drop; }; }',
  })
  const down = (): boolean => milano.process.stateOf('paris') === 'down' && paris.process.stateOf('milano') === 'down'
  await eventually(down, { deadlineMs: 20_000, say: 'both ends know' })
  const began = performance.now()
  await eventually(() => performance.now() - began > 2500, { say: 'it stays shut for a while' })
  t.equal(await sessions(milano), keys, 'while it is shut, the session is kept')
  await internet.exec('nft', ['delete', 'table', 'ip', 'shut'])
  await msUntilUp(milano, paris)
}

async function restarts(t: Test, milano: Running, paris: Running, wrongByMs: number): Promise<void> {
  const states: (string | undefined)[] = []
  const before = milano.process
  await before.stop('SIGKILL')
  milano.process = new GatewayProcess(milano.site)
  milano.process.setWallClock(wrongByMs)
  for (const object of before.objects.values()) milano.process.put(object)
  introduce(milano, paris)
  paris.process.onObject(() => states.push(paris.process.stateOf('milano')))
  await untilUp(milano.process, 'paris')
  t.strictSame([...new Set(states)], ['up'], 'nor does a restart with a wrong clock make the lane down')
}
