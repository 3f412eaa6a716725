/** A standby node that takes a lane and hands it over; everything but its own gateway is a fake. */
import { existsSync, readdirSync } from 'node:fs'
import t, { type Test } from 'tap'
import { ANNOTATION_HANDOVER } from '../../model/lanes/lane-servers.ts'
import type { Node } from '../../model/objects.ts'
import { connectionsTo, gatewayObject } from '../support/objects/node-objects.ts'
import { PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { node } from './support/worlds.ts'

const LEASE = 'sealane-lane-0'

/** Another node with the same label holds the lane, or takes it. */
async function otherHolds(stage: Stage, offer?: string): Promise<void> {
  const stored = await stage.leases.read(LEASE)
  const annotations: Record<string, string> = offer === undefined ? {} : { [ANNOTATION_HANDOVER]: offer }
  const metadata = { ...(stored?.metadata ?? { name: LEASE, namespace: 'sealane-system' }), annotations }
  const spec = { holderIdentity: 'other', leaseDurationSeconds: 15, renewTime: String(stage.clock.now()) }
  await stage.leases.write({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec })
}

function otherReports(stage: Stage, state: 'connecting' | 'up'): void {
  const lanes = [{ lane: 0, device: 'sealane0', mtu: 1420, driver: 'wireguard-kernel' }]
  stage.put(gatewayObject('other', { lanes, connections: connectionsTo({ paris: state }) }))
}

function started(t: Test): Stage {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  const { metadata, ...rest } = node('other', '192.0.2.11')
  stage.put({ ...rest, metadata: { ...metadata, labels: { 'sealane.io/gateway': '0' } } })
  stage.label('0')
  return stage
}

const toParis = (stage: Stage): string[] => stage.routed().filter((line) => line.includes('244.1.0.0/16'))

function isBare(t: Test, stage: Stage): void {
  t.equal(stage.kernel(), stage.before, 'the kernel is as it was')
  t.strictSame(existsSync(stage.stateDir) ? readdirSync(stage.stateDir) : [], [], 'no key, no marker')
  t.equal(stage.ownEndpoint(), undefined)
  t.equal(stage.objects.get('Gateway', 'gw'), undefined)
}

t.test('stands by, takes the lane, hands it over', async (t) => {
  const stage = started(t)
  await otherHolds(stage)
  stage.startLabelled()
  await stage.until(() => stage.status.notReady().length === 0, 'ready')
  await stage.passSlowly(1000)
  isBare(t, stage)

  await otherHolds(stage, 'the node is cordoned')
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves')
  t.equal(stage.leases.get(LEASE)?.spec?.holderIdentity, 'gw')
  t.equal(stage.leases.get(LEASE)?.metadata.annotations?.[ANNOTATION_HANDOVER], undefined)
  await stage.until(() => toParis(stage).length === 1, 'and routes')

  cordon(stage, true)
  const offer = (): string | undefined => stage.leases.get(LEASE)?.metadata.annotations?.[ANNOTATION_HANDOVER]
  await stage.until(() => offer() === 'the node is cordoned', 'offered')
  t.equal(stage.leases.get(LEASE)?.spec?.holderIdentity, 'gw', 'and still held')
  await otherHolds(stage)
  otherReports(stage, 'connecting')
  await stage.passSlowly(10_000)
  t.equal(toParis(stage).length, 1, 'it goes on until the other is up')
  t.ok(stage.ownEndpoint(), 'and the other clusters know it')
  otherReports(stage, 'up')
  await stage.until(() => toParis(stage).length === 0, 'its own lane is used no more')
  t.ok(stage.ownEndpoint(), 'but there, for what is on its way')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
  await stage.until(() => stage.objects.get('Gateway', 'gw') === undefined, 'gone')
  isBare(t, stage)
  cordon(stage, false)
  await stage.passSlowly(3000)
  isBare(t, stage)
  t.strictSame(stage.status.notReady(), [], 'it stands by')
  await stage.stop()
})

t.test('the process ends on a lane of user space: another node has it first', async (t) => {
  const stage = started(t)
  stage.probes.alive.add('246.0.2.0')
  stage.startLabelled()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves', 100)
  let ended = false
  const end = stage.stop().then(() => (ended = true))
  const offer = (): string | undefined => stage.leases.get(LEASE)?.metadata.annotations?.[ANNOTATION_HANDOVER]
  await stage.until(() => offer()?.startsWith('user space WireGuard') === true, 'offered')
  await otherHolds(stage)
  await stage.passSlowly(1000)
  t.equal(toParis(stage).length, 1, 'it goes on meanwhile')
  t.equal(ended, false)
  otherReports(stage, 'up')
  await stage.until(() => ended, 'ended')
  await end
})

t.test('who holds it is not known: what is there stays, and nothing new is made', async (t) => {
  const stage = started(t)
  stage.leases.read = () => Promise.reject(new Error('connection refused'))
  stage.startLabelled()
  await stage.passSlowly(3000)
  t.equal(stage.kernel(), stage.before)
  t.equal(stage.ownEndpoint(), undefined)
  t.match(stage.status.notReady().join(), 'the holder of lane 0 is unknown: connection refused')
})

function cordon(stage: Stage, unschedulable: boolean): void {
  const own = stage.node() as Node
  stage.put({ ...own, spec: { ...own.spec, unschedulable } })
}
