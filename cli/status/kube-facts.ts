/**
 * Gathers the facts of a Kubernetes cluster: its objects, and the status pages of pods through the API server's proxy.
 * Needs only read access. An object that this user may not read becomes a fact.
 */
import {
  FACTS_FORMAT,
  type Fact,
  type FactKind,
  type ObjectsFact,
  hasAllBackends,
  readFacts,
  readReport,
  slimmed,
  worldOf,
} from '../../explain/facts/facts.ts'
import { STATUS_PORTS, selectorLabels } from '../../install/values/values.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { type DynamicClient, type DynamicObject, KIND_PLACES } from '../../kubeapi/kube/kube.ts'
import { LABEL_SOURCE_CLUSTER, SYSTEM_NAMESPACE } from '../../model/model.ts'
import { KindMissingError, type Question, askFor } from './ask.ts'

// Selects the NetworkPolicies that matter: those of namespaces with exports or imports, and Sealane's own. The pods of
// an exported Service are listed only if a policy may apply to them.

/** For more namespaces than this, all Services are listed at once. */
const MOST_NAMESPACES = 16

/** The facts that were gathered before. */
interface PolicyInputs {
  readonly policies: readonly Fact[]
  readonly exports: readonly Fact[]
  readonly imports: readonly Fact[]
}

/** Lists the Services of one namespace, or of all if it is undefined. */
type ListServices = (namespace: string | undefined) => Promise<readonly Fact[]>

/** Facts about unanswered questions stay as they are. */
async function policyFacts(inputs: PolicyInputs, services: ListServices): Promise<readonly Fact[]> {
  const [exported, imported] = [namesIn(inputs.exports), namesIn(inputs.imports)]
  const spaces = (names: ReadonlySet<string>): string[] => [...names].map((name) => name.slice(0, name.indexOf('/')))
  const relevant = new Set([SYSTEM_NAMESPACE, ...spaces(exported), ...spaces(imported)])
  const policies = inputs.policies.map((fact) => kept(fact, (item) => relevant.has(item.metadata.namespace ?? '')))
  const closed = new Set(spaces(namesIn(policies)))
  const asked = [...new Set(spaces(exported))].filter((namespace) => closed.has(namespace)).sort()
  const places = asked.length > MOST_NAMESPACES ? [undefined] : asked
  const found = (await Promise.all(places.map(services))).flat()
  return [...policies, ...found.map((fact) => kept(fact, (item) => exported.has(nameOf(item))))]
}

function kept(fact: Fact, isKept: (item: Named) => boolean): Fact {
  return isObjects(fact) ? { ...fact, items: (fact.items as readonly Named[]).filter(isKept) } : fact
}

/** The names of the objects, such as `shop/web`. */
function namesIn(facts: readonly Fact[]): ReadonlySet<string> {
  return new Set(facts.filter(isObjects).flatMap(({ items }) => (items as readonly Named[]).map(nameOf)))
}

type Named = Pick<DynamicObject, 'metadata'>

function nameOf({ metadata: { namespace = '', name } }: Named): string {
  return `${namespace}/${name}`
}

function isObjects(fact: Fact): fact is ObjectsFact {
  return fact.t === 'objects'
}

export interface KubeFactsInit {
  readonly title: string
  /** The time limit of each list of objects. */
  readonly timeoutMs: number
  /**
   * Skips the list of backends of imported Services if the agent has just checked them and reports that none is
   * missing.
   */
  readonly asksAgentFirst?: boolean
  readonly signal: AbortSignal
}

type Reader = Pick<DynamicClient, 'listPicked' | 'knows' | 'readPod'>

interface ListPlace {
  readonly apiVersion: string
  readonly plural: string
  readonly namespace?: string
  readonly labelSelector?: string
  readonly needed: boolean
  /**
   * The maximum number of objects. If there are more, none is used, because conclusions from a part of them would be
   * wrong. Undefined for no limit.
   */
  readonly most?: number
}

const OURS = Object.entries(selectorLabels('agent')).map((pair) => pair.join('='))
const PARTS = OURS.filter((pair) => !pair.includes('component')).join(',')
const INSTALLED = { namespace: SYSTEM_NAMESPACE, labelSelector: PARTS, needed: false }

