/** A site that is a real cluster: its objects, its identity's Secret, and the election of its agents. */
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { MembershipAccess } from '../../agent/membership/membership.ts'
import {
  AGENT_LEASE,
  IDENTITY_SECRET,
  IDENTITY_SECRET_TYPE,
  type ManifestObject,
  type MarkKind,
  type Marks,
  OBJECT_MARKS,
  keyProblem,
  partLabels,
  valueProblem,
} from '../../install/values/values.ts'
import type { LeaseStore } from '../../kubeapi/kubeapi.ts'
import type { KubernetesAccess } from '../../kubeapi/files/files.ts'
import {
  type DynamicClient,
  type KubeApi,
  type KubeApiInit,
  type Refusal,
  lacksObjectMarks,
  openKubeApi,
} from '../../kubeapi/kube/kube.ts'
import type { ElectionTiming } from '../../model/lanes/lanes.ts'
import {
  APP_MANAGED_BY_SEALANE,
  LABEL_APP_MANAGED_BY,
  LABEL_SERVICE_NAME,
  MEMBERSHIP_NAME,
  type Node,
} from '../../model/model.ts'
import { type IdentityStore, type JoinStore, secretIdentity } from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, messageOf, reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { type SecretClient, secretAccess } from './secret-access.ts'

export interface KubeSite extends MembershipAccess {
  readonly identity: IdentityStore & JoinStore
  /** Calls `lead` while this process is the one agent that acts. Resolves after the signal, or when `lead` ends. */
  elect(timing: ElectionTiming, lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void>
  /** The Node as the server has it now; undefined when it says that there is none. Throws ClusterApiError. */
  askNode(name: string, signal: AbortSignal): Promise<Node | undefined>
  /** In the namespace that Sealane is installed in. */
  readonly leases: LeaseStore
  /** What the API server does not let this process do now. */
  readonly refused: () => readonly Refusal[]
}

export interface OpenKubeSiteInit {
  readonly access: KubernetesAccess
  /** Text of the site file. */
  readonly settings: string
  /** Absent: all. */
  readonly components: readonly string[] | undefined
  readonly signal: AbortSignal
  /** Default: that of the process. */
  readonly env?: Readonly<Record<string, string | undefined>>
}

const MEMBERSHIP = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }

/** Throws UserError where the environment asks for labels or annotations that cannot be. */
export async function openKubeSite(
  deps: { readonly clock: Clock; readonly logger: Logger; readonly metrics: Metrics | undefined },
  { access, settings, components, signal, env = process.env }: OpenKubeSiteInit,
): Promise<{ api: KubeApi; kube: KubeSite }> {
  const marks = readObjectMarks(env)
  let isMarked = false
  const api = await openKubeApi(deps, { ...access, selectors: selectorsFor(components, access.namespace), marks })
  const place = {
    namespace: access.namespace,
    name: IDENTITY_SECRET,
    type: IDENTITY_SECRET_TYPE,
    labels: { ...marks.labels, ...partLabels('agent') },
    annotations: marks.annotations,
  }
  const candidate = { name: AGENT_LEASE, identity: `${hostname()}-${randomBytes(4).toString('hex')}` }
  return {
    api,
    kube: {
      identity: secretIdentity(secretAccess(secretClient(api.dynamic), place, signal), settings),
      elect: (timing, lead, until) => api.elect({ ...candidate, ...timing }, lead, until),
      askNode: async (name, until) =>
        (await api.dynamic.getForSure({ apiVersion: 'v1', kind: 'Node', name }, until)) as unknown as Node | undefined,
      leases: api.leases,
      refused: () => api.refused(),
      hasMembership: async (until) => {
        const found = await api.dynamic.getForSure(MEMBERSHIP, until)
        if (found === undefined) return false
        // Nothing else writes it while the cluster is a member. Not by applying it: who says meanwhile that the cluster
        // leaves is not to be undone.
        if (lacksObjectMarks(found.metadata, marks) && !isMarked) {
          // Once: whoever takes the marks away again has a reason, and where they are refused it is a member all the same.
          isMarked = true
          const { labels, annotations } = marks
          const change = { metadata: { labels, annotations } }
          await api.dynamic.patch(MEMBERSHIP, change, { type: 'merge' }, until).catch((error: unknown) => {
            deps.logger.warn('the Membership does not get its labels', {
              reason: reasonOf(error) ?? 'ObjectNotWritten',
              why: messageOf(error),
            })
          })
        }
        return true
      },
      createMembership: async ({ apiVersion, kind, metadata: { name }, spec }, until) => {
        const labels = { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE }
        await api.dynamic.create({ apiVersion, kind, metadata: { name, labels }, spec }, {}, until)
      },
    },
  }
}

function secretClient(dynamic: Pick<DynamicClient, 'get' | 'create' | 'patch'>): SecretClient {
  return {
    get: async (ref, signal) => (await dynamic.get(ref, signal)) as ManifestObject | undefined,
    create: (object, options, signal) => dynamic.create(object, options, signal),
    merge: async (ref, patch, signal) => {
      await dynamic.patch(ref, patch, { type: 'merge' }, signal)
    },
  }
}

/** Only the agent looks at the slices that belong to no import; a node's processes would keep the whole cluster's. */
function selectorsFor(
  components: readonly string[] | undefined,
  namespace: string,
): NonNullable<KubeApiInit['selectors']> {
  const own = { Lease: { namespace } }
  if (components === undefined || components.includes('agent')) return own
  return { ...own, EndpointSlice: { labelSelector: LABEL_SERVICE_NAME } }
}

// The labels and annotations of every object that is written, as the environment of a pod says them.

type TextMap = Readonly<Record<string, string>>

/** What objectMarksEnv() says. Throws UserError that names variable and key. */
export function readObjectMarks(env: Readonly<Record<string, string | undefined>>): Marks {
  return { labels: readMap(env, 'labels'), annotations: readMap(env, 'annotations') }
}

function readMap(env: Readonly<Record<string, string | undefined>>, kind: MarkKind): TextMap {
  const name = OBJECT_MARKS[kind]
  const text = env[name] ?? ''
  if (text === '') return {}
  const map = parsed(text)
  if (typeof map !== 'object' || map === null || Array.isArray(map)) {
    throw new UserError(`${name} ${shown(text)}: expected a JSON object of texts, such as {"team":"net"}`)
  }
  const pairs = Object.entries(map).map(([key, value]: [string, unknown]): [string, string] => {
    const problem = keyProblem(key)
    if (problem !== undefined) throw new UserError(`${name}: key ${shown(key)}: ${problem}`)
    if (typeof value !== 'string') throw new UserError(`${name}: value of ${key}: expected a text`)
    const wrong = valueProblem(kind, value)
    if (wrong !== undefined) throw new UserError(`${name}: value of ${key} ${shown(value)}: ${wrong}`)
    return [key, value]
  })
  return Object.fromEntries(pairs)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}
