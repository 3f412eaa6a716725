/** Two clusters on which Sealane is installed and removed, and what they were before anything of ours came. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Site, callers, helloDeployment, helloService, inRequestPod, openNamespace, readyPods } from './callers.ts'
import { CORE_DNS_PODS } from './core-dns-objects.ts'
import type { KubeObject } from './kube-request.ts'
import { dumpNode, sealaneFiles } from './node-dump.ts'
import { dumpDifference, dumpObjects } from './object-dump.ts'
import { refusedByApiServer } from './pod-logs.ts'
import { type CommandResult, sealane, trySealane } from './sealane-command.ts'
import { FLAT, SEALANE_IMAGE, type TestCluster, type TestClusters, startClusters } from './two-clusters.ts'

export const IMAGE = ['--image', SEALANE_IMAGE]
export const SYSTEM = 'sealane-system'

/** A cluster, and what it was before anything of ours came. */
export interface InstallTarget {
  readonly name: string
  readonly cluster: TestCluster
  readonly site: Site
  /** Flags that name it. */
  readonly at: readonly string[]
  readonly objects: ReadonlyMap<string, string>
  readonly kernel: string
}

export interface World {
  readonly directory: string
  readonly clusters: TestClusters
  readonly hub: InstallTarget
  readonly member: InstallTarget
}

export async function startWorld(t: Test): Promise<World> {
  const directory = temporaryFolder(t)
  const clusters = await startClusters({ directory, rows: FLAT })
  t.teardown(() => clusters.stop())
  const [hub, member] = await Promise.all(clusters.clusters.map(bareCluster))
  if (hub === undefined || member === undefined) throw new Error('two clusters were asked for')
  return { directory, clusters, hub, member }
}

/** Uninstalls all of it; nothing is left. Gives the world with what it is like then. */
export async function takenOut(t: Test, world: World): Promise<World> {
  const { hub, member, directory } = world
  // It is in use by what is exported in no story that follows.
  await trySealane(['unexport', 'hello', '--namespace', 'demo', ...hub.at])
  for (const place of [member, hub]) {
    await sealane(['uninstall', '--yes', '--delete-data', '--crds', ...place.at])
    await isBare(t, place, directory, 'gone')
  }
  // Volumes are not what they were: who had them is noted in them.
  const [first, second] = await Promise.all([hub, member].map(({ cluster }) => noted(cluster)))
  if (first === undefined || second === undefined) throw new Error('two clusters were asked for')
  return { ...world, hub: first, member: second }
}

/** With something to call and to call from in it; then what it is like is noted. */
async function bareCluster(cluster: TestCluster): Promise<InstallTarget> {
  const { row, plane } = cluster
  const { kubeconfig, api } = plane
  const site = { name: row.name, api, kubeconfig }
  await openNamespace(site, 'demo', helloDeployment(row.name))
  await api.apply('/api/v1/namespaces/demo/services/hello', helloService('hello'))
  await readyPods(site, 'demo', 2)
  await readyPods(site, 'kube-system', CORE_DNS_PODS)
  await readyEndpoints(site, 'demo', 'hello', 1)
  await readyEndpoints(site, 'kube-system', 'kube-dns', CORE_DNS_PODS)
  return await noted(cluster)
}

async function noted(cluster: TestCluster): Promise<InstallTarget> {
  const {
    row: { name },
    plane: { api, kubeconfig },
    nodes: [node],
  } = cluster
  if (node === undefined) throw new Error(`${name} has no node`)
  const site = { name, api, kubeconfig }
  const at = ['--kubeconfig', kubeconfig]
  return { name, cluster, site, at, objects: await dumpObjects(api), kernel: dumpNode(node) }
}

interface SliceObject extends KubeObject {
  readonly endpoints?: readonly { readonly conditions?: { readonly ready?: boolean } }[] | null
}

