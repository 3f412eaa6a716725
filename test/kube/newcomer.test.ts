/**
 * A newcomer joins four clusters of four shapes with the commands of README.md, typed at a terminal: from nothing to the
 * first call with at most three commands and a minute of waiting for each cluster. All clusters have the same IPv4
 * ranges; one has IPv6 too, one has a single node, and one has a virtual node beside its machine.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { stringify } from 'yaml'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import { eventually } from '../support/eventually.ts'
import { internalIps, nodeObject } from '../support/objects/node-objects.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Site, callers, helloDeployment, helloService, openNamespace, readyPods } from './support/callers.ts'
import { CORE_DNS_PODS } from './support/core-dns-objects.ts'
import type { KubeObject } from './support/kube-request.ts'
import { mergeKubeconfigs } from './support/kubeconfig-file.ts'
import { balanceLoad } from './support/load-balancer.ts'
import { lastWords } from './support/pod-logs.ts'
import { type Terminal, typeLines } from './support/terminal.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { type ClusterRow, type TestCluster, startClusters } from './support/two-clusters.ts'

t.setTimeout(600_000)

const MOST_COMMANDS = 3
const MOST_WAITING_MS = 60_000
const VIRTUAL = 'virtual-node-aci-linux'

const SAME = { podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16' }
/** `hub` is the context of the broker's cluster in README.md, and `c1` that of a member. */
const ROWS: readonly (ClusterRow & { readonly shape: string })[] = [
  { name: 'hub', shape: 'equal CIDRs', ...SAME, nodes: ['hub-n1', 'hub-n2'] },
  {
    name: 'c1',
    shape: 'dual-stack',
    podCIDR: `${SAME.podCIDR},fd00:52::/48`,
    serviceCIDR: `${SAME.serviceCIDR},fd00:53::/112`,
    nodes: ['c1-n1', 'c1-n2'],
  },
  { name: 'c2', shape: 'one node', ...SAME, nodes: ['c2-n1'] },
  { name: 'c3', shape: 'virtual nodes', ...SAME, nodes: ['c3-n1'] },
]

t.test('four clusters, from nothing to the first call', { skip: kubeletMissing() ?? false }, async (t) => {
  const readme = readmeCommands()
  const directory = temporaryFolder(t)
  const { image } = DEFAULT_VALUES
  const clusters = await startClusters({ directory, rows: ROWS, imageName: `${image.repository}:${image.tag}` })
  t.teardown(() => clusters.stop())
  await Promise.all(clusters.clusters.map(openCluster))
  const files = clusters.clusters.map(({ row, plane }) => ({ context: row.name, path: plane.kubeconfig }))
  const terminal = { directory, kubeconfig: mergeKubeconfigs(join(directory, 'kubeconfig'), files) }
  const counted = new Newcomer(terminal)
  const [hub] = clusters.clusters
  if (hub === undefined) throw new Error('there is no hub')

  const balancing = balanceLoad(hub, 'sealane-broker', 'sealane-broker', '192.0.2.200')
  await Promise.all([balancing, counted.type('hub', readme.deploy)])
  for (const [i, cluster] of clusters.clusters.entries()) {
    await t.test(`${cluster.row.name} (${ROWS[i]?.shape ?? ''}) joins`, (t) => joined(t, counted, readme, cluster))
  }
  await t.test('a pod of each calls the exported service', async (t) => {
    await counted.type('c1', readme.export)
    await Promise.all(clusters.clusters.map((cluster) => firstCall(t, counted, cluster)))
  })
  await t.test('what was typed, and how long it took', async (t) => {
    for (const { name, shape } of ROWS) {
      const { commands, ms } = counted.of(name)
      const waited = `${(ms / 1000).toFixed(1)} s`
      t.comment(`${name} (${shape}): ${commands} commands, ${waited} of waiting`)
      t.ok(commands > 0 && commands <= MOST_COMMANDS, `${shape}: ${commands} commands, at most ${MOST_COMMANDS}`)
      t.ok(ms <= MOST_WAITING_MS, `${shape}: ${waited} of waiting, at most a minute`)
    }
  })
  await t.test('nothing waits for a virtual node', (t) => onMachinesOnly(t, clusters.clusters.at(-1)))
})

/** The lines of README.md that a newcomer types, with its contexts `hub` and `c1`. */
interface ReadmeCommands {
  readonly deploy: string
  readonly token: string
  readonly join: string
  readonly export: string
}

/** Reads them from the section about clusters. Throws if a line, or what README says of when to type it, is missing. */
function readmeCommands(): ReadmeCommands {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')
  const section = /\n## Kubernetes clusters\n([\s\S]*?)\n## /.exec(readme)?.[1] ?? ''
  const blocks = [...section.matchAll(/^```\n([\s\S]*?)^```$/gm)].map((match) => match[1] ?? '')
  const lines = blocks.flatMap((block) => block.split('\n')).filter((line) => line !== '')
  const find = (begin: string, when: RegExp): string => {
    const [, command = '', comment = ''] =
      /^(.*?)\s+# (.*)$/.exec(lines.find((line) => line.startsWith(begin)) ?? '') ?? []
    if (!when.test(comment)) throw new Error(`README.md, Kubernetes clusters: no line "${begin} … # ${when.source}"`)
    return command
  }
  return {
    deploy: find('sealane broker deploy --context hub', /^once$/),
    token: find('sealane token create --context hub', /^for each cluster; prints the lines to paste$/),
    join: find('sealane join --context c1', /^on each cluster$/),
    export: find('sealane export web --namespace shop --context c1', /^offers a Service/),
  }
}

