/** A gateway that is drained; everything but its own process is a fake. */
import t, { type Test } from 'tap'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { CAPABILITY_DRAINING } from '../../model/lanes/lane-number.ts'
import type { Node } from '../../model/objects.ts'
import { connectionsTo, gatewayObject } from '../support/objects/node-objects.ts'
import { PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { cluster, endpoint } from './support/worlds.ts'

async function serving(t: Test): Promise<Stage> {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.label('true')
  stage.probes.alive.add('246.0.2.0')
  stage.startLabelled()
  await stage.until(() => toParis(stage) === 1, 'paris is routed')
  return stage
}

/** The number of routes to paris. */
const toParis = (stage: Stage): number => stage.routed().filter((line) => line.includes('244.1.0.0/16')).length
const drains = (stage: Stage): boolean => stage.ownEndpoint()?.spec.capabilities.includes(CAPABILITY_DRAINING) === true
const drained = (stage: Stage) => stage.gateway()?.conditions?.find(({ type }) => type === 'Drained')

function change(stage: Stage, labels: Readonly<Record<string, string>>, spec: Node['spec'] = {}): void {
  const { metadata, ...rest } = stage.node() as Node
  stage.put({ ...rest, metadata: { ...metadata, labels: { 'sealane.io/gateway': 'true', ...labels } }, spec })
}

function otherReports(stage: Stage, states: Parameters<typeof connectionsTo>[0], remoteLane = 0): void {
  const lanes = [{ lane: 1, device: 'sealane0', mtu: 1420, driver: 'wireguard-kernel' }]
  stage.put(
    gatewayObject('other', { lanes, connections: connectionsTo(states).map((one) => ({ ...one, remoteLane })) }),
  )
}

t.test('the only gateway says that it goes, and carries on', async (t) => {
  const stage = await serving(t)
  change(stage, { 'sealane.io/drain': 'true' })
  await stage.until(() => drains(stage), 'it says so')
  await stage.passSlowly(5000)
  t.equal(toParis(stage), 1, 'nothing else leads to paris')
  t.equal(stage.connection('paris')?.state, 'up')
  change(stage, {})
  await stage.until(() => !drains(stage) && drained(stage) === undefined, 'it stays')
  t.equal(toParis(stage), 1)
})

t.test('one of two leaves its traffic to the other, after it has said so, and takes it back', async (t) => {
  const rows: [say: string, labels: Record<string, string>, spec: Node['spec']][] = [
    ['drained', { 'sealane.io/drain': '' }, {}],
    ['cordoned', {}, { unschedulable: true }],
    ['taken away', {}, { taints: [{ key: 'karpenter.sh/disrupted', effect: 'NoSchedule' }] }],
  ]
  for (const [say, labels, spec] of rows) {
    const stage = await serving(t)
    otherReports(stage, { paris: 'up' })
    change(stage, labels, spec)
    await stage.until(() => drains(stage), `${say}: it says so`)
    await stage.pass(500)
    t.equal(toParis(stage), 1, `${say}: the others need a moment to follow`)
    await stage.until(() => toParis(stage) === 0, `${say}: it has withdrawn`)
    await stage.until(() => drained(stage)?.status === 'True', `${say}: nothing flows`)
    t.match(drained(stage), { reason: 'NothingFlows', message: 'no traffic in the last 10 s' }, say)
    t.equal(stage.connection('paris')?.state, 'up', `${say}: the link stays`)
    otherReports(stage, { paris: 'down' })
    await stage.until(() => toParis(stage) === 1, `${say}: the other has lost it`)
    otherReports(stage, { paris: 'up' })
    change(stage, {})
    await stage.until(() => !drains(stage) && toParis(stage) === 1, `${say}: back`)
    await stage.until(() => drained(stage) === undefined, `${say}: and says nothing more of it`)
  }
})

t.test('it withdraws after the others have heard of it, however long that takes', async (t) => {
  const stage = await serving(t)
  otherReports(stage, { paris: 'up' })
  stage.objects.failure = new ClusterApiError('Unavailable', 'away')
  change(stage, { 'sealane.io/drain': '' })
  await stage.passSlowly(10_000)
  t.notOk(drains(stage), 'it could not say so')
  t.equal(toParis(stage), 1, 'and carries what still comes')
  stage.objects.failure = undefined
  await stage.until(() => drains(stage), 'it says so')
  await stage.pass(500)
  t.equal(toParis(stage), 1, 'the others need a moment to follow')
  await stage.until(() => toParis(stage) === 0, 'it has withdrawn')
  change(stage, {})
  await stage.until(() => !drains(stage) && toParis(stage) === 1, 'back')

  stage.objects.failure = new ClusterApiError('Unavailable', 'away')
  change(stage, { 'sealane.io/drain': '' })
  await stage.passSlowly(31_000)
  t.equal(toParis(stage), 0, 'an API server that stays away does not hold it up for ever')
  stage.objects.failure = undefined
})

t.test('a far gateway that goes is left where its cluster has another one', async (t) => {
  const stage = await serving(t)
  const says = (...more: string[]) =>
    stage.put({ ...PARIS_GW, spec: { ...PARIS_GW.spec, capabilities: [...PARIS_GW.spec.capabilities, ...more] } })
  says(CAPABILITY_DRAINING)
  await stage.passSlowly(3000)
  t.equal(toParis(stage), 1, 'it is the only way')
  otherReports(stage, { paris: 'up' })
  await stage.passSlowly(3000)
  t.equal(
    toParis(stage),
    1,
    'another gateway of ours has that way, too: if each left it to the other, nobody would carry',
  )
  otherReports(stage, { paris: 'up' }, 1)
  await stage.until(() => toParis(stage) === 0, 'it has a way to another gateway')
  says()
  await stage.until(() => toParis(stage) === 1, 'it stays after all')
})

t.test('a process that is started anew on a drained node takes nothing back', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  otherReports(stage, { paris: 'up' })
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => toParis(stage) === 1, 'paris is routed')
  change(stage, { 'sealane.io/drain': '' })
  await stage.until(() => drained(stage)?.status === 'True', 'nothing flows')
  const reported = (): string[] => stage.objects.events.map(({ reason }) => reason).filter((one) => /drain/i.test(one))
  const before = reported()
  await stage.stop()
  stage.start()
  let most = 0
  for (let step = 0; step < 40; step += 1) {
    await stage.passSlowly(100)
    most = Math.max(most, toParis(stage))
  }
  t.equal(most, 0, 'no route was there for a moment')
  t.equal(drained(stage)?.status, 'True', 'nothing flows, as before')
  t.strictSame(reported(), before, 'nobody is told anything')
})

