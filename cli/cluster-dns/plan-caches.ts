/**
 * Plans for the caches in front of a cluster's DNS. A cache sends names that it does not know to its own upstream
 * servers, so without a block of its own it answers NXDOMAIN for clusterset.local.
 */
import { refOf, titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  ADDITION_KEY,
  CorefileError,
  type WiredMap,
  hasForwardBlock,
  topImports,
} from '../../model/cluster-dns/cluster-dns.ts'
import { type CorefileSource, findClusterCorefile, sourceInMap } from './corefile-source.ts'
import {
  type ClusterDnsChange,
  type ClusterDnsFlavour,
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  NO_CHANGE,
  configMapRef,
  findObject,
  joinPlans,
  problemPlan,
} from './dns-change.ts'
import {
  type CorefileMount,
  type DnsCache,
  AKS_LOCAL_DNS,
  KNOWN_CACHE_MAPS,
  corefileMounts,
  findDnsCaches,
  findUnsureCaches,
  importedMap,
  mountedMaps,
} from './dns-caches.ts'
import { isProblem, planBlock, planBlockRemoval, readable } from './plan-corefile.ts'
import { planAddition } from './plan-custom-map.ts'
import { KUBE_DNS_MAP, takesStubDomain } from './plan-stub-domains.ts'

/** Adds the block to each cache that the cluster has. What cannot be changed is a problem of kind `cache`. */
export function planCaches(
  flavour: ClusterDnsFlavour,
  present: readonly DnsObject[],
  options: ClusterDnsOptions,
): ClusterDnsPlan {
  const caches = findDnsCaches(present).map((cache) =>
    ofCache(refOf(cache.workload), planCache(cache, { flavour, present, options })),
  )
  const unread = flavour === 'rke2' ? [] : strayMaps(present).filter((map) => whyFixed(flavour, map) === undefined)
  const stray = unread.map((map) => {
    const source = sourceInMap(map, undefined, workloadOf(map))
    return ofCache(workloadOf(map), isProblem(source) ? problemPlan(source) : planBlock(source, options))
  })
  const notes = unsureNotes(present, options)
  return joinPlans(...merged([...caches, ...stray]), planNodeServices(present, options), { ...NO_CHANGE, notes })
}

function unsureNotes(present: readonly DnsObject[], { domain, forwardTo }: ClusterDnsOptions): readonly string[] {
  return findUnsureCaches(present).map(
    ({ workload, addresses }) =>
      `${titleOf(refOf(workload))} binds ${addresses.slice(0, 4).join(', ')}, which no node has, but does not name ` +
      'the domain of the cluster, so it stays as it is. If it answers pods, add the block by hand ' +
      `(docs/operations.md, "Cluster DNS"): ${domain} to ${forwardTo}.`,
  )
}

/**
 * What cannot be read in a cache concerns the cache alone: the DNS of the cluster is configured all the same. A server
 * that already answers the zone stops the whole plan, as in the cluster's own DNS.
 */
function ofCache(workload: ObjectRef, plan: ClusterDnsPlan): ClusterDnsPlan {
  const problems = plan.problems.map((problem): ClusterDnsProblem => {
    if (problem.kind !== 'unreadable' && problem.kind !== 'absent') return problem
    const message = `${titleOf(workload)} is a cache that answers pods in place of the cluster DNS: ${problem.message}`
    return { ...problem, kind: 'cache', reason: 'DnsCacheUnreadable', message }
  })
  return { ...plan, problems }
}

/** Removes Sealane's block from every Corefile that has it, also where a cache no longer exists. */
export function planBlocksRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  const main = findClusterCorefile(present)
  const plans = present.flatMap((map) => {
    if (map.kind !== 'ConfigMap') return []
    const workload = !isProblem(main) && main.map === map ? main.workload : readerOf(present, map)
    return Object.entries(map.data ?? {}).flatMap(([key, corefile]) =>
      key === ADDITION_KEY ? [] : [planBlockRemoval({ map, key, corefile, workload })],
    )
  })
  const [all = NO_CHANGE] = merged(plans)
  return all
}