/** Waits until a Service has that many endpoints, all of them ready: they are written some time after the pods are. */
export async function readyEndpoints(
  { name, api }: Site,
  namespace: string,
  service: string,
  count: number,
): Promise<void> {
  const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`)
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?labelSelector=${selector}`
  await eventually(
    async () => {
      const endpoints = (await api.list<SliceObject>(path)).flatMap((slice) => slice.endpoints ?? [])
      const ready = endpoints.filter(({ conditions }) => conditions?.ready === true).length
      if (ready === count && endpoints.length === count) return true
      throw new Error(`${ready} of ${endpoints.length} are ready`)
    },
    { deadlineMs: 60_000, say: `${count} endpoints of ${namespace}/${service} in ${name} are ready` },
  )
}

/** As a user would type it for this cluster; `--cluster-id` because both contexts could be called anything. */
export function joinWords({ at, name, cluster }: InstallTarget): readonly string[] {
  return ['join', ...at, '--cluster-id', name, '--pod-cidr', cluster.row.podCIDR, '--yes', ...IMAGE]
}

/** Makes a token on the hub and joins with it. */
export async function joinAgain(world: World, place: InstallTarget): Promise<CommandResult> {
  return await sealane([...joinWords(place), '--token-file', await tokenFile(world, ['--cluster-id', place.name])])
}

export async function tokenFile({ hub, directory }: World, more: readonly string[] = []): Promise<string> {
  const made = await sealane(['token', 'create', ...hub.at, '-o', 'json', ...more])
  const file = join(directory, 'token')
  writeFileSync(file, (JSON.parse(made.stdout) as { token: string }).token, { mode: 0o600 })
  return file
}

/** The request pod of the other cluster reaches the hub's pods by their name in the clusterset. */
export async function answered({ member }: World, want = 'c1'): Promise<void> {
  const call = { namespace: 'demo', host: 'hello.demo.svc.clusterset.local', times: 1 }
  await eventually(async () => (await callers(member.site, call)) === want, {
    deadlineMs: 60_000,
    say: `a call from c2 is answered by ${want}`,
  })
}

interface ServiceObject extends KubeObject {
  readonly spec: { readonly ports: readonly { readonly nodePort?: number }[] }
}

/** Waits until a call to where the broker was is refused: kube-proxy may be late to learn that its pod is gone. */
export async function brokerRefuses({ hub, member }: World): Promise<void> {
  const service = '/api/v1/namespaces/sealane-broker/services/sealane-broker'
  const port = (await hub.site.api.get<ServiceObject>(service)).spec.ports[0]?.nodePort ?? 0
  const call = `nc -vz -w 2 ${hub.cluster.nodes[0]?.address ?? ''} ${port} 2>&1`
  await eventually(
    async () => {
      const said = await inRequestPod(member.site, 'demo', call)
      if (said.includes('Connection refused')) return true
      throw new Error(said)
    },
    { deadlineMs: 30_000, say: `a call to the broker's port ${port} is refused` },
  )
}

/**
 * All objects, to be compared with later ones: at a moment when cluster DNS is as it was before Sealane came, and no
 * pod of an earlier version is still on its way out.
 */
export async function settledObjects({ name, objects, site }: InstallTarget): Promise<ReadonlyMap<string, string>> {
  return await eventually(
    async () => {
      const pods = await site.api.list('/api/v1/pods')
      const found = await dumpObjects(site.api)
      const isLeaving = (text: string): boolean => text.includes('"terminating":true')
      const goes =
        pods.some(({ metadata }) => metadata['deletionTimestamp'] !== undefined) || [...found.values()].some(isLeaving)
      return goes || dumpDifference(objects, found).some(isReadiness) ? undefined : found
    },
    { deadlineMs: 90_000, intervalMs: 500, say: `cluster DNS of ${name} is as before, and no pod is leaving` },
  )
}

/** What differs from settledObjects(); nothing else than the readiness of cluster DNS is waited for. */
export async function changedSince(
  place: InstallTarget,
  settled: ReadonlyMap<string, string>,
): Promise<readonly string[]> {
  const difference = dumpDifference(settled, await dumpObjects(place.site.api))
  return [...difference.filter((line) => !isReadiness(line)), ...(await lateDns(place))]
}

