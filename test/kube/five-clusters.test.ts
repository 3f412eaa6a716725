/**
 * Five equal clusters: each calls a service that each exports, by name. First the broker is on one of them, behind a
 * NodePort; then it is on a cluster that is no member, behind a load balancer; finally three of them use it behind a
 * ClusterIP. One cluster is behind address translation, and two pairs have the same pod ranges.
 */
import { execFileSync } from 'node:child_process'
import t, { type Test } from 'tap'
import type { Endpoint, Gateway, Membership } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Site, helloDeployment, helloService, inRequestPod, openNamespace, readyPods } from './support/callers.ts'
import { type Say, createToken, deployBroker, joinCluster, leaveClusterset } from './support/joined-clusters.ts'
import { balanceLoad } from './support/load-balancer.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { exportService } from './support/service-imports.ts'
import { type ClusterRow, type TestCluster, startClusters } from './support/two-clusters.ts'
import { policyStory } from './traffic/policy-stories.ts'

t.setTimeout(1_200_000)

/** The nodes are 192.0.2.11, 21, 31 and so on; that of c5 is 10.77.0.51, and its router 192.0.2.59. */
const ROWS: readonly ClusterRow[] = [
  { name: 'c1', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16', nodes: ['c1n1'] },
  { name: 'c2', podCIDR: '10.42.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c2n1'] },
  { name: 'c3', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c3n1'] },
  { name: 'c4', podCIDR: '10.52.0.0/16', serviceCIDR: '10.54.0.0/16', nodes: ['c4n1'] },
  { name: 'c5', podCIDR: '10.62.0.0/16', serviceCIDR: '10.53.0.0/16', nodes: ['c5n1'], behindNat: true },
  { name: 'c6', podCIDR: '10.72.0.0/16', serviceCIDR: '10.73.0.0/16', nodes: ['c6n1'] },
]

const BROKER = 'sealane-broker'
const BALANCER = '192.0.2.200'
const OURS = '/apis/sealane.io/v1alpha1'

/** The reports if the broker cannot see the callers' addresses: their own addresses, and nothing else. */
const AT_HOME = {
  c1: 'seen as nothing that counts; private 192.0.2.11',
  c2: 'seen as nothing that counts; private 192.0.2.21',
  c3: 'seen as nothing that counts; private 192.0.2.31',
  c4: 'seen as nothing that counts; private 192.0.2.41',
  c5: 'seen as nothing that counts; private 10.77.0.51',
}

interface World {
  readonly directory: string
  readonly clusters: ReadonlyMap<string, TestCluster>
  readonly say: Say
}

t.test('five clusters', { skip: kubeletMissing() ?? false, timeout: 1_200_000 }, async (t) => {
  const directory = temporaryFolder(t)
  const clusters = await startClusters({ directory, rows: ROWS })
  t.teardown(() => clusters.stop())
  const world = { directory, clusters: new Map(clusters.clusters.map((cluster) => [cluster.row.name, cluster])) }
  await Promise.all(clusters.clusters.map(openCluster))
  const parts = [
    ['NodePort, and the hub is a member', nodePort],
    ['traffic policies', policies],
    ['LoadBalancer, and the hub is no member', loadBalancer],
    ['LoadBalancer that hides who calls', hidingBalancer],
    ['ClusterIP, where its range is routed', clusterIp],
  ] as const
  for (const [name, part] of parts) await t.test(name, (t) => part(t, { ...world, say: sayer(t) }))
})

function sayer(t: Test): Say {
  const began = performance.now()
  return (line) => t.comment(`${((performance.now() - began) / 1000).toFixed(1)} s: ${line}`)
}

/**
 * kube-proxy replaces every caller's address by that of the hub's bridge: no member is reported as behind NAT, and all
 * can be called.
 */
async function nodePort(t: Test, world: World): Promise<void> {
  const names = ['c1', 'c2', 'c3', 'c4', 'c5']
  await deployBroker(of(world, 'c1'), ['--service-type', 'NodePort'], world.say)
  await joinAll(world, names)
  await mesh(t, world, names)
  t.strictSame(await reported(world, names), AT_HOME)
  t.match(await usedAddress(world, 'c1', 'c5'), /^192\.0\.2\.59:\d+ through NAT$/, 'c5 is where it called from')
  t.equal(await usedAddress(world, 'c5', 'c1'), '192.0.2.11:4500')
}

async function policies(t: Test, world: World): Promise<void> {
  const hub = of(world, 'c1')
  await policyStory(t, {
    hub: hub.plane.kubeconfig,
    c1: siteOf(hub),
    exporters: ['c2', 'c3', 'c4'].map((name) => siteOf(of(world, name))),
    netnsOf: (name) => of(world, name).nodes[0]?.netns ?? '',
    say: world.say,
  })
}

/** The broker sees the callers' addresses: c5 is behind NAT, and the others are not. */
async function loadBalancer(t: Test, world: World): Promise<void> {
  const names = ['c2', 'c3', 'c4', 'c5', 'c6']
  await Promise.all(['c1', 'c5'].map((name) => leaveClusterset(of(world, name), world.say)))
  const hub = of(world, 'c1')
  const balancing = balanceLoad(hub, BROKER, BROKER, BALANCER)
  await Promise.all([balancing, deployBroker(hub, ['--service-type', 'LoadBalancer'], world.say)])
  await joinAll(world, ['c5', 'c6'])
  await mesh(t, world, names)
  t.match(await reported(world, names), {
    c5: 'seen as 192.0.2.59; private 10.77.0.51, observed 192.0.2.59',
    c6: 'seen as 192.0.2.61; private 192.0.2.61',
  })
  t.match(await usedAddress(world, 'c2', 'c5'), /^192\.0\.2\.59:\d+ through NAT$/)
  const exports = names.map((name) => of(world, name).plane.api.find(`${OURS}/clusters/c1`))
  t.strictSame(
    await Promise.all(exports),
    names.map(() => undefined),
    'the hub is nobody’s neighbour',
  )
}

async function hidingBalancer(t: Test, world: World): Promise<void> {
  const names = ['c2', 'c3', 'c4', 'c5', 'c6']
  const { api } = of(world, 'c1').plane
  await api.merge(`/api/v1/namespaces/${BROKER}/services/${BROKER}`, { spec: { externalTrafficPolicy: 'Cluster' } })
  await leaveClusterset(of(world, 'c6'), world.say)
  await joinAll(world, ['c6'])
  await mesh(t, world, names)
  t.match(await reported(world, names), { c6: 'seen as nothing that counts; private 192.0.2.61' })
}

/** Members reach a ClusterIP if their network routes the hub's Services to the hub. The others are cut off. */
async function clusterIp(t: Test, world: World): Promise<void> {
  const names = ['c1', 'c2', 'c5'] as const
  await Promise.all(['c2', 'c5'].map((name) => leaveClusterset(of(world, name), world.say)))
  const hub = of(world, 'c1')
  const service = await hub.plane.api.get<{ readonly spec: { readonly clusterIP: string } }>(
    `/api/v1/namespaces/${BROKER}/services/${BROKER}`,
  )
  const advertise = `${service.spec.clusterIP}:7443`
  for (const name of names.slice(1)) routeToServices(of(world, name))
  await deployBroker(hub, ['--service-type', 'ClusterIP', '--advertise', advertise], world.say)
  await joinAll(world, names)
  await mesh(t, world, names)
  t.strictSame(await reported(world, names), Object.fromEntries(names.map((name) => [name, AT_HOME[name]])))
  t.match(await usedAddress(world, 'c1', 'c5'), /^192\.0\.2\.59:\d+ through NAT$/)
}

/** The first node of the hub accepts packets to its Services; a cluster behind a router has its route there. */
function routeToServices({ row, nodes }: TestCluster): void {
  for (const { name, netns } of nodes) {
    const from = row.behindNat === true ? `${netns.slice(0, -name.length)}nat-${name}` : netns
    ip('-n', from, 'route', 'replace', '10.43.0.0/16', 'via', '192.0.2.11')
  }
}

function of({ clusters }: World, name: string): TestCluster {
  const found = clusters.get(name)
  if (found === undefined) throw new Error(`no cluster ${name}`)
  return found
}

function siteOf({ row, plane }: TestCluster): Site {
  return { name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }
}

async function openCluster(cluster: TestCluster): Promise<void> {
  const site = siteOf(cluster)
  await openNamespace(site, 'demo', helloDeployment(site.name))
  await site.api.apply(`/api/v1/namespaces/demo/services/at-${site.name}`, helloService(`at-${site.name}`))
  await readyPods(site, 'demo', 2)
}

/** Joins all clusters at once, in any order. */
async function joinAll(world: World, names: readonly string[]): Promise<void> {
  const tokenFile = await createToken(of(world, 'c1'), world.directory, names.length)
  await Promise.all(names.map((name) => joinCluster(of(world, name), tokenFile, world.say)))
  await Promise.all(names.map((name) => exportService(siteOf(of(world, name)), 'demo', `at-${name}`)))
}

/** Each cluster calls each, including itself; the rows show which cluster answered. */
async function mesh(t: Test, world: World, names: readonly string[]): Promise<void> {
  const rows = new Map<string, readonly string[]>()
  const call = async (from: string): Promise<readonly string[]> => {
    const once = (to: string): string =>
      `answer=$(nc -4 -w 2 at-${to}.demo.svc.clusterset.local 42 < /dev/null 2> /dev/null); echo "\${answer:-nobody}"`
    const output = await inRequestPod(siteOf(of(world, from)), 'demo', names.map(once).join('; '))
    const answers = output.trim().split('\n')
    rows.set(from, answers)
    return answers
  }
  const whole = async (from: string): Promise<boolean> => (await call(from)).join() === names.join()
  await Promise.allSettled(
    names.map((from) =>
      eventually(() => whole(from), { deadlineMs: 120_000, intervalMs: 500, say: `${from} calls all` }),
    ),
  )
  world.say('who answered (rows call, columns are called)')
  t.comment(`   | ${names.join(' | ')}`)
  for (const from of names) t.comment(`${from} | ${(rows.get(from) ?? []).join(' | ')}`)
  t.strictSame(Object.fromEntries(rows), Object.fromEntries(names.map((from) => [from, names])), 'all reach each other')
}

/** For each cluster, what the broker concluded about its address, and the candidates that it publishes. */
async function reported(world: World, names: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const lines = names.map(async (name): Promise<[string, string]> => {
    const { api } = of(world, name).plane
    const { spec } = await api.get<Membership>(`${OURS}/memberships/self`)
    const endpoints = await api.list<Endpoint>(`${OURS}/endpoints`)
    const own = endpoints.filter((one) => one.spec.cluster === name).flatMap((one) => one.spec.candidates)
    const seen = spec.observedAddress ?? 'nothing that counts'
    return [name, `seen as ${seen}; ${own.map(({ kind, address }) => `${kind} ${address}`).join(', ')}`]
  })
  return Object.fromEntries(await Promise.all(lines))
}

async function usedAddress(world: World, from: string, to: string): Promise<string> {
  const [gateway] = await of(world, from).plane.api.list<Gateway>(`${OURS}/gateways`)
  const connection = gateway?.status?.connections.find(({ cluster }) => cluster === to)
  return `${connection?.usingAddress ?? 'none'}${connection?.usingNat === true ? ' through NAT' : ''}`
}

function ip(...args: readonly string[]): void {
  execFileSync('ip', args)
}