t.test('a process that is started anew after it had withdrawn says that it goes until its links are up', async (t) => {
  const rows: [say: string, answers: boolean][] = [
    ['its link comes up', true],
    ['the far end is gone for good', false],
  ]
  for (const [say, answers] of rows) {
    const stage = new Stage(t)
    stage.put(PARIS, PARIS_GW)
    stage.probes.alive.add('246.0.2.0')
    stage.start()
    await stage.until(() => stage.connection('paris')?.state === 'up', `${say}: it serves`)
    change(stage, { 'sealane.io/drain': '' })
    await stage.until(() => drains(stage), `${say}: it says that it goes`)
    await stage.stop()
    stage.probes.alive.clear()
    await stage.wireguard.deleteDevice('sealane0')
    change(stage, {})
    stage.start()
    await stage.until(() => stage.wireguard.deviceNames().length === 1, `${say}: it serves again`)
    await stage.until(() => stage.connection('paris')?.state === 'connecting', `${say}: and reports`)
    await stage.passSlowly(3000)
    t.ok(drains(stage), `${say}: nobody takes it back`)
    t.match(stage.status.notReady().join(), /not all of its links are up yet/, say)
    if (answers) stage.probes.alive.add('246.0.2.0')
    const began = stage.clock.monotonic()
    await stage.until(() => !drains(stage), `${say}: all may take it back`)
    const ms = stage.clock.monotonic() - began
    t.ok(answers ? ms < 5000 : ms > 5000 && ms < 10_000, `${say}: after ${ms} ms`)
    t.equal(stage.connection('paris')?.state, answers ? 'up' : 'connecting', say)
    t.strictSame(stage.status.notReady(), [], say)
    await stage.stop()
  }
})

t.test('of three members one never answers: the process that returns is held up for ten seconds in all', async (t) => {
  const stage = new Stage(t)
  const others = [
    cluster('tokyo', 3, '10.44.0.0/16', '244.2.0.0/16'),
    cluster('oslo', 4, '10.45.0.0/16', '244.3.0.0/16'),
  ]
  const ends = ['tokyo', 'oslo'].map((name, i) => endpoint(name, 'gw', 0, [`public 198.51.100.3${i}:4500`]))
  stage.put(PARIS, PARIS_GW, ...others, ...ends)
  for (const address of ['246.0.2.0', '246.0.3.0', '246.0.4.0']) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => stage.gateway()?.up === '3/3', 'all are up')
  change(stage, { 'sealane.io/drain': '' })
  await stage.until(() => drains(stage), 'it says that it goes')
  await stage.stop()
  stage.probes.alive.delete('246.0.4.0')
  await stage.wireguard.deleteDevice('sealane0')
  change(stage, {})
  stage.start()
  await stage.until(() => stage.gateway()?.up === '2/3', 'two are up again')
  t.ok(drains(stage))
  await stage.stop()
  stage.start()
  await stage.until(() => stage.gateway()?.up === '2/3', 'it dies in the middle, and is started once more')
  t.ok(drains(stage), 'and still says that it goes')
  const began = stage.clock.monotonic()
  await stage.until(() => !drains(stage), 'all may take it back')
  t.ok(stage.clock.monotonic() - began <= 10_200)
  t.strictSame(stage.status.notReady(), [])
})