/** The values of ConfigMaps that have Sealane's block now. */
export function wiredMaps(present: readonly DnsObject[]): readonly WiredMap[] {
  return present.flatMap(({ kind, metadata: { name, namespace = '' }, data = {} }) => {
    if (kind !== 'ConfigMap') return []
    return Object.entries(data).flatMap(([key, text]): readonly WiredMap[] => {
      if (key === ADDITION_KEY) return [{ namespace, name, key, text }]
      try {
        return hasForwardBlock(text) ? [{ namespace, name, key }] : []
      } catch (error) {
        if (!(error instanceof CorefileError)) throw error
        return []
      }
    })
  })
}

interface CacheContext {
  readonly flavour: ClusterDnsFlavour
  readonly present: readonly DnsObject[]
  readonly options: ClusterDnsOptions
}

function planCache(cache: DnsCache, context: CacheContext): ClusterDnsPlan {
  const { flavour, present, options } = context
  const { workload, program } = cache
  if (program === 'unknown') return foreign(workload, options)
  const mountsKubeDns = mountedMaps(workload).some((ref) => ref.name === KUBE_DNS_MAP.name)
  const kubeDns = findObject(present, KUBE_DNS_MAP)
  if (program === 'node-cache' && mountsKubeDns && workload.metadata.namespace === KUBE_DNS_MAP.namespace) {
    // node-cache writes a block for each stub domain of kube-dns, and a second block would end it at its next start.
    if (flavour === 'kube-dns') return NO_CHANGE
    const owner = takesStubDomain(kubeDns, options.domain)
    if (owner === 'sealane') return NO_CHANGE
    if (owner === 'other') return takenByStubDomain(workload, options)
  }
  // The chart of RKE2 writes the Corefile; planHelmValues() names the value that has the same effect.
  if (flavour === 'rke2' && isOfChart(workload)) return NO_CHANGE
  const plans = mountsOf(present, workload).map(({ map: name, key, follows }) => {
    const ref = configMapRef(name, workload.metadata.namespace)
    const map = findObject(present, ref)
    if (map === undefined) return unreadable(workload, `${titleOf(ref)} does not exist or cannot be read`, options)
    const fixed = whyFixed(flavour, map)
    if (fixed !== undefined) return fixedPlan(workload, map, fixed, options)
    const source = sourceInMap(map, key, refOf(workload))
    if (isProblem(source)) return problemPlan(source)
    const plan = planSource(present, workload, source, options)
    return follows ? plan : restarting(plan, refOf(workload))
  })
  if (plans.length === 0) return unreadable(workload, 'its Corefile is in no ConfigMap that it mounts', options)
  return joinPlans(...plans)
}

/** The mounts of the Corefile. If none is found, the first ConfigMap of the cache that has one. */
function mountsOf(present: readonly DnsObject[], workload: DnsObject): readonly CorefileMount[] {
  const mounts = corefileMounts(workload)
  if (mounts.length > 0) return mounts
  const { name, namespace } = workload.metadata
  const found = [...mountedMaps(workload), configMapRef(name, namespace)].find((ref) => {
    const map = findObject(present, ref)
    return map !== undefined && !isProblem(sourceInMap(map, undefined, refOf(workload)))
  })
  return found === undefined ? [] : [{ map: found.name, key: undefined, follows: true }]
}

/** Uses the additions that the cache's Corefile imports, if their ConfigMap is mounted; else edits the Corefile. */
function planSource(
  present: readonly DnsObject[],
  workload: DnsObject,
  source: CorefileSource,
  options: ClusterDnsOptions,
): ClusterDnsPlan {
  const imports = readable(source, () => topImports(source.corefile))
  if (isProblem(imports)) return problemPlan(imports)
  const pattern = imports.find((each) => each.endsWith('*.server'))
  const name = pattern === undefined ? undefined : importedMap(workload, pattern)
  if (name === undefined) return planBlock(source, options)
  const main = findClusterCorefile(present)
  const ref = configMapRef(name, workload.metadata.namespace)
  if (!isProblem(main) && importsFrom(present, main, ref)) return NO_CHANGE
  return planAddition(present, { main: source, ref }, options)
}

