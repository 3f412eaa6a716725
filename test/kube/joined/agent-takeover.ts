/**
 * Two agents, of which one acts: when it ends, in good order or by force, no export or import is lost, and the other
 * one soon takes over. This runs on real clusters, with the Lease of a real API server.
 */
import { execFileSync } from 'node:child_process'
import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { ownNetns } from '../../support/netns-names.ts'
import { type Site, helloDeployment, helloService, openNamespace, readyPods } from '../support/callers.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { watchRefusals } from '../support/pod-logs.ts'
import type { TestCluster } from '../support/two-clusters.ts'
import { awaitImport, exportService, findImport, unexportService } from '../support/service-imports.ts'
import { type ObjectWatch, watchObjects } from '../support/watch-objects.ts'

const SYSTEM = 'sealane-system'
const IMPORTS = '/apis/multicluster.x-k8s.io/v1beta1/serviceimports'
const SLICES = '/apis/discovery.k8s.io/v1/endpointslices'
const SERVICES = ['one', 'two', 'three']

interface Pod extends KubeObject {
  readonly status: {
    readonly podIP?: string
    readonly conditions?: readonly { readonly type: string; readonly status: string }[]
  }
}

export async function agentTakeover(t: Test, { sites, clusters }: JoinedClusters): Promise<void> {
  const [here, there] = sites
  if (here === undefined || there === undefined) throw new Error('there are fewer than two clusters')
  const refusals = await watchRefusals([here, there], SYSTEM)
  await Promise.all([here, there].map(openSite))
  for (const name of SERVICES) await exportService(here, 'demo', name)
  await exportService(there, 'demo', 'back')
  for (const name of SERVICES) await awaitImport(there, 'demo', name)
  await awaitImport(here, 'demo', 'back')

  const story = { here, there }
  await t.test('the leader stops in good order', (t) =>
    takenOver(t, story, { name: 'stopped', limitMs: 8000, end: deletePod }),
  )
  await t.test('the leader is killed', (t) => takenOver(t, story, { name: 'killed', limitMs: 20_000, end: killPod }))
  t.strictSame(await refusals(), [], 'nothing was refused')

  const [hub, member] = clusters
  if (hub === undefined || member === undefined) throw new Error('there are fewer than two clusters')
  await t.test('leadership moves twenty times', (t) => manyLeaderships(t, { ...story, hub, member }))
}

const LEADERSHIPS = 20
/** The broker is away in these rounds. */
const BROKER_AWAY = { from: 8, until: 13 }
/** For this time the member's API server does not answer. */
const LATE_MS = 3000
const BROKER = '/apis/apps/v1/namespaces/sealane-broker/statefulsets/sealane-broker'

interface Churned {
  /** The cluster that exports and withdraws. */
  readonly here: Site
  /** The cluster that imports, and whose agents take turns. */
  readonly there: Site
  readonly hub: TestCluster
  readonly member: TestCluster
}

/**
 * The other cluster exports and withdraws meanwhile, the broker is away for a while, and in each fourth round the API
 * server is 3 s late.
 */
async function manyLeaderships(t: Test, { here, there, hub, member }: Churned): Promise<void> {
  const path = (name: string): string => `/api/v1/namespaces/demo/services/${name}`
  await bothReady(there)
  const watch = await watchObjects(there.kubeconfig, IMPORTS)
  const [offered, withdrawn] = [new Set<string>(), new Set<string>()]
  const wrong = (): string[] =>
    watch.events.flatMap(({ type, object: { metadata } }) => {
      const { name } = metadata
      if (type === 'DELETED' && !withdrawn.has(name)) return [`${name} was deleted while it was exported`]
      return []
    })
  const brokerReplicas = (replicas: number): Promise<unknown> => hub.plane.api.merge(BROKER, { spec: { replicas } })
  for (let i = 0; i < LEADERSHIPS; i += 1) {
    const isAway = i >= BROKER_AWAY.from && i < BROKER_AWAY.until
    if (i === BROKER_AWAY.from) await brokerReplicas(0)
    if (i === BROKER_AWAY.until) await brokerReplicas(1)
    const name = `n${i}`
    if (!isAway) {
      await here.api.apply(path(name), helloService(name))
      await exportService(here, 'demo', name)
      offered.add(name)
      const old = `n${i - 3}`
      if (offered.delete(old)) {
        // The name is noted first, because the import may go before the answer has arrived.
        withdrawn.add(old)
        await unexportService(here, 'demo', old)
      }
    }
    await leadershipMoves(there, member, i % 4 === 3)
    const isHeard = !isAway && i !== BROKER_AWAY.from - 1
    if (isHeard) await awaitImports(there, offered)
    t.strictSame(wrong(), [], `leadership ${i + 1}${isAway ? ', the broker away' : ''}`)
  }
  await awaitImports(there, offered)
  watch.stop()
  const back = watch.events.filter(
    ({ type, object: { metadata } }, at) =>
      type === 'ADDED' &&
      watch.events.slice(0, at).some((one) => one.type === 'DELETED' && one.object.metadata.name === metadata.name),
  )
  t.strictSame(
    back.map(({ object }) => object.metadata.name),
    [],
    'nothing that was withdrawn came back',
  )
}