/** The same without pods and what follows from them: once a line has that in it, or after half a minute. */
export async function changedWith(
  place: InstallTarget,
  settled: ReadonlyMap<string, string>,
  wanted: string,
): Promise<readonly string[]> {
  let changed: readonly string[] = []
  const isThere = async (): Promise<boolean> => {
    const lines = await changedSince(place, settled)
    changed = lines.filter((line) => !/(pods|replicasets|controllerrevisions|endpointslices) /.test(line))
    return changed.some((line) => line.includes(wanted))
  }
  await eventually(isThere, { deadlineMs: 30_000, intervalMs: 1000 }).catch(() => undefined)
  return changed
}

/** Everything is as it was before Sealane came, but for the CRDs. */
export async function isBare(
  t: Test,
  place: InstallTarget,
  directory: string,
  crds: 'kept' | 'gone' = 'kept',
): Promise<void> {
  const { cluster, name, objects, kernel, site } = place
  const [node] = cluster.nodes
  if (node === undefined) return
  if (crds === 'gone') await crdsGone(t, place)
  const difference = dumpDifference(objects, await dumpObjects(site.api))
  const others = difference.filter((line) => !isCrd(line) && !isVolume(line) && !isReadiness(line))
  t.strictSame(
    others,
    [],
    `${name}: all objects are as before: node labels, cluster DNS to the byte, nothing Terminating`,
  )
  t.strictSame(await lateDns(place), [], `${name}: cluster DNS is ready as before`)
  t.equal(difference.some(isCrd), crds === 'kept', `${name}: the CRDs are ${crds}`)
  t.equal(dumpNode(node), kernel, `${name}: the node's kernel is as before`)
  t.strictSame(sealaneFiles(join(directory, name), node.name), [], `${name}: nothing of ours is in its files`)
}

const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

/** The CRDs are gone when the command has ended; what the API server made of them, it takes back in its own time. */
async function crdsGone(t: Test, { name, objects, site }: InstallTarget): Promise<void> {
  const names = (await site.api.list(CRDS)).map(({ metadata }) => metadata.name)
  t.strictSame(
    names.filter((own) => !objects.has(`${CRDS} -/${own}`)),
    [],
    `${name}: no CRD is left, as it was said`,
  )
  await eventually(async () => !dumpDifference(objects, await dumpObjects(site.api)).some(isCrd), {
    deadlineMs: 60_000,
    intervalMs: 500,
    say: `${name}: nothing of the CRDs is left`,
  })
}

/** What still differs in the slices of cluster DNS after waiting for it: nothing, when it is back. */
async function lateDns({ objects, site }: InstallTarget): Promise<readonly string[]> {
  const look = async (): Promise<readonly string[]> =>
    dumpDifference(objects, await dumpObjects(site.api)).filter(isReadiness)
  const back = eventually(async () => (await look()).length === 0, {
    deadlineMs: 90_000,
    intervalMs: 500,
    say: 'cluster DNS is as before',
  })
  return await back.then(
    () => [],
    () => look(),
  )
}

/** Cluster DNS reads its settings again, and may be late for a probe; that it is back is waited for. */
function isReadiness(line: string): boolean {
  return line.startsWith('~ /apis/discovery.k8s.io/v1/endpointslices kube-system/')
}

/** The claim is gone; what becomes of the volume behind it is the storage's to say. */
function isVolume(line: string): boolean {
  return line.startsWith('~ /api/v1/persistentvolumes ')
}

function isCrd(line: string): boolean {
  const crd =
    /^\+ \/apis\/(apiextensions\.k8s\.io\/v1\/customresourcedefinitions|apiregistration\.k8s\.io\/v1\/apiservices) /
  return crd.test(line) && /(sealane|x-k8s|about\.k8s)\.io/.test(line)
}

export async function noRefusals(t: Test, ...places: readonly InstallTarget[]): Promise<void> {
  for (const { name, site } of places) {
    t.strictSame(
      await refusedByApiServer(site.api, SYSTEM),
      [],
      `${name}: no part was refused anything by RBAC or policies`,
    )
  }
}