/** Whether the cluster's own CoreDNS imports the same ConfigMap, which then has the block for both. */
function importsFrom(present: readonly DnsObject[], main: CorefileSource, ref: ObjectRef): boolean {
  const imports = readable(main, () => topImports(main.corefile))
  const pattern = isProblem(imports) ? undefined : imports.find((each) => each.endsWith('*.server'))
  if (pattern === undefined) return false
  const name = importedMap(findObject(present, main.workload), pattern) ?? 'coredns-custom'
  return name === ref.name && main.map.metadata.namespace === ref.namespace
}

function isOfChart({ metadata }: DnsObject): boolean {
  const release = metadata.annotations?.['meta.helm.sh/release-name']
  return (
    (release ?? 'rke2-coredns') === 'rke2-coredns' && metadata.namespace === 'kube-system' && isUsual(metadata.name)
  )
}

function isUsual(name: string): boolean {
  return KNOWN_CACHE_MAPS.some((ref) => ref.name === name)
}

/** The usual ConfigMaps of caches that no cache among the objects mounts. */
function strayMaps(present: readonly DnsObject[]): readonly DnsObject[] {
  const mounted = findDnsCaches(present).flatMap(({ workload }) => [
    ...mountedMaps(workload),
    configMapRef(workload.metadata.name, workload.metadata.namespace),
  ])
  return KNOWN_CACHE_MAPS.flatMap((ref) => findObject(present, ref) ?? []).filter(
    (map) => !mounted.some((ref) => findObject([map], ref) !== undefined),
  )
}

function workloadOf({ metadata }: DnsObject): ObjectRef {
  return { apiVersion: 'apps/v1', kind: 'DaemonSet', namespace: 'kube-system', name: metadata.name }
}

function readerOf(present: readonly DnsObject[], map: DnsObject): ObjectRef {
  const cache = findDnsCaches(present).find(({ workload }) =>
    mountedMaps(workload).some((ref) => findObject([map], ref) !== undefined),
  )
  return cache === undefined ? workloadOf(map) : refOf(cache.workload)
}

/** Why a ConfigMap keeps no change; undefined if it does. */
function whyFixed(flavour: ClusterDnsFlavour, map: DnsObject): string | undefined {
  if (map['immutable'] === true) return 'is immutable'
  // The manifest of Kubernetes has this label everywhere; only GKE runs the addon manager that acts on it.
  const runsAddonManager = flavour === 'kube-dns' || flavour === 'gke-cloud-dns'
  const isReconciled = map.metadata.labels?.['addonmanager.kubernetes.io/mode'] === 'Reconcile'
  return runsAddonManager && isReconciled ? 'is kept as it is by the addon manager' : undefined
}

/** Several changes of one ConfigMap are one change, so that the second does not collide with the first. */
function merged(plans: readonly ClusterDnsPlan[]): readonly ClusterDnsPlan[] {
  const changes = new Map<string, ClusterDnsChange>()
  for (const change of plans.flatMap((plan) => plan.changes)) {
    const title = titleOf(change.object)
    const other = changes.get(title)
    changes.set(title, other === undefined ? change : both(other, change))
  }
  const notes = [...new Set(plans.flatMap((plan) => plan.notes))]
  return [{ changes: [...changes.values()], notes, problems: plans.flatMap(({ problems }) => problems) }]
}

function both(first: ClusterDnsChange, second: ClusterDnsChange): ClusterDnsChange {
  if (first.edit.field === second.edit.field || second.after === undefined || first.after === undefined) return first
  const key = second.edit.field.replace(/^data\./, '')
  const text = second.after.data?.[key]
  const data = { ...first.after.data, ...(text === undefined ? {} : { [key]: text }) }
  return {
    ...first,
    after: { ...first.after, data },
    edit: {
      field: `${first.edit.field}, ${second.edit.field}`,
      before: joined(first.edit.before, second.edit.before),
      after: joined(first.edit.after, second.edit.after),
    },
    effect: first.effect.how === 'restart' ? first.effect : second.effect,
  }
}

