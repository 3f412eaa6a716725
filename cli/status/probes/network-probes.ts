/**
 * Probes the broker and each DNS server from the pod network of a cluster. A command in a pod of the agent does that,
 * because only this pod may read the identity for the connection to the broker.
 */
import type { Fact, UnansweredFact } from '../../../explain/facts/facts.ts'
import { AGENT_LEASE, type ManifestObject, selectorLabels } from '../../../install/values/values.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { EXEC_RIGHT, askFor } from '../ask.ts'
import { type AskedServer, MACHINE_COMMAND, askedServerText } from './machine-command.ts'
import { readNetworkFacts } from './machine-facts.ts'
import type { PodProbesInit } from './pod-probes.ts'
import { isWanted } from './progress.ts'

// Selects the DNS servers to query: those of the cluster and Sealane's own, each at the address of its Service and at
// the addresses of the Service's current pods. Pods that are not ready are left out.

interface DnsPlace {
  readonly role: AskedServer['role']
  readonly namespace: string
  /** The label selector of the Services. Their EndpointSlices have the same labels. */
  readonly labelSelector: string
}

const DNS_PLACES: readonly DnsPlace[] = [
  { role: 'cluster', namespace: 'kube-system', labelSelector: 'k8s-app=kube-dns' },
  {
    role: 'ours',
    namespace: SYSTEM_NAMESPACE,
    labelSelector: Object.entries(selectorLabels('dns'))
      .map((pair) => pair.join('='))
      .join(','),
  },
]

/** The maximum number of objects in a list. Usually there are one Service and one or two EndpointSlices. */
const MOST_OBJECTS = 50
/** The maximum number of servers of one place. */
const MOST_OF_PLACE = 24

interface Port {
  readonly port?: unknown
  readonly protocol?: unknown
}

interface Endpoint {
  readonly addresses?: unknown
  readonly conditions?: { readonly ready?: unknown } | null
}

interface FoundServers {
  readonly servers: readonly AskedServer[]
  /** The number of further servers. */
  readonly leftOut: number
}

/** The addresses of Services come first. Throws the error of the API server. */
async function findDnsServers(
  admin: Pick<ClusterAdmin, 'list'>,
  { role, namespace, labelSelector }: DnsPlace,
  signal: AbortSignal,
): Promise<FoundServers> {
  const scope = { namespace, labelSelector, limit: MOST_OBJECTS }
  const [services, slices] = await Promise.all([
    admin.list('v1', 'Service', scope, signal),
    admin.list('discovery.k8s.io/v1', 'EndpointSlice', scope, signal),
  ])
  const all = [...new Set([...services.flatMap(ofService), ...slices.flatMap(ofSlice).sort()])]
  const servers = all.slice(0, MOST_OF_PLACE).map((server) => ({ role, server }))
  return { servers, leftOut: all.length - servers.length }
}

function ofService(service: ManifestObject): readonly string[] {
  const { spec } = service as { readonly spec?: { clusterIP?: unknown; clusterIPs?: unknown; ports?: unknown } }
  return serverTexts(Array.isArray(spec?.clusterIPs) ? spec.clusterIPs : [spec?.clusterIP], spec?.ports)
}

function ofSlice(slice: ManifestObject): readonly string[] {
  const { endpoints, ports } = slice as { readonly endpoints?: unknown; readonly ports?: unknown }
  const addresses = objectsIn(endpoints)
    .filter(({ conditions }: Endpoint) => conditions?.ready !== false)
    // All addresses of an endpoint belong to the same pod.
    .map(({ addresses: all }: Endpoint): unknown => (Array.isArray(all) ? all[0] : undefined))
  return serverTexts(addresses, ports)
}

/** Skips values that are not addresses, such as `None` of a headless Service or a host name. */
function serverTexts(addresses: readonly unknown[], ports: unknown): readonly string[] {
  const udp = objectsIn(ports).find(({ protocol }: Port) => protocol === 'UDP') as Port | undefined
  return addresses.flatMap((address) => serverText(address, udp?.port) ?? [])
}

function serverText(address: unknown, port: unknown): string | undefined {
  if (typeof address !== 'string' || typeof port !== 'number') return undefined
  try {
    return formatAddressPort(parseAddressPort(`${address.includes(':') ? `[${address}]` : address}:${port}`))
  } catch {
    return undefined
  }
}

function objectsIn(value: unknown): readonly object[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : []
  return all.filter((one) => typeof one === 'object' && one !== null)
}

const PART = 'agent'
/**
 * The time limit of the command, which starts slowly on a busy node. Its own questions have shorter limits, of at most
 * 8 s.
 */
const MS = 15_000
const LIST_MS = 4000

type Admin = Pick<ClusterAdmin, 'title' | 'list' | 'get' | 'exec'>

interface Found<T> {
  readonly value: T
  /** The questions that were not answered. */
  readonly facts: readonly Fact[]
}

/** Rejects only with the signal's reason. */
export async function networkProbes(admin: Admin, { area, progress, signal }: PodProbesInit): Promise<readonly Fact[]> {
  const broker = isWanted('broker', area)
  const places = isWanted('dns', area) ? DNS_PLACES : []
  if (!broker && places.length === 0) return []
  const [pod, ...found] = await Promise.all([
    agentPod(admin, signal),
    ...places.map((place) => serversOf(admin, place, signal)),
  ])
  const facts = [...pod.facts, ...found.flatMap((one) => one.facts)]
  const servers = found.flatMap(({ value }) => value)
  if (pod.value === undefined || (!broker && servers.length === 0)) return facts
  const look = lookFrom(admin, { pod: pod.value, broker, servers }, signal)
  return [...facts, ...(await progress.follow(`pod network, from ${pod.value}`, look))]
}