/** Types, and counts commands and waiting for each cluster. */
class Newcomer {
  readonly #terminal: Terminal
  readonly #counts = new Map<string, { commands: number; ms: number }>()
  constructor(terminal: Terminal) {
    this.#terminal = terminal
  }

  of(cluster: string): { commands: number; ms: number } {
    const found = this.#counts.get(cluster) ?? { commands: 0, ms: 0 }
    this.#counts.set(cluster, found)
    return found
  }

  async type(cluster: string, lines: string): Promise<{ readonly shown: string; readonly asked: readonly string[] }> {
    const typed = await typeLines(this.#terminal, lines)
    this.of(cluster).commands += 1
    this.waited(cluster, typed.ms)
    return typed
  }

  waited(cluster: string, ms: number): void {
    this.of(cluster).ms += ms
  }
}

/** Makes a token and pastes what is printed, with the name of the context: its last line is that of README.md. */
async function joined(t: Test, newcomer: Newcomer, readme: ReadmeCommands, { row, plane }: TestCluster): Promise<void> {
  const { name } = row
  const { shown } = await newcomer.type(name, readme.token)
  const [printed = ''] = /^\(umask [\s\S]*^sealane join .*$/m.exec(shown) ?? []
  const lines = printed.replace('--context CONTEXT', `--context ${name}`)
  t.equal(lines.split('\n').at(-1), readme.join.replace('--context c1', `--context ${name}`), 'the line of README.md')
  try {
    const done = await newcomer.type(name, lines)
    t.match(done.shown, new RegExp(`^${name} has joined with gateway `, 'm'))
    // The first overlap gives the hub new addresses, and the user agrees. The others join as they are.
    t.same(done.asked, name === 'c1' ? ['Join anyway? Type yes:'] : [], 'what it asks')
  } catch (error) {
    throw new Error(`${String(error)}\n${await lastWords(plane.api, 'sealane-system').catch(String)}`, { cause: error })
  }
}

/** The name that the service has everywhere is answered by the cluster that exports it. */
async function firstCall(t: Test, newcomer: Newcomer, cluster: TestCluster): Promise<void> {
  const site = siteOf(cluster)
  const began = performance.now()
  const call = { namespace: 'shop', host: 'web.shop.svc.clusterset.local', times: 1 }
  let last = 'nobody'
  await eventually(async () => (last = await callers(site, call)) !== 'nobody', {
    deadlineMs: 60_000,
    say: `${site.name} calls web`,
  }).catch(() => undefined)
  newcomer.waited(site.name, performance.now() - began)
  t.equal(last, 'c1', `a pod of ${site.name} calls web.shop.svc.clusterset.local`)
}

function siteOf({ row, plane }: TestCluster): Site {
  return { name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }
}

/** What a cluster has before Sealane: the settings that kubeadm keeps, the marks of CNI and cloud, and pods of the user. */
async function openCluster(cluster: TestCluster): Promise<void> {
  const site = siteOf(cluster)
  const { row, nodes } = cluster
  const networking = { podSubnet: row.podCIDR, serviceSubnet: row.serviceCIDR, dnsDomain: 'cluster.local' }
  await site.api.apply('/api/v1/namespaces/kube-system/configmaps/kubeadm-config', {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'kubeadm-config', namespace: 'kube-system' },
    data: { ClusterConfiguration: stringify({ kind: 'ClusterConfiguration', networking }) },
  })
  const annotations = { 'flannel.alpha.coreos.com/backend-type': 'host-gw' }
  for (const { name } of nodes) {
    // The cloud gives Services of type LoadBalancer an address; here the test does (balanceLoad).
    const spec = { providerID: `openstack:///${name}` }
    await site.api.merge(`/api/v1/nodes/${name}`, { metadata: { annotations }, spec })
  }
  if (row.name === 'c3') await addVirtualNode(site)
  await openNamespace(site, 'shop', helloDeployment(row.name))
  await site.api.apply('/api/v1/namespaces/shop/services/web', helloService('web'))
  await readyPods(site, 'shop', 2)
  await readyPods(site, 'kube-system', CORE_DNS_PODS)
}

/** As the connector of Azure Container Instances registers it; no machine is behind it. */
async function addVirtualNode({ api }: Site): Promise<void> {
  const labels = { type: 'virtual-kubelet', 'kubernetes.io/os': 'linux', 'kubernetes.io/role': 'agent' }
  const taints = [{ key: 'virtual-kubelet.io/provider', value: 'azure', effect: 'NoSchedule' as const }]
  await api.post('/api/v1/nodes', nodeObject(VIRTUAL, { metadata: { labels }, spec: { taints } }))
  const status = { ...internalIps('192.0.2.250'), conditions: [{ type: 'Ready', status: 'True' }] }
  await api.merge(`/api/v1/nodes/${VIRTUAL}/status`, { status })
}

interface PodObject extends KubeObject {
  readonly spec: { readonly nodeName?: string }
}

/** No pod of Sealane waits for the virtual node, and none is on it. */
async function onMachinesOnly(t: Test, cluster: TestCluster | undefined): Promise<void> {
  if (cluster === undefined) throw new Error('there is no cluster with a virtual node')
  const pods = await cluster.plane.api.list<PodObject>('/api/v1/namespaces/sealane-system/pods')
  t.ok(pods.length > 0, 'there are pods of Sealane')
  t.same([...new Set(pods.map(({ spec }) => spec.nodeName))], ['c3-n1'], 'all pods of Sealane are on the machine')
}
