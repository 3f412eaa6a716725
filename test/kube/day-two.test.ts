/**
 * Operation after the join, on three equal clusters; the addresses of two overlap. While one of them is disturbed, the
 * others call each other, and lose nothing. The stories follow each other in one world.
 */
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import {
  callers,
  helloDeployment,
  helloService,
  inRequestPod,
  onNode,
  openForCalls,
  readyPods,
} from './support/callers.ts'
import { newIdentity, stateLost } from './support/broker-stories.ts'
import type { Json } from './support/kube-request.ts'
import { addNode } from './support/late-node.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { lastWords, refusedByApiServer } from './support/pod-logs.ts'
import { sealane, startSealane } from './support/sealane-command.ts'
import { awaitImport, exportService, findImport, unexportService } from './support/service-imports.ts'
import {
  type Member,
  type Three,
  allReachAll,
  deployBroker,
  hostOf,
  joinMember,
  joinWords,
  keepCalling,
  nothingLost,
  serviceOf,
  startThree,
} from './support/three-members.ts'

t.setTimeout(1_500_000)

const OURS = '/apis/sealane.io/v1alpha1'
/** With this heartbeat, an outage of AWAY_MS lasts as many heartbeats as half a minute does by default. */
const ENVIRONMENT = { SEALANE_HEARTBEAT: '2s' }
const AWAY_MS = 12_000

t.test('three clusters, the day after', { skip: kubeletMissing() ?? false, timeout: 1_500_000 }, async (t) => {
  const three = await startThree(temporaryFolder(t), ENVIRONMENT)
  t.teardown(() => three.clusters.stop())
  const { hub, c1, c2 } = three
  await deployBroker(three)
  for (const member of [hub, c1]) await joinMember(three, member)
  await allReachAll([hub, c1])
  await t.test('the third joins while two call each other', (t) => thirdJoins(t, three))
  await t.test('a node comes to a member, and goes again', (t) => nodeComesAndGoes(t, three))
  await t.test('the API server of one is away', (t) => apiServerAway(t, three))
  await t.test('one leaves and joins again as the same while the broker restarts', (t) => joinsAgain(t, three))
  await t.test('one gets a new identity', (t) => newIdentity(t, three))
  await t.test('the broker loses its database', (t) => stateLost(t, three))
  await nothingRefused(t, hub, c2)
})

async function thirdJoins(t: Test, three: Three): Promise<void> {
  const { hub, c1, c2 } = three
  const calls = await Promise.all([keepCalling(hub, c1), keepCalling(c1, hub)])
  const { stdout } = await joinMember(three, c2)
  await reachesAll(t, c2, stdout)
  await allReachAll([hub, c1, c2])
  await nothingLost(t, calls, [hub, c1], 'the two that were there lost nothing')
}

async function reachesAll(t: Test, { api }: Member, stdout: string): Promise<void> {
  const wanted = 'c2 has joined with gateway c2n1; it reaches c1, hub\n'
  const pods = stdout === wanted ? '' : await lastWords(api, 'sealane-system', 60)
  t.equal(stdout, wanted, 'it says whom it reaches', { pods })
}

/** Pods on the node call and are called; after the node has gone, its RouteAgent object is gone too. */
async function nodeComesAndGoes(t: Test, three: Three): Promise<void> {
  const { hub, c1, c2, clusters, directory } = three
  const calls = await Promise.all([keepCalling(hub, c1, c2), keepCalling(c2, c1)])
  const late = { clusters, cluster: c1.cluster, name: 'c1n2', address: '192.0.2.29', directory }
  const node = await addNode(late)
  await openForCalls(c1, 'late', node.name)
  await c1.api.apply('/apis/apps/v1/namespaces/demo/deployments/late', lateDeployment(node.name))
  await c1.api.apply('/api/v1/namespaces/demo/services/late', helloService('late', { selector: { app: 'late' } }))
  await exportService(c1, 'demo', 'late')
  await readyPods(c1, 'late', 1)
  await eventually(async () => (await routeagents(c1)).includes(node.name), {
    deadlineMs: 60_000,
    say: `${node.name} has a routeagent`,
  })
  for (const { name } of [hub, c1, c2]) await answers({ ...c1, name: 'c1' }, 'late', serviceOf({ name }), name)
  for (const from of [hub, c2, c1]) await answers(from, 'demo', 'late', 'late')
  t.pass('its pods call all, and all call its pods')
  // This is checked now, because an API server that has just started refuses requests until it has read the rules.
  await nothingRefused(t, c1)

  await unexportService(c1, 'demo', 'late')
  await c1.api.delete('/apis/apps/v1/namespaces/demo/deployments/late')
  await c1.api.delete('/api/v1/namespaces/late')
  await eventually(async () => (await c1.api.find('/api/v1/namespaces/late')) === undefined, {
    deadlineMs: 60_000,
    say: 'the node is drained',
  })
  await node.remove()
  await eventually(async () => !(await routeagents(c1)).includes(node.name), {
    deadlineMs: 60_000,
    intervalMs: 200,
    say: `the routeagent of ${node.name} is gone`,
  })
  t.strictSame(await routeagents(c1), ['c1n1'], 'what its routeagent told is gone with it')
  t.equal(await findImport(hub, 'demo', 'late'), undefined)
  await nothingLost(t, calls, [hub, c1, c2], 'nobody else noticed')
}