async function leadershipMoves(site: Site, { plane }: TestCluster, isLate: boolean): Promise<void> {
  const before = await leader(site)
  await deletePod(site, before)
  if (isLate) await apiIsLate(plane)
  await eventually(async () => ![before.metadata.name, ''].includes(await leaderName(site)), {
    deadlineMs: 60_000,
    say: 'another one leads',
  })
  await bothReady(site)
}

async function apiIsLate(plane: TestCluster['plane']): Promise<void> {
  const pid = plane.pids()['kube-apiserver']
  if (pid === undefined) throw new Error('the API server does not run')
  process.kill(pid, 'SIGSTOP')
  try {
    await setTimeout(LATE_MS)
  } finally {
    process.kill(pid, 'SIGCONT')
  }
}

/** Waits until everything exported is imported, and nothing else that was made for this story. */
async function awaitImports(site: Site, offered: ReadonlySet<string>): Promise<void> {
  const wanted = [...offered].sort().join()
  await eventually(
    async () => {
      const found = await site.api.list(`/apis/multicluster.x-k8s.io/v1beta1/namespaces/demo/serviceimports`)
      const names = found.map(({ metadata }) => metadata.name).filter((name) => /^n\d+$/u.test(name))
      return names.sort().join() === wanted
    },
    { deadlineMs: 60_000, say: `${site.name} imports ${wanted}` },
  )
}

async function openSite(site: Site): Promise<void> {
  await openNamespace(site, 'demo', helloDeployment(site.name))
  for (const name of [...SERVICES, 'back', 'stopped', 'killed']) {
    await site.api.apply(`/api/v1/namespaces/demo/services/${name}`, helloService(name))
  }
  await readyPods(site, 'demo', 2)
}

interface Takeover {
  /** The name of the Service that is exported while no agent leads. */
  readonly name: string
  /**
   * The time until another agent leads: a released Lease is taken at once, and that of a dead agent expires after ten
   * seconds.
   */
  readonly limitMs: number
  readonly end: (site: Site, pod: Pod) => Promise<void>
}

async function takenOver(
  t: Test,
  { here, there }: { readonly here: Site; readonly there: Site },
  { name, limitMs, end }: Takeover,
): Promise<void> {
  await bothReady(here)
  const before = await leader(here)
  const watches = await Promise.all(
    [here, there].flatMap(({ kubeconfig }) => [watchObjects(kubeconfig, IMPORTS), watchObjects(kubeconfig, SLICES)]),
  )
  const began = performance.now()
  await end(here, before)
  await exportService(here, 'demo', name)
  const after = await eventually(
    async () => {
      const found = await leaderName(here)
      return found !== before.metadata.name && found !== '' ? found : undefined
    },
    { deadlineMs: 60_000, intervalMs: 20, say: 'another one leads' },
  )
  const ledMs = performance.now() - began
  await eventually(() => findImport(there, 'demo', name), {
    deadlineMs: 60_000,
    intervalMs: 10,
    say: 'the new export is imported',
  })
  const ms = performance.now() - began
  t.comment(`${name}: another agent led after ${seconds(ledMs)}, and a new export was imported after ${seconds(ms)}`)
  t.not(after, before.metadata.name, 'another pod leads')
  t.ok(ledMs < limitMs, `another one leads within ${limitMs / 1000} s`)
  await bothReady(here)
  t.strictSame(watches.flatMap(lost), [], 'no import and no endpoint of one went away in either cluster meanwhile')
  for (const service of SERVICES) t.ok(await findImport(there, 'demo', service), `${service} is imported`)
  t.ok(await findImport(here, 'demo', 'back'), 'back is imported')
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}