function joined(...texts: readonly (string | undefined)[]): string | undefined {
  const given = texts.filter((text) => text !== undefined)
  return given.length === 0 ? undefined : given.join('\n')
}

function restarting(plan: ClusterDnsPlan, workload: ObjectRef): ClusterDnsPlan {
  return { ...plan, changes: plan.changes.map((change) => ({ ...change, effect: { how: 'restart', workload } })) }
}

// Problems. Each says which cache it is, what pods on its nodes see, and what to do.

function cacheProblem(
  workload: ObjectRef,
  why: string,
  rest: Pick<ClusterDnsProblem, 'advice' | 'reason'>,
): ClusterDnsPlan {
  const message = `${titleOf(workload)} is a cache that answers pods in place of the cluster DNS, and ${why}`
  return problemPlan({ kind: 'cache', object: workload, message, ...rest })
}

function asPodsSee({ domain }: ClusterDnsOptions): string {
  return `Until then, pods that ask this cache get NXDOMAIN for ${domain}, unless it hands all names on to the cluster DNS.`
}

function foreign(workload: DnsObject, options: ClusterDnsOptions): ClusterDnsPlan {
  const { domain, forwardTo } = options
  return cacheProblem(refOf(workload), 'it is not CoreDNS, so Sealane cannot write its settings', {
    reason: 'DnsCacheNotCoreDNS',
    advice: [
      `Make it forward ${domain} to ${forwardTo} (dnsmasq: --server=/${domain}/${forwardTo.replace(/:(\d+)$/, '#$1')}; unbound: forward-zone). ${asPodsSee(options)}`,
    ],
  })
}

function unreadable(workload: DnsObject, why: string, options: ClusterDnsOptions): ClusterDnsPlan {
  return cacheProblem(refOf(workload), why, {
    reason: 'DnsCacheUnreadable',
    advice: [
      `Add the block by hand where its Corefile comes from (docs/operations.md, "Cluster DNS"): ${options.domain} to ${options.forwardTo}. ${asPodsSee(options)}`,
    ],
  })
}

function fixedPlan(workload: DnsObject, map: DnsObject, why: string, options: ClusterDnsOptions): ClusterDnsPlan {
  return cacheProblem(refOf(workload), `its ${titleOf(refOf(map))} ${why}`, {
    reason: 'DnsCacheOutOfReach',
    advice: [
      `Add the block where that ConfigMap comes from (docs/operations.md, "Cluster DNS"): ${options.domain} to ${options.forwardTo}. ${asPodsSee(options)}`,
    ],
  })
}

function takenByStubDomain(workload: DnsObject, { domain }: ClusterDnsOptions): ClusterDnsPlan {
  return problemPlan({
    kind: 'conflict',
    object: KUBE_DNS_MAP,
    message: `${titleOf(KUBE_DNS_MAP)}, stubDomains: something else already answers ${domain} in ${titleOf(refOf(workload))}`,
    advice: ['Remove that first if nothing needs it. Sealane does not overwrite what it did not write.'],
  })
}

function planNodeServices(present: readonly DnsObject[], { domain }: ClusterDnsOptions): ClusterDnsPlan {
  const node = present.find(({ kind, metadata }) => kind === 'Node' && metadata.labels?.[AKS_LOCAL_DNS] === 'enabled')
  if (node === undefined) return NO_CHANGE
  return problemPlan({
    kind: 'cache',
    object: refOf(node),
    reason: 'DnsCacheOutOfReach',
    message: `AKS LocalDNS answers pods on the nodes (${titleOf(refOf(node))}, label ${AKS_LOCAL_DNS}), where no object of the cluster configures it`,
    advice: [
      `By default it hands ${domain} on to CoreDNS, but may keep stale answers for an hour. Add "${domain}" to kubeDNSOverrides of the node pool's LocalDNS configuration, with forwardDestination ClusterCoreDNS, cacheDurationInSeconds 5 and serveStale Disable (az aks nodepool update --localdns-config FILE).`,
    ],
  })
}
