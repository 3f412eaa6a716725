/** Reads the objects that the plan of a flavour needs, and applies a plan. */
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { UserError } from '../../runtime/runtime.ts'
import { refOf, titleOf, type ObjectRef, type ObjectType } from '../../kubeapi/kube/kube.ts'
import {
  AKS_LOCAL_DNS,
  DAEMON_SETS,
  REDIRECTS,
  boundAddresses,
  isDnsCache,
  isUnsureCache,
  mountedMaps,
  nodesWith,
  runsDnsServer,
} from './dns-caches.ts'
import {
  type ClusterDnsClient,
  type ClusterDnsFlavour,
  type ClusterDnsPlan,
  type DnsObject,
  type FoundDns,
  findObject,
} from './dns-change.ts'
import { clusterDnsReads } from './plan-cluster-dns.ts'

const TRIES = 5

export interface ClusterDnsResult {
  /** The plan that was applied, as far as it has changes. */
  readonly plan: ClusterDnsPlan
  /** The workloads that the user has to restart for the change to take effect. */
  readonly toRestart: readonly ObjectRef[]
}

/**
 * Reads, plans and writes, and repeats that if another client has written in between. Throws UserError after several
 * attempts, and what the client throws.
 */
export async function applyClusterDns(
  client: ClusterDnsClient,
  flavour: ClusterDnsFlavour,
  plan: (present: readonly DnsObject[]) => ClusterDnsPlan,
  signal: AbortSignal,
  found: FoundDns = {},
): Promise<ClusterDnsResult> {
  const restarts = new Map<string, ObjectRef>()
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const planned = plan(await readClusterDns(client, flavour, signal, found))
    let lost = false
    for (const change of planned.changes) {
      lost ||= !(await client.replace(change, signal))
      if (lost) break
      if (change.effect.how === 'restart') restarts.set(titleOf(change.effect.workload), change.effect.workload)
    }
    if (lost) continue
    const toRestart: ObjectRef[] = []
    for (const workload of restarts.values()) {
      if (!(await restarted(client, workload, signal))) toRestart.push(workload)
    }
    return { plan: planned, toRestart }
  }
  throw new UserError('another client changed the settings of the cluster DNS during each attempt', {
    hint: 'find the other client (kubectl get -o yaml --show-managed-fields), then try again',
  })
}

async function restarted(client: ClusterDnsClient, workload: ObjectRef, signal: AbortSignal): Promise<boolean> {
  if (client.restart === undefined) return false
  try {
    await client.restart(workload, signal)
    return true
  } catch (error) {
    if (error instanceof ClusterApiError && error.code === 'NotFound') return false
    throw error
  }
}

/**
 * The objects of a flavour that exist, with all that the server and the caches in front of it mount. A place of the
 * server in `found` takes precedence over the usual one.
 */
export async function readClusterDns(
  client: ClusterDnsClient,
  flavour: ClusterDnsFlavour,
  signal: AbortSignal,
  found: FoundDns = {},
): Promise<readonly DnsObject[]> {
  const get = async (ref: ObjectRef): Promise<readonly DnsObject[]> => {
    const object = await client.get(ref, signal)
    return object === undefined ? [] : [object]
  }
  const list = async (type: ObjectType, labels?: string): Promise<readonly DnsObject[]> =>
    // Lists leave out apiVersion and kind of their items.
    ((await allowed(() => client.list?.(type, labels, signal))) ?? []).map((object) => ({ ...object, ...type }))
  const usual = clusterDnsReads(flavour, found)
  const [named, daemonSets, redirects, nodes] = await Promise.all([
    Promise.all(usual.map(get)),
    list(DAEMON_SETS),
    list(REDIRECTS),
    list(NODES, `${AKS_LOCAL_DNS}=enabled`),
  ])
  const present = unique([...named.flat(), ...daemonSets, ...redirects, ...nodes.slice(0, 1)])
  const refs = present.filter(({ kind }) => kind === 'DaemonSet').flatMap(mountedMaps)
  const own = present.filter(({ kind }) => kind === 'Deployment').flatMap(mountedMaps)
  // Whether a DNS server listens on a link-local address may be known from its Corefile alone.
  const ofCaches = refs.filter((ref) => mayBelongToCache(present, ref))
  const candidates = [...own, ...ofCaches].filter((ref) => findObject(present, ref) === undefined)
  const maps = await Promise.all(candidates.map(async (ref) => (await allowed(() => get(ref))) ?? []))
  const read = unique([...present, ...maps.flat()])
  const bound = read.flatMap((object) => boundAddresses(read, object))
  const ofCluster = bound.length === 0 ? [] : await list(NODES)
  // One Node shows that they were read.
  const all = unique([...read, ...ofCluster.slice(0, 1), ...nodesWith(ofCluster, bound)])
  return all.filter((object) => object.kind !== 'DaemonSet' || isKept(all, usual, object))
}

const NODES = { apiVersion: 'v1', kind: 'Node' } as const

/** Undefined if the user lacks the right: what depends on the objects then says that they are missing. */
async function allowed<T>(read: () => Promise<T> | undefined): Promise<T | undefined> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof ClusterApiError && error.code === 'Forbidden') return undefined
    throw error
  }
}

function unique(objects: readonly DnsObject[]): readonly DnsObject[] {
  return [...new Map(objects.map((object) => [titleOf(refOf(object)), object])).values()]
}

function mayBelongToCache(present: readonly DnsObject[], ref: ObjectRef): boolean {
  return present.some(
    (object) =>
      object.kind === 'DaemonSet' &&
      runsDnsServer(object) &&
      mountedMaps(object).some(({ name, namespace }) => name === ref.name && namespace === ref.namespace),
  )
}

/** A cluster has many DaemonSets; only caches, what may be one, and the usual names count. */
function isKept(all: readonly DnsObject[], usual: readonly ObjectRef[], object: DnsObject): boolean {
  return (
    isUnsureCache(all, object) ||
    isDnsCache(all, object) ||
    usual.some((ref) => findObject([object], ref) !== undefined)
  )
}