async function serversOf(admin: Admin, place: DnsPlace, signal: AbortSignal): Promise<Found<readonly AskedServer[]>> {
  const { namespace } = place
  let value: readonly AskedServer[] = []
  const question = {
    ...{ what: `DnsServers of ${namespace}`, source: `API server of ${admin.title}`, needed: false, ms: LIST_MS },
    right: `list services and endpointslices.discovery.k8s.io in namespace ${namespace}`,
    ask: async (limited: AbortSignal): Promise<readonly Fact[]> => {
      const found = await findDnsServers(admin, place, limited)
      value = found.servers
      return found.leftOut === 0 ? [] : [notAsked(namespace, found.leftOut)]
    },
  }
  const facts = await askFor(question, signal)
  return { value, facts }
}

function notAsked(namespace: string, leftOut: number): UnansweredFact {
  const message = `${leftOut} DNS servers of ${namespace} were not queried, because the limit is ${MOST_OF_PLACE}`
  const at = new Date().toISOString()
  const what = `DnsServers others of ${namespace}`
  return { t: 'unanswered', what, source: 'diagnose', at, needed: false, reason: 'NotAnswered', message }
}

/** The pod of the active agent if it is known and runs, else a pod that is ready, else one that runs. */
async function agentPod(admin: Admin, signal: AbortSignal): Promise<Found<string | undefined>> {
  const labelSelector = Object.entries(selectorLabels(PART))
    .map((pair) => pair.join('='))
    .join(',')
  let value: string | undefined
  const question = {
    ...{ what: 'Pods of agents', source: `API server of ${admin.title}`, needed: false, ms: LIST_MS },
    right: `list pods in namespace ${SYSTEM_NAMESPACE}`,
    ask: async (limited: AbortSignal): Promise<readonly Fact[]> => {
      const [pods, holder] = await Promise.all([
        admin.list('v1', 'Pod', { namespace: SYSTEM_NAMESPACE, labelSelector }, limited),
        leaseHolder(admin, limited),
      ])
      const rank = (pod: ManifestObject): string =>
        `${holder.startsWith(`${pod.metadata.name}-`) ? 0 : 1}${isReady(pod) ? 0 : 1}${pod.metadata.name}`
      value = pods.filter(isRunning).sort((a, b) => (rank(a) < rank(b) ? -1 : 1))[0]?.metadata.name
      return []
    },
  }
  const facts = await askFor(question, signal)
  return { value, facts: value === undefined && facts.length === 0 ? [nothingRuns()] : facts }
}

/** Empty if it is not known. Then any pod is used. */
async function leaseHolder(admin: Admin, signal: AbortSignal): Promise<string> {
  const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', namespace: SYSTEM_NAMESPACE, name: AGENT_LEASE }
  const found = await admin.get(lease, signal).catch(() => undefined)
  const { holderIdentity } = (found as { readonly spec?: { holderIdentity?: unknown } } | undefined)?.spec ?? {}
  return typeof holderIdentity === 'string' ? holderIdentity : ''
}

interface PodStatus {
  readonly phase?: unknown
  readonly conditions?: readonly { readonly type?: unknown; readonly status?: unknown }[]
}

function isRunning(pod: ManifestObject): boolean {
  const { phase } = (pod as { readonly status?: PodStatus }).status ?? {}
  return phase === 'Running' && (pod.metadata as { deletionTimestamp?: unknown }).deletionTimestamp === undefined
}

function isReady(pod: ManifestObject): boolean {
  const { conditions = [] } = (pod as { readonly status?: PodStatus }).status ?? {}
  return conditions.some(({ type, status }) => type === 'Ready' && status === 'True')
}

function nothingRuns(): UnansweredFact {
  const message = 'no pod of the agent runs: broker and DNS servers were not checked from pods'
  const origin = { source: 'diagnose', at: new Date().toISOString(), needed: false }
  return { t: 'unanswered', what: 'Pod sealane-agent-*', ...origin, reason: 'NotAnswered', message }
}

interface NetworkQuestions {
  readonly pod: string
  readonly broker: boolean
  readonly servers: readonly AskedServer[]
}

function lookFrom(
  admin: Admin,
  { pod, broker, servers }: NetworkQuestions,
  signal: AbortSignal,
): Promise<readonly Fact[]> {
  const source = `pod ${pod}`
  const words = servers.flatMap((asked) => ['--dns', askedServerText(asked)])
  const command = ['sealane', MACHINE_COMMAND, ...(broker ? ['--broker'] : []), ...words]
  const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => {
    const place = { namespace: SYSTEM_NAMESPACE, pod, container: PART, command, timeoutMs: MS }
    const { status, stdout, stderr } = await admin.exec(place, limited)
    if (status !== 0) throw new Error(`its command ended with ${status}: ${stderr.trim().slice(0, 300)}`)
    return readNetworkFacts(stdout, { source, at: new Date().toISOString(), broker, servers })
  }
  const right = `${EXEC_RIGHT} in namespace ${SYSTEM_NAMESPACE}`
  return askFor({ what: `Pod ${pod} (network)`, source, needed: false, ms: MS, right, ask }, signal)
}
