/** What a gateway reports about itself over time: its heartbeat, its condition, and the events of its lanes. */
import t, { type Test } from 'tap'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { CONDITION_READY, REASON_STATUS_STALE, findCondition } from '../../model/conditions.ts'
import { HEARTBEAT_MS } from '../../model/lanes/liveness.ts'
import { HOME, PARIS, PARIS_GW, Stage } from './support/stage.ts'

const LENGTHS = [
  ['by default', {}, 5000],
  ['as it is configured', { heartbeatMs: 1000 }, 1000],
] as const
for (const [which, init, heartbeatMs] of LENGTHS) {
  t.test(`the heartbeat moves while nothing else does, ${which}, and the API server may be away`, (t) =>
    moves(t, init, heartbeatMs),
  )
}

async function moves(t: Test, init: { readonly heartbeatMs?: number }, heartbeatMs: number): Promise<void> {
  const stage = new Stage(t)
  stage.start(init)
  const beat = (): string => stage.gateway()?.heartbeatTime ?? ''
  await stage.until(() => beat() !== '', 'it tells')
  for (let i = 0; i < 4; i += 1) {
    const before = beat()
    const sinceMs = stage.clock.monotonic()
    await stage.until(() => beat() !== before, 'it tells again')
    t.ok(stage.clock.monotonic() - sinceMs <= heartbeatMs, 'in time')
  }
  stage.objects.failure = new ClusterApiError('Unavailable', 'no answer')
  await stage.passSlowly(40_000)
  stage.objects.failure = undefined
  const [before, sinceMs] = [beat(), stage.clock.monotonic()]
  await stage.until(() => beat() !== before, 'it tells again after the outage')
  // A failed write is retried after two seconds at most, which is before other parts regard the gateway as lost.
  t.ok(stage.clock.monotonic() - sinceMs <= Math.max(heartbeatMs, 2000), 'before others lose patience')
}

t.test('traffic alone is written with the heartbeat, not before: every node reads each write', async (t) => {
  const stage = new Stage(t)
  stage.start()
  stage.put(PARIS, PARIS_GW)
  await stage.until(() => stage.connection('paris') !== undefined, 'paris is known')
  stage.probes.alive.add('246.0.2.0')
  stage.wireguard.handshake('sealane0', PARIS_GW.spec.publicKey, stage.clock.now(), HOME)
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  await stage.passSlowly(2 * HEARTBEAT_MS)
  const beats = new Set<string>()
  for (let bytes = 1000; bytes <= 20_000; bytes += 1000) {
    stage.wireguard.traffic('sealane0', PARIS_GW.spec.publicKey, bytes, bytes)
    await stage.passSlowly(500)
    beats.add(stage.gateway()?.heartbeatTime ?? '')
  }
  t.ok(beats.size >= 2 && beats.size <= 4, `${beats.size} writes in ten seconds`)
  const seen = stage.connection('paris')?.rxBytes ?? 0
  t.ok(seen > 10_000, `the traffic is in them: ${seen} octets`)
})

t.test('what the gateway is told to be, and the events of its lanes', async (t) => {
  const stage = new Stage(t)
  const ready = (): string => {
    const found = findCondition(stage.gateway()?.conditions, CONDITION_READY)
    return `${found?.status} ${found?.reason} ${stage.gateway()?.up} ${found?.message}`
  }
  const events = (): string[] =>
    stage.objects.events.splice(0).map(({ regarding, type, reason }) => `${regarding.kind} ${type} ${reason}`)
  stage.start()
  await stage.until(() => stage.gateway() !== undefined, 'it tells')
  t.equal(ready(), 'True NoOtherCluster 0/0 no other cluster has a gateway to link with yet')
  stage.put(PARIS, PARIS_GW)
  await stage.until(() => stage.connection('paris') !== undefined, 'paris is known')
  t.equal(ready(), 'False LaneConnecting 0/1 not connected yet to paris')
  t.strictSame(events(), [])
  stage.probes.alive.add('246.0.2.0')
  stage.wireguard.handshake('sealane0', PARIS_GW.spec.publicKey, stage.clock.now(), HOME)
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  t.equal(ready(), 'True LanesUp 1/1 ')
  t.strictSame(events(), ['Gateway Normal LaneUp'])
  await stage.stop()
  stage.start()
  await stage.passSlowly(3000)
  t.strictSame(events(), [], 'a restart is no event')
  stage.probes.alive.clear()
  await stage.until(() => stage.connection('paris')?.state === 'down', 'down')
  t.equal(ready(), 'False LaneProbeTimeout 0/1 no answer to probes from paris')
  t.strictSame(events(), ['Gateway Warning LaneDown'])
  const unknown = { ...findCondition(stage.gateway()?.conditions, CONDITION_READY)!, status: 'Unknown' as const }
  await stage.objects.setCondition({ kind: 'Gateway', name: 'gw' }, { ...unknown, reason: REASON_STATUS_STALE })
  await stage.until(() => ready().startsWith('False LaneProbeTimeout'), 'what somebody thought of it meanwhile is past')
})
