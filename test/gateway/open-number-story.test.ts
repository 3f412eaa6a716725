/** A node whose label leaves the number of its lane open; everything but its own gateway is a fake. */
import { readdirSync } from 'node:fs'
import t, { type Test } from 'tap'
import { ANNOTATION_HANDOVER, laneLeaseName } from '../../model/lanes/lane-servers.ts'
import { connectionsTo, gatewayObject } from '../support/objects/node-objects.ts'
import { PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { KernelError } from '../../kernel/errors.ts'
import { node } from './support/worlds.ts'

/** Another node holds the lane with this number. `offer` is the node that it offers the lane to. */
async function holds(stage: Stage, lane: number, holder: string, offer?: string): Promise<void> {
  const name = laneLeaseName(lane)
  const stored = await stage.leases.read(name)
  const annotations: Record<string, string> = offer === undefined ? {} : { [ANNOTATION_HANDOVER]: offer }
  const metadata = { ...(stored?.metadata ?? { name, namespace: 'sealane-system' }), annotations }
  const spec = { holderIdentity: holder, leaseDurationSeconds: 15, renewTime: String(stage.clock.now()) }
  await stage.leases.write({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec })
}

function reports(stage: Stage, name: string, lane: number): void {
  const lanes = [{ lane, device: 'sealane0', mtu: 1420, driver: 'wireguard-kernel' }]
  const connections = connectionsTo({ paris: 'up' }).map((one) => ({ ...one, lane }))
  stage.put(gatewayObject(name, { lanes, connections }))
}

function started(t: Test): Stage {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  for (const [name, address] of [
    ['one', '192.0.2.11'],
    ['two', '192.0.2.12'],
  ] as const) {
    const { metadata, ...rest } = node(name, address)
    stage.put({ ...rest, metadata: { ...metadata, labels: { 'sealane.io/gateway': 'true' } } })
  }
  stage.label('true')
  return stage
}

/** Stops the gateway. A lane of user space is offered to a standby first, and there is none here. */
async function stopped(stage: Stage): Promise<void> {
  let ended = false
  void stage.stop().then(() => (ended = true))
  await stage.until(() => ended, 'ended')
}

const lanesOf = (stage: Stage): number[] => stage.gateway()?.lanes.map(({ lane }) => lane) ?? []
const endpoints = (stage: Stage): string[] =>
  stage.objects
    .cache('Endpoint')
    .list()
    .filter(({ spec }) => spec.cluster === 'milano')
    .map(({ metadata }) => metadata.name)

t.test('stands by for all numbers, serves one, gives it away, serves another', async (t) => {
  const stage = started(t)
  await holds(stage, 0, 'one')
  await holds(stage, 1, 'two')
  stage.startLabelled()
  await stage.until(() => stage.status.notReady().length === 0, 'ready')
  await stage.passSlowly(3000)
  t.equal(stage.kernel(), stage.before, 'nothing of a lane is here')
  t.strictSame(endpoints(stage), [])

  await holds(stage, 1, 'two', 'the node is cordoned')
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves')
  t.equal(stage.leases.get(laneLeaseName(1))?.spec?.holderIdentity, 'gw')
  t.strictSame(endpoints(stage), ['milano.gw-lane1'])
  t.strictSame(lanesOf(stage), [1])
  t.strictSame(
    readdirSync(stage.stateDir).filter((name) => name.startsWith('lane')),
    ['lane1.key'],
  )

  await holds(stage, 1, 'two')
  reports(stage, 'two', 1)
  await stage.until(() => stage.objects.get('Gateway', 'gw') === undefined, 'another node has it')
  await stage.until(() => stage.kernel() === stage.before, 'and nothing of it is left here')
  t.strictSame(endpoints(stage), [])
  t.strictSame(stage.status.notReady(), [], 'it stands by')

  await holds(stage, 0, '')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves the other one')
  t.strictSame(endpoints(stage), ['milano.gw-lane0'])
  t.strictSame(lanesOf(stage), [0])
  await stopped(stage)
  t.strictSame(endpoints(stage), ['milano.gw-lane0'], 'a process that ends leaves what its kernel carries')
})

t.test('a process that starts anew goes on with the number that the node holds', async (t) => {
  const stage = started(t)
  await holds(stage, 0, 'one')
  await holds(stage, 1, 'gw')
  stage.probes.alive.add('246.0.2.0')
  stage.startLabelled()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves')
  t.strictSame(lanesOf(stage), [1])
  await stopped(stage)
  const kernel = stage.kernel()
  stage.startLabelled()
  await stage.passSlowly(3000)
  t.equal(stage.kernel(), kernel)
  t.strictSame(endpoints(stage), ['milano.gw-lane1'])
  await stopped(stage)
})

t.test('a label that comes to leave the number open, or to say it, changes nothing where it is the same', async (t) => {
  const stage = started(t)
  await holds(stage, 1, 'one')
  stage.label('0')
  stage.probes.alive.add('246.0.2.0')
  stage.startLabelled()
  // Until a far gateway answers, this one calls it at each of its addresses in turn.
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves')
  const before = stage.kernel()
  for (const label of ['true', '', '0']) {
    stage.label(label)
    await stage.passSlowly(5000)
    t.equal(stage.kernel(), before, `label "${label}"`)
    t.equal(stage.leases.get(laneLeaseName(0))?.spec?.holderIdentity, 'gw')
    t.equal(stage.leases.get(laneLeaseName(0))?.spec?.leaseTransitions, 0)
  }
  stage.label('1')
  await stage.until(() => stage.gateway() === undefined && endpoints(stage).length === 0, "lane 1 is another node's")
  await stopped(stage)
})

t.test('who holds the numbers is not known: what is there stays, and nothing new is made', async (t) => {
  const stage = started(t)
  stage.leases.read = () => Promise.reject(new Error('connection refused'))
  stage.startLabelled()
  await stage.passSlowly(3000)
  t.equal(stage.kernel(), stage.before)
  t.strictSame(endpoints(stage), [])
  t.match(stage.status.notReady().join(), 'the holder of the lanes is unknown: connection refused')
  await stopped(stage)
})

const TAKEN = 'UDP port 4500 is taken by dnsmasq (process 812)'

/**
 * Another program has the port of the first device, which exists all the same. Returns the function that frees the
 * port.
 */
function taken(stage: Stage): () => void {
  const sync = stage.wireguard.sync.bind(stage.wireguard)
  stage.wireguard.sync = () => Promise.reject(new KernelError('EADDRINUSE', 'wg set sealane0', TAKEN))
  return () => (stage.wireguard.sync = sync)
}

const offered = (stage: Stage): string | undefined =>
  stage.leases.get(laneLeaseName(0))?.metadata.annotations?.[ANNOTATION_HANDOVER]
const unmade = (stage: Stage): string[] =>
  stage.objects.events.flatMap(({ reason, note }) => (reason === 'LaneNotMade' ? [note] : []))

t.test('a node whose port another program has gives its lane to one that stands by', async (t) => {
  const stage = started(t)
  taken(stage)
  await holds(stage, 0, 'gw')
  await holds(stage, 1, 'two')
  stage.startLabelled()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'it cannot be made')
  t.match(stage.gateway()?.failure, TAKEN)
  await stage.passSlowly(5000)
  t.equal(offered(stage), undefined, 'the program may be about to end')
  await stage.until(() => offered(stage) !== undefined, 'offered')
  t.match(offered(stage), TAKEN, 'and says why')
  await holds(stage, 0, 'one')
  reports(stage, 'one', 0)
  await stage.until(() => stage.status.notReady().length === 0, 'it stands by')
  // This is less than the duration of the Lease, which no process renews here.
  await stage.passSlowly(12_000)
  t.equal(stage.leases.get(laneLeaseName(0))?.spec?.holderIdentity, 'one', 'and takes nothing back')
  t.equal(stage.kernel(), stage.before)
  t.strictSame(unmade(stage).length, 1)
  t.match(unmade(stage)[0], `${TAKEN}; a standby node takes it over`)
  await holds(stage, 0, 'one', 'it cannot make it either')
  await stage.passSlowly(30_000)
  t.equal(stage.leases.get(laneLeaseName(0))?.spec?.holderIdentity, 'one', 'it is not passed to and fro')
  await stopped(stage)
})

t.test('where nobody stands by it keeps the lane, says so, and serves once the port is free', async (t) => {
  const stage = started(t)
  const release = taken(stage)
  await holds(stage, 0, 'gw')
  await holds(stage, 1, 'two')
  stage.objects.drop('Node', 'one')
  stage.startLabelled()
  await stage.until(() => unmade(stage).length > 0, 'told')
  t.match(unmade(stage), [`lane 0: the lane cannot be set up: wg set sealane0: ${TAKEN}; no other node is on standby`])
  await stage.passSlowly(10_000)
  t.equal(offered(stage), undefined)
  t.equal(stage.leases.get(laneLeaseName(0))?.spec?.holderIdentity, 'gw')
  release()
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'it serves')
  t.equal(unmade(stage).length, 1, 'told once')
  await stopped(stage)
})