function lateDeployment(node: string): Json {
  const { spec, ...rest } = helloDeployment('late') as { spec: { template: Json } } & Json
  const labels = { app: 'late' }
  const template = onNode({ ...spec.template, metadata: { labels } }, node)
  return { ...rest, metadata: { name: 'late' }, spec: { ...spec, selector: { matchLabels: labels }, template } }
}

async function answers(from: Member, namespace: string, service: string, who: string): Promise<void> {
  const call = { namespace, host: hostOf(service), times: 1 }
  await eventually(async () => (await callers(from, call)) === who, {
    deadlineMs: 60_000,
    intervalMs: 200,
    say: `${service} answers ${namespace} of ${from.name}`,
  })
}

async function routeagents({ api }: Member): Promise<readonly string[]> {
  return (await api.list(`${OURS}/routeagents`)).map(({ metadata }) => metadata.name).sort()
}

/**
 * The pods of c1 call and are called; the others keep exporting, and c1 gets these exports when its API server is back.
 */
async function apiServerAway(t: Test, { hub, c1, c2 }: Three): Promise<void> {
  const calls = await Promise.all([keepCalling(hub, c1, c2), keepCalling(c1, hub, c2), keepCalling(c2, hub, c1)])
  const [, fromC1] = calls
  await exportNew(hub, 'old')
  for (const member of [c1, c2]) await awaitImport(member, 'demo', 'old')
  const before = await fromC1.answered()
  const { plane } = c1.cluster
  // A controller manager that elects a leader also ends if it cannot renew its Lease. One that stays follows the Leases
  // of nodes again only up to half a minute later, and meanwhile treats the nodes as lost and their pods as not ready.
  for (const program of ['kube-apiserver', 'kube-controller-manager'] as const) await plane.kill(program)
  const back = performance.now() + AWAY_MS
  await exportNew(hub, 'news')
  await awaitImport(c2, 'demo', 'news')
  await answers(c2, 'demo', 'news', 'hub')
  await unexportService(hub, 'demo', 'old')
  await eventually(async () => (await findImport(c2, 'demo', 'old')) === undefined, {
    deadlineMs: 20_000,
    say: 'c2 hears that the other one is withdrawn',
  })
  await eventually(() => performance.now() > back, { deadlineMs: 2 * AWAY_MS, intervalMs: 500, say: 'it was away' })
  for (const program of ['kube-apiserver', 'kube-controller-manager'] as const) await plane.restart(program)
  t.ok((await fromC1.answered()) > before, 'its pods went on calling')
  await answers(c1, 'demo', 'news', 'hub')
  await eventually(async () => (await findImport(c1, 'demo', 'old')) === undefined, {
    deadlineMs: 20_000,
    say: 'c1 hears it too, once it can',
  })
  await allReachAll([hub, c1, c2])
  await nothingLost(t, calls, [hub, c1, c2], 'nothing was lost, in it and elsewhere')
}

async function exportNew(member: Member, service: string): Promise<void> {
  await member.api.apply(`/api/v1/namespaces/demo/services/${service}`, helloService(service))
  await exportService(member, 'demo', service)
}

/** c2 leaves and joins again: its new agent finds the broker dead at its first call, and everything else as it was. */
async function joinsAgain(t: Test, three: Three): Promise<void> {
  const { hub, c1, c2 } = three
  const calls = await Promise.all([keepCalling(hub, c1), keepCalling(c1, hub)])
  t.ok(await knows(hub, c2), 'the hub knows it')
  await sealane(['leave', ...c2.at, '--yes'])
  for (const member of [hub, c1]) {
    await eventually(async () => !(await knows(member, c2)), {
      deadlineMs: 30_000,
      say: `${member.name} knows no c2 any more`,
    })
  }
  const said = await inRequestPod(hub, 'demo', `dig +tries=1 A ${hostOf(serviceOf(c2))}`)
  t.match(said, /status: NXDOMAIN/, 'nor its name')

  const joining = startSealane(await joinWords(three, c2))
  await eventually(() => joining.said().includes('Deployment sealane-system/sealane-agent'), {
    deadlineMs: 60_000,
    intervalMs: 5,
    say: 'its agent is made',
  })
  await hub.api.raw('DELETE', '/api/v1/namespaces/sealane-broker/pods/sealane-broker-0?gracePeriodSeconds=0')
  const { code, stdout, stderr } = await joining.result
  t.equal(code, 0, stderr)
  await reachesAll(t, c2, stdout)
  await exportService(c2, 'demo', serviceOf(c2))
  await allReachAll([hub, c1, c2])
  await nothingLost(t, calls, [hub, c1], 'the others lost nothing')
}

async function knows({ api }: Member, { name }: Member): Promise<boolean> {
  return (await api.find(`${OURS}/clusters/${name}`)) !== undefined
}

async function nothingRefused(t: Test, ...members: readonly Member[]): Promise<void> {
  for (const { api, name } of members) {
    t.strictSame(await refusedByApiServer(api, 'sealane-system'), [], `${name}: no part was refused anything`)
  }
}
