/**
 * The items of a bundle about a Kubernetes cluster: objects, the reports of the parts, their pages through the API
 * server's proxy, and their logs. Needs only read access, and reads no Secrets.
 */
import { STATUS_PORTS } from '../../install/values/values.ts'
import { type DynamicClient, type DynamicObject, KIND_PLACES } from '../../kubeapi/kube/kube.ts'
import { LABEL_K8S_SERVICE_NAME, LABEL_SOURCE_CLUSTER, SYSTEM_NAMESPACE } from '../../model/model.ts'
import { gatherFacts, kubeFacts } from '../status/status.ts'
import { withinTime } from '../context/context.ts'
import { REPORT_FIELDS, fields } from './kind-fields.ts'
import { type Answer, type BundleItem, exportedFile, factsItem, maxBytesOf, objectsFile } from './items.ts'

export interface KubeItemsInit {
  readonly title: string
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

type Reader = Pick<DynamicClient, 'list' | 'listPicked' | 'knows' | 'readPod' | 'read'>

interface Listed {
  readonly apiVersion: string
  readonly kind: string
  readonly namespace?: string
  readonly labelSelector?: string
}

const OURS = { namespace: SYSTEM_NAMESPACE }
const LISTS: readonly Listed[] = [
  ...(
    [
      'Membership',
      'Cluster',
      'Endpoint',
      'Gateway',
      'RouteAgent',
      'ServiceExport',
      'ServiceImport',
      'AccessPolicy',
      'ClusterAccessPolicy',
      'TrafficPolicy',
      'ClusterTrafficPolicy',
    ] as const
  ).map((kind) => ({ apiVersion: KIND_PLACES[kind].apiVersion, kind })),
  { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', labelSelector: LABEL_SOURCE_CLUSTER },
  { apiVersion: 'v1', kind: 'Node' },
  { apiVersion: 'v1', kind: 'Namespace' },
  { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy' },
  { apiVersion: 'v1', kind: 'Pod', ...OURS },
  { apiVersion: 'v1', kind: 'Event', ...OURS },
  { apiVersion: 'v1', kind: 'ConfigMap', ...OURS },
  { apiVersion: 'v1', kind: 'Service', ...OURS },
  { apiVersion: 'apps/v1', kind: 'Deployment', ...OURS },
  { apiVersion: 'apps/v1', kind: 'DaemonSet', ...OURS },
  { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', ...OURS },
]

/** Listed whole, and of them those of exported services: a call from another cluster ends there. */
const EXPORTED: readonly Listed[] = [
  { apiVersion: 'v1', kind: 'Service' },
  { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', labelSelector: LABEL_K8S_SERVICE_NAME },
]

const VERSION = fields('major minor gitVersion gitCommit platform goVersion buildDate compiler')
const MAX_BYTES = 8 << 20
const MAX_LOG = 1 << 20
const LOG_LINES = 2000
/** The maximum number of pods. A cluster with thousands of nodes has as many route agents, which report nothing new. */
const MOST_PODS = 40

/** Lists the pods first, because further items depend on them. */
export async function kubeItems(reader: Reader, init: KubeItemsInit): Promise<readonly BundleItem[]> {
  const { title, timeoutMs, signal } = init
  const facts = factsItem(2 * timeoutMs + 1000, () => gatherFacts(title, () => kubeFacts(reader, init)))
  const objects = LISTS.map((place): BundleItem => {
    const ask = async (limited: AbortSignal): Promise<Answer> => ({
      // The items of a list do not contain their kind, which determines how they are filtered.
      ...{ items: await reader.list(place, limited), kind: place.kind },
    })
    return { name: objectsFile(place.kind), ms: timeoutMs, maxBytes: maxBytesOf(place.kind), ask }
  })
  const exported = EXPORTED.map((place): BundleItem => {
    const ask = async (limited: AbortSignal): Promise<Answer> => {
      const { apiVersion } = KIND_PLACES.ServiceExport
      const [exports, all] = await Promise.all([
        reader.list({ apiVersion, kind: 'ServiceExport' }, limited),
        reader.list(place, limited),
      ])
      const names = new Set(exports.map(({ metadata: { namespace = '', name } }) => `${namespace}/${name}`))
      return { items: all.filter((one) => names.has(serviceOf(one, place.kind))), kind: place.kind }
    }
    return { name: exportedFile(place.kind), ms: timeoutMs, maxBytes: MAX_BYTES, ask }
  })
  const pods = await podsOf(reader, timeoutMs, signal)
  const version: BundleItem = {
    ...{ name: 'version.json', ms: timeoutMs, maxBytes: MAX_BYTES },
    ask: async (limited) => ({ json: await reader.read('/version', limited), allowed: VERSION }),
  }
  const of = pods
    .slice(0, MOST_PODS)
    .flatMap((pod) => [...logItems(reader, pod, timeoutMs), ...pageItems(reader, pod, timeoutMs)])
  return [facts, version, ...objects, ...exported, ...of]
}

/** The service that an object is or belongs to. Imported slices belong to none of this cluster. */
function serviceOf({ metadata: { namespace = '', name, labels = {} } }: DynamicObject, kind: string): string {
  if (kind === 'Service') return `${namespace}/${name}`
  return LABEL_SOURCE_CLUSTER in labels ? '' : `${namespace}/${labels[LABEL_K8S_SERVICE_NAME] ?? ''}`
}

interface PodPart {
  readonly name: string
  readonly part: string
  readonly containers: readonly string[]
}

/** Empty if the pods cannot be listed. The item with the list of pods contains the error. */
async function podsOf(reader: Reader, ms: number, signal: AbortSignal): Promise<readonly PodPart[]> {
  try {
    const place = { apiVersion: 'v1', kind: 'Pod', ...OURS }
    const pods = await withinTime(signal, ms, (limited) => reader.list(place, limited))
    return pods.map((pod) => {
      const { metadata, spec } = pod as unknown as Pod
      const part = metadata.labels?.['app.kubernetes.io/component'] ?? ''
      return { name: metadata.name, part, containers: (spec?.containers ?? []).map(({ name }) => name) }
    })
  } catch {
    signal.throwIfAborted()
    return []
  }
}

interface Pod {
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> }
  readonly spec?: { readonly containers?: readonly { readonly name: string }[] }
}

function logItems(reader: Reader, { name: pod, containers }: PodPart, ms: number): readonly BundleItem[] {
  return containers.map((container): BundleItem => {
    const query = `container=${encodeURIComponent(container)}&tailLines=${LOG_LINES}&limitBytes=${MAX_LOG}`
    const path = `/api/v1/namespaces/${SYSTEM_NAMESPACE}/pods/${encodeURIComponent(pod)}/log?${query}`
    const name = `logs/${pod.slice(0, 60)}.${container.slice(0, 20)}.txt`
    const ask = async (limited: AbortSignal): Promise<Answer> => ({ log: textOf(await reader.read(path, limited)) })
    return { name, ms, maxBytes: MAX_LOG, keeps: 'end', ask }
  })
}

function pageItems(reader: Reader, { name: pod, part }: PodPart, ms: number): readonly BundleItem[] {
  const port = (STATUS_PORTS as Readonly<Record<string, number>>)[part]
  if (port === undefined) return []
  return ['status', 'readyz', 'metrics', 'debug/plan'].map((page): BundleItem => {
    const at = { namespace: SYSTEM_NAMESPACE, name: pod, port, path: `/${page}` }
    const name = `${page.replace('debug/', '')}/${pod.slice(0, 60)}.txt`
    const ask = async (limited: AbortSignal): Promise<Answer> => pageAnswer(page, await reader.readPod(at, limited))
    return { name, ms, maxBytes: MAX_BYTES, keeps: 'beginning', ask }
  })
}

function pageAnswer(page: string, answer: unknown): Answer {
  if (page === 'status') return { json: answer, allowed: REPORT_FIELDS }
  return page === 'metrics' ? { metrics: textOf(answer) } : { text: textOf(answer) }
}

/** The client parses a text that happens to be JSON, such as one line of a log. */
function textOf(answer: unknown): string {
  return typeof answer === 'string' ? answer : JSON.stringify(answer)
}