/** Imports and slices of other clusters that were deleted, or had no cluster or endpoint for a moment. */
function lost(watch: ObjectWatch): string[] {
  watch.stop()
  return watch.events.flatMap(({ type, object }) => {
    const { kind, metadata } = object
    const isImported =
      kind === 'ServiceImport' || metadata.labels?.['multicluster.kubernetes.io/source-cluster'] !== undefined
    if (!isImported) return []
    const title = `${kind} ${metadata.name}`
    if (type === 'DELETED') return [`${title} was deleted`]
    return type === 'MODIFIED' && isEmpty(object) ? [`${title} was empty`] : []
  })
}

function isEmpty(object: KubeObject): boolean {
  const { status, endpoints } = object as KubeObject & {
    status?: { clusters?: readonly unknown[] }
    endpoints?: readonly unknown[] | null
  }
  return object.kind === 'ServiceImport' ? status?.clusters?.length === 0 : (endpoints ?? []).length === 0
}

/** Waits until one agent leads and the other is ready. */
async function bothReady({ api, name }: Site): Promise<void> {
  const isReady = ({ status, metadata }: Pod): boolean =>
    metadata['deletionTimestamp'] === undefined &&
    status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true
  await eventually(async () => (await agents(api)).filter(isReady).length === 2, {
    deadlineMs: 60_000,
    say: `two agents of ${name} are ready`,
  })
}

function agents(api: Site['api']): Promise<readonly Pod[]> {
  const selector = encodeURIComponent('app.kubernetes.io/component=agent')
  return api.list<Pod>(`/api/v1/namespaces/${SYSTEM}/pods?labelSelector=${selector}`)
}

interface LeaseObject extends KubeObject {
  readonly spec: { readonly holderIdentity?: string }
}

/** The name of the pod in the Lease; '' if the Lease was released. */
async function leaderName({ api }: Site): Promise<string> {
  const { spec } = await api.get<LeaseObject>(`/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases/sealane-agent`)
  return (spec.holderIdentity ?? '').replace(/-[0-9a-f]{8}$/, '')
}

async function leader(site: Site): Promise<Pod> {
  const name = await leaderName(site)
  const found = (await agents(site.api)).find(({ metadata }) => metadata.name === name)
  if (found === undefined) throw new Error(`the Lease names ${JSON.stringify(name)}, which is no agent’s pod`)
  return found
}

/** Sends SIGTERM, as any rollout or drain does. */
async function deletePod({ api }: Site, { metadata }: Pod): Promise<void> {
  await api.delete(`/api/v1/namespaces/${SYSTEM}/pods/${metadata.name}`)
}

/** Ends the pod as if its machine were destroyed: SIGKILL, and the pod is gone. */
async function killPod({ api }: Site, { metadata, status }: Pod): Promise<void> {
  const pids = processesAt(status.podIP ?? '')
  if (pids.length === 0) throw new Error(`no process is found of pod ${metadata.name}`)
  // The kubelet must not restart it before the pod is gone.
  const gone = api.raw('DELETE', `/api/v1/namespaces/${SYSTEM}/pods/${metadata.name}?gracePeriodSeconds=0`)
  for (const pid of pids) process.kill(pid, 'SIGKILL')
  await gone
}

/** The processes in the network namespace with that address. */
function processesAt(address: string): readonly number[] {
  const ip = (...args: string[]): string =>
    execFileSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  // Clusters of another test have the same addresses.
  const found = ownNetns().find((name) => {
    try {
      return ip('-n', name, '-4', '-o', 'address').includes(` ${address}/`)
    } catch {
      // The namespace was removed meanwhile.
      return false
    }
  })
  return found === undefined ? [] : ip('netns', 'pids', found).split('\n').filter(Boolean).map(Number)
}
