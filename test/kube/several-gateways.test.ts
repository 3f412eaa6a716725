/**
 * What a join makes where nobody says how many: two gateways that are active at once. One is drained, both are restarted,
 * and the machine of one is lost, while two other clusters call a hundred times a second. No Lease has to lapse for it.
 */
import t, { type Test } from 'tap'
import {
  CONDITION_DRAINED,
  CONDITION_GATEWAYS_REDUNDANT,
  findCondition,
  isConditionTrue,
} from '../../model/conditions.ts'
import { LABEL_DRAIN } from '../../model/lanes/gateway-node.ts'
import type { Cluster, Gateway, Node } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import type { Site } from './support/callers.ts'
import {
  type GatewayWorld,
  gateways,
  lossOf,
  restartGateways,
  startGatewayWorld,
  upLanes,
} from './support/gateway-world.ts'
import type { KubeObject } from './support/kube-request.ts'
import { refusedByApiServer } from './support/pod-logs.ts'
import type { RapidReport } from './support/rapid-calls.ts'
import { sealane } from './support/sealane-command.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'

t.setTimeout(600_000)

const GATEWAYS = ['c2n1', 'c2n2']
/** The API server is on the first node, and must be there for the others. */
const LOST = 'c2n2'
/** A Lease lapses after 15 s. How long it really takes is measured in bench/failover.ts. */
const NO_LEASE_MS = 10_000

t.test('two gateways at once', { skip: kubeletMissing() ?? false, timeout: 600_000 }, async (t) => {
  const world = await startGatewayWorld(t)
  await t.test('both serve', (t) => bothServe(t, world))
  await t.test('one is drained, and given back; each twice', (t) => drained(t, world))
  await t.test('both are restarted, one after the other', async (t) => {
    await restartGateways(world.c2, GATEWAYS)
    await untilBoth(world.c2)
    noLeaseLapsed(t, await lossOf(t, world, 'restarted'))
  })
  await t.test('the machine of one is lost, and comes back', (t) => lost(t, world))
  for (const calls of world.calls) await calls.stop()
  t.strictSame(await refusedByApiServer(world.c2.api, 'sealane-system'), [], 'nothing was refused')
})

async function untilBoth(site: Site): Promise<void> {
  const links = async (): Promise<number[]> => Promise.all(GATEWAYS.map((node) => upLanes(site, node)))
  await eventually(async () => (await links()).every((up) => up === 2), {
    deadlineMs: 90_000,
    say: `both are up to both: ${String(await links())}`,
  })
}

async function bothServe(t: Test, world: GatewayWorld): Promise<void> {
  const { c2, c3 } = world
  await untilBoth(c2)
  t.equal(await gateways(c2), GATEWAYS.join(' '))
  const labelled = await c2.api.list<Node & KubeObject>('/api/v1/nodes?labelSelector=sealane.io%2Fgateway%3Dtrue')
  t.strictSame(labelled.map(({ metadata }) => metadata.name).sort(), GATEWAYS, 'nobody named a lane')
  const redundant = async ({ api }: Site, of: string): Promise<boolean> => {
    const cluster = await api.get<Cluster & KubeObject>(`/apis/sealane.io/v1alpha1/clusters/${of}`)
    return isConditionTrue(cluster.status?.conditions, CONDITION_GATEWAYS_REDUNDANT)
  }
  await eventually(() => redundant(c2, 'c3'), { deadlineMs: 30_000, say: 'c2 says that a gateway may go' })
  t.notOk(await redundant(c3, 'c2'), 'c3, which has one, does not')
  await lossOf(t, world, 'at first')
}

async function drained(t: Test, world: GatewayWorld): Promise<void> {
  const { c2 } = world
  const command = async (what: 'drain' | 'undrain', ...flags: string[]): Promise<string> =>
    (await sealane(['gateway', what, LOST, '--kubeconfig', c2.kubeconfig, ...flags])).stdout
  for (const time of ['first', 'second']) {
    t.match(await command('drain', '--timeout', '120s'), `nothing flows over ${LOST} any more`, `drain, ${time} time`)
  }
  t.equal(await upLanes(c2, LOST), 2, 'its links stay')
  const node = await c2.api.get<Node & KubeObject>(`/api/v1/nodes/${LOST}`)
  t.equal(node.metadata.labels?.[LABEL_DRAIN], 'true')
  noLeaseLapsed(t, await lossOf(t, world, 'drained by the command'))
  t.match(await command('undrain'), 'takes traffic again')
  t.match(await command('undrain'), 'is not drained', 'a second time')
  const drains = async (): Promise<boolean> => {
    const gateway = await c2.api.get<Gateway & KubeObject>(`/apis/sealane.io/v1alpha1/gateways/${LOST}`)
    return findCondition(gateway.status?.conditions, CONDITION_DRAINED) !== undefined
  }
  await eventually(async () => !(await drains()), { deadlineMs: 30_000, say: 'it is drained no more' })
  noLeaseLapsed(t, await lossOf(t, world, 'given back'))
}

async function lost(t: Test, world: GatewayWorld): Promise<void> {
  const { underlay, c2, nodes } = world
  const node = nodes.find(({ name }) => name === LOST)
  underlay.plug(LOST, false)
  await node?.kubelet.kill()
  for (const say of ['lost', 'without it']) noLeaseLapsed(t, await lossOf(t, world, say))
  underlay.plug(LOST, true)
  node?.kubelet.start()
  await node?.ready()
  await untilBoth(c2)
  noLeaseLapsed(t, await lossOf(t, world, 'back'))
}

function noLeaseLapsed(t: Test, reports: readonly RapidReport[]): void {
  for (const { calls, longestGapMs } of reports) {
    t.ok(calls > 50 && longestGapMs < NO_LEASE_MS, `${calls} calls, the longest gap was ${longestGapMs} ms`)
  }
}