const PLACES: Readonly<Record<FactKind, ListPlace>> = {
  Membership: { ...KIND_PLACES.Membership, needed: true },
  Cluster: { ...KIND_PLACES.Cluster, needed: true },
  Endpoint: { ...KIND_PLACES.Endpoint, needed: true },
  Gateway: { ...KIND_PLACES.Gateway, needed: true },
  RouteAgent: { ...KIND_PLACES.RouteAgent, needed: true },
  ServiceExport: { ...KIND_PLACES.ServiceExport, needed: true },
  ServiceImport: { ...KIND_PLACES.ServiceImport, needed: true },
  EndpointSlice: { ...KIND_PLACES.EndpointSlice, labelSelector: LABEL_SOURCE_CLUSTER, needed: true },
  Node: { ...KIND_PLACES.Node, needed: false },
  Lease: { ...KIND_PLACES.Lease, namespace: SYSTEM_NAMESPACE, needed: false },
  Pod: { ...KIND_PLACES.Pod, ...INSTALLED },
  Deployment: { apiVersion: 'apps/v1', plural: 'deployments', ...INSTALLED },
  DaemonSet: { apiVersion: 'apps/v1', plural: 'daemonsets', ...INSTALLED },
  NetworkPolicy: { apiVersion: 'networking.k8s.io/v1', plural: 'networkpolicies', needed: false, most: 10_000 },
  Service: { ...KIND_PLACES.Service, needed: false },
  TrafficPolicy: { ...KIND_PLACES.TrafficPolicy, needed: false, most: 10_000 },
  ClusterTrafficPolicy: { ...KIND_PLACES.ClusterTrafficPolicy, needed: false },
}
/** Kinds on which further questions depend. All other kinds are only listed, at once. */
const FURTHER: readonly FactKind[] = [
  'Pod',
  'ServiceExport',
  'ServiceImport',
  'EndpointSlice',
  'NetworkPolicy',
  'Service',
]
const OTHERS = (Object.keys(PLACES) as readonly FactKind[]).filter((kind) => !FURTHER.includes(kind))

/** The time limit for the answer of a pod. Its report is not worth a longer wait. */
const PART_MS = 700
/** The parts with a network namespace of their own. The other parts report in objects. */
const ASKED_PARTS = { agent: STATUS_PORTS.agent, dns: STATUS_PORTS.dns } as const
/** The maximum number of pods of one part. Further ones report nothing new. */
const MOST_PODS = 8

/**
 * Rejects if the API server does not answer at all, or does not accept the credentials. A reader that knows the API
 * groups from an earlier look asks for lists alone: then it rejects if no list got an answer.
 */
export async function kubeFacts(reader: Reader, init: KubeFactsInit): Promise<readonly Fact[]> {
  const { signal, timeoutMs } = init
  await knowGroups(reader, signal)
  const source = `API server of ${init.title}`
  const lists: Promise<readonly Fact[]>[] = []
  const ask = (kind: FactKind, namespace?: string): Promise<readonly Fact[]> => {
    const place = { ...PLACES[kind], ...(namespace === undefined ? {} : { namespace }) }
    const question: Question = {
      what: kind,
      source,
      needed: place.needed,
      ms: timeoutMs,
      right: rightOf(place),
      ask: async (limited) => [objectsFact(kind, source, await listOf(reader, kind, place, limited))],
    }
    const list = askFor(question, signal)
    lists.push(list)
    return list
  }
  const began = performance.now()
  const [pods, exports, imports] = [ask('Pod'), ask('ServiceExport'), ask('ServiceImport')]
  const reports = pods.then((facts) => {
    const way = performance.now() - began
    return reportFacts(reader, facts, Math.round(PART_MS + 2 * way), signal)
  })
  const policies = Promise.all([ask('NetworkPolicy'), exports, imports]).then(([found, exported, imported]) => {
    return policyFacts({ policies: found, exports: exported, imports: imported }, (namespace) =>
      ask('Service', namespace),
    )
  })
  const others = OTHERS.map((kind) => ask(kind))
  const first = init.asksAgentFirst === true ? Promise.all([reports, imports, ...others]) : undefined
  const slices = Promise.resolve(first).then((facts) => {
    return facts !== undefined && isSureOfImports(facts.flat()) ? [] : ask('EndpointSlice')
  })
  const facts = (await Promise.all([pods, reports, exports, imports, policies, slices, ...others])).flat()
  const silent = (await Promise.all(lists)).flat().map(silenceOf)
  if (silent[0] !== undefined && !silent.includes(undefined)) {
    throw new ClusterApiError('Unavailable', `${source}: ${silent[0]}`)
  }
  return facts
}

