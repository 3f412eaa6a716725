/** A site that is a Kubernetes cluster: its objects, the Secret of its identity, and the election of its agents. */
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
  /** Calls `lead` while this process is the leader. Resolves after the signal, or when `lead` ends. */
  elect(timing: ElectionTiming, lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void>
  /** The Node that the server has now. Undefined if the server reports that there is none. Throws ClusterApiError. */
  askNode(name: string, signal: AbortSignal): Promise<Node | undefined>
  /** The Leases in the namespace that Sealane is installed in. */
  readonly leases: LeaseStore
  /** The current refusals of the API server to this process. */
  readonly refused: () => readonly Refusal[]
}

export interface OpenKubeSiteInit {
  readonly access: KubernetesAccess
  /** The text of the site file. */
  readonly settings: string
  /** If absent, all components. */
  readonly components: readonly string[] | undefined
  readonly signal: AbortSignal
  /** By default, the environment of the process. */
  readonly env?: Readonly<Record<string, string | undefined>>
}

const MEMBERSHIP = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }

/** Throws UserError if the environment has invalid labels or annotations. */
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
        // Nothing else writes the Membership while the cluster is a member. The marks are patched, since an apply could
        // undo a concurrent request to leave.
        if (lacksObjectMarks(found.metadata, marks) && !isMarked) {
          // Done only once: another client may remove the marks on purpose, and a refusal does not affect the
          // membership.
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

/**
 * Selects the objects to watch. Only the agent needs slices that belong to no import. The other processes would cache
 * the slices of the whole cluster.
 */
function selectorsFor(
  components: readonly string[] | undefined,
  namespace: string,
): NonNullable<KubeApiInit['selectors']> {
  const own = { Lease: { namespace } }
  if (components === undefined || components.includes('agent')) return own
  return { ...own, EndpointSlice: { labelSelector: LABEL_SERVICE_NAME } }
}

// Reads the labels and annotations for all written objects from the environment of the pod.

type TextMap = Readonly<Record<string, string>>

/** Reads the output of objectMarksEnv(). Throws UserError that names variable and key. */
export function readObjectMarks(env: Readonly<Record<string, string | undefined>>): Marks {
  return { labels: readMap(env, 'labels'), annotations: readMap(env, 'annotations') }
}

function readMap(env: Readonly<Record<string, string | undefined>>, kind: MarkKind): TextMap {
  const name = OBJECT_MARKS[kind]
  const text = env[name] ?? ''
  if (text === '') return {}
  const map = parsed(text)
  if (typeof map !== 'object' || map === null || Array.isArray(map)) {
    throw new UserError(`${name} ${shown(text)}: expected a JSON object of strings, such as {"team":"net"}`)
  }
  const pairs = Object.entries(map).map(([key, value]: [string, unknown]): [string, string] => {
    const problem = keyProblem(key)
    if (problem !== undefined) throw new UserError(`${name}: key ${shown(key)}: ${problem}`)
    if (typeof value !== 'string') throw new UserError(`${name}: value of ${key}: expected a string`)
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