/** Why there was no answer. A refusal is one. */
function silenceOf(fact: Fact): string | undefined {
  return fact.t === 'unanswered' && fact.reason === 'NotAnswered' ? fact.message : undefined
}

/** Decides this with the function that the checks use, because the report of an agent may contain anything. */
function isSureOfImports(facts: readonly Fact[]): boolean {
  const takenAt = new Date().toISOString()
  return hasAllBackends(worldOf(readFacts({ format: FACTS_FORMAT, takenAt, target: '', facts })))
}

/** Discovers each API group once before all questions start at the same time. */
async function knowGroups(reader: Reader, signal: AbortSignal): Promise<void> {
  const first = new Map<string, FactKind>()
  for (const [kind, { apiVersion }] of Object.entries(PLACES)) {
    if (!first.has(apiVersion)) first.set(apiVersion, kind as FactKind)
  }
  await Promise.all([...first].map(([apiVersion, kind]) => reader.knows({ apiVersion, kind }, signal)))
}

async function listOf(
  reader: Reader,
  kind: FactKind,
  { apiVersion, plural, namespace, labelSelector, most }: ListPlace,
  signal: AbortSignal,
): Promise<readonly unknown[]> {
  const scope = labelSelector === undefined ? { namespace } : { namespace, labelSelector }
  const bound = most === undefined ? {} : { most: most + 1 }
  try {
    const pick = (object: DynamicObject): unknown => slimmed(kind, object)
    const found = await reader.listPicked({ apiVersion, kind, ...scope, ...bound }, pick, signal)
    if (most !== undefined && found.length > most) throw new Error(`there are more than ${most}: they are not examined`)
    return found
  } catch (error) {
    if (!(error instanceof ClusterApiError && error.code === 'NotFound')) throw error
    throw new KindMissingError(`${plural}.${apiVersion}`)
  }
}

function rightOf({ apiVersion, plural, namespace }: ListPlace): string {
  const [group] = apiVersion.split('/')
  const place = namespace === undefined ? '' : ` in namespace ${namespace}`
  return `list ${plural}${apiVersion.includes('/') ? `.${group ?? ''}` : ''}${place}`
}

function objectsFact(kind: FactKind, source: string, items: readonly unknown[]): Fact {
  return { t: 'objects', kind, source, at: new Date().toISOString(), items }
}

/** Asks all pods at once, except those that are being deleted. */
async function reportFacts(
  reader: Reader,
  facts: readonly Fact[],
  ms: number,
  signal: AbortSignal,
): Promise<readonly Fact[]> {
  const pods = facts.flatMap((fact) => (fact.t === 'objects' ? (fact.items as readonly RunningPod[]) : []))
  const asked = Object.entries(ASKED_PARTS).flatMap(([part, port]) =>
    pods
      .filter(({ metadata, status }) => {
        const isOf = metadata.labels?.['app.kubernetes.io/component'] === part
        return isOf && status?.phase === 'Running' && metadata.deletionTimestamp === undefined
      })
      .slice(0, MOST_PODS)
      .map(({ metadata: { name } }) => ({ part, name, port })),
  )
  const answers = asked.map(({ part, name, port }) => {
    const source = `pod ${name}`
    const page = { namespace: SYSTEM_NAMESPACE, name, port, path: '/status' }
    const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => [
      readReport(await reader.readPod(page, limited), { name, source, at: new Date(), part }),
    ]
    const right = `get pods/proxy in namespace ${SYSTEM_NAMESPACE}`
    return askFor({ what: `Pod ${name}`, source: 'API server, for the pod', needed: false, ms, right, ask }, signal)
  })
  return (await Promise.all(answers)).flat()
}

interface RunningPod {
  readonly metadata: {
    readonly name: string
    readonly labels?: Readonly<Record<string, string>>
    readonly deletionTimestamp?: string
  }
  readonly status?: { readonly phase?: string }
}
