/** A site that is a Kubernetes cluster: its objects, the Secret of its identity, and the election of its agents. */
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { DnsMaps } from '../../agent/cluster/cluster.ts'
import type { GatewayChoice, GatewayMarker } from '../../agent/gateways/gateways.ts'
import type { ChangeMembership, MembershipAccess, NoteRelays } from '../../agent/membership/membership.ts'
import {
  AGENT_LEASE,
  IDENTITY_SECRET,
  IDENTITY_SECRET_TYPE,
  type ManifestObject,
  type MarkKind,
  type Marks,
  OBJECT_MARKS,
  TOKEN_SECRET,
  keyProblem,
  partLabels,
  valueProblem,
} from '../../install/values/values.ts'
import { ClusterApiError, type LeaseStore } from '../../kubeapi/kubeapi.ts'
import type { KubernetesAccess } from '../../kubeapi/files/files.ts'
import {
  type DynamicClient,
  type KubeApi,
  type KubeApiInit,
  type Refusal,
  lacksObjectMarks,
  openKubeApi,
} from '../../kubeapi/kube/kube.ts'
import { GATEWAY_NODES, REPLACE_GATEWAYS, REPLACE_MISSING, REPLACE_NEVER } from '../../install/workloads/workloads.ts'
import { type ElectionTiming, LABEL_GATEWAY, RELAYS_ANNOTATION } from '../../model/lanes/lanes.ts'
import {
  APP_MANAGED_BY_SEALANE,
  LABEL_APP_MANAGED_BY,
  LABEL_SERVICE_NAME,
  MEMBERSHIP_NAME,
  type Node,
  isQualifiedName,
} from '../../model/model.ts'
import { withoutLinkCandidates } from '../../model/schemas/schemas.ts'
import {
  type IdentityStore,
  type JoinStore,
  type SecretAccess,
  TOKEN_PART,
  secretIdentity,
} from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, messageOf, reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { type SecretClient, secretAccess } from './secret-access.ts'

export interface KubeSite extends MembershipAccess {
  readonly identity: IdentityStore & JoinStore
  /** Calls `lead` while this process is the leader. Resolves after the signal, or when `lead` ends. */
  elect(timing: ElectionTiming, lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void>
  /** Absent if the installation says that gateway nodes are not replaced. */
  readonly gatewayMarker?: GatewayMarker
  readonly gatewayChoice: GatewayChoice
  /** The Node that the server has now. Undefined if the server reports that there is none. Throws ClusterApiError. */
  askNode(name: string, signal: AbortSignal): Promise<Node | undefined>
  /** Patches the fields alone: an apply could undo a concurrent request to leave. */
  readonly changeMembership: ChangeMembership
  /** Patches that annotation alone, for the same reason. */
  readonly noteRelays: NoteRelays
  /** The ConfigMaps of the cluster's own DNS, as far as a Role allows them. */
  readonly dnsMaps: DnsMaps
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
  /** This machine's Node. Only its pods are watched. */
  readonly node?: string | undefined
  /** By default, the environment of the process. */
  readonly env?: Readonly<Record<string, string | undefined>>
}

const MEMBERSHIP = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }

/** Throws UserError if the environment has invalid labels or annotations. */
export async function openKubeSite(
  deps: { readonly clock: Clock; readonly logger: Logger; readonly metrics: Metrics | undefined },
  { access, settings, components, signal, node, env = process.env }: OpenKubeSiteInit,
): Promise<{ api: KubeApi; kube: KubeSite }> {
  const marks = readObjectMarks(env)
  const { replaces, ...gatewayChoice } = readGatewayChoice(env)
  let isMarked = false
  const api = await openKubeApi(deps, {
    ...access,
    selectors: selectorsFor({ components, node }, access.namespace),
    slimmers: slimmersFor(components),
    marks,
  })
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
      identity: secretIdentity(secretAccess(secretClient(api.dynamic), place, signal), settings, () =>
        readGivenToken(secretAccess(secretClient(api.dynamic), { ...place, name: TOKEN_SECRET }, signal)),
      ),
      elect: (timing, lead, until) => api.elect({ ...candidate, ...timing }, lead, until),
      askNode: async (name, until) =>
        (await api.dynamic.getForSure({ apiVersion: 'v1', kind: 'Node', name }, until)) as unknown as Node | undefined,
      dnsMaps: {
        read: (namespace, name, until) =>
          api.dynamic.getForSure({ apiVersion: 'v1', kind: 'ConfigMap', namespace, name }, until),
        write: async (map, until) => {
          await api.dynamic.replace({ ...map, apiVersion: 'v1', kind: 'ConfigMap' }, {}, until)
        },
      },
      ...(replaces ? { gatewayMarker: gatewayMarker(api.dynamic) } : {}),
      gatewayChoice,
      changeMembership: async (spec, until) => {
        await api.dynamic.patch(MEMBERSHIP, { spec }, { type: 'merge' }, until)
      },
      noteRelays: async (notice, until) => {
        const annotations = { [RELAYS_ANNOTATION]: notice ?? null }
        await api.dynamic.patch(MEMBERSHIP, { metadata: { annotations } }, { type: 'merge' }, until)
      },
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

/** Undefined if there is none. A role of an earlier release does not allow the read, which must not stop a join. */
async function readGivenToken(secret: SecretAccess): Promise<string | undefined> {
  try {
    return (await secret.read())?.data[TOKEN_PART]
  } catch (error) {
    if (error instanceof ClusterApiError && error.code === 'Forbidden') return undefined
    throw error
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

function gatewayMarker(dynamic: Pick<DynamicClient, 'patch'>): GatewayMarker {
  return {
    // With the uid, the server refuses to change another Node that has the name by now.
    mark: async ({ name, uid }, { labels, annotations }, signal) => {
      const change = { metadata: { uid, labels, annotations } }
      await dynamic.patch({ apiVersion: 'v1', kind: 'Node', name }, change, { type: 'merge' }, signal)
    },
    remember: async (annotation, text, signal) => {
      await dynamic.patch(MEMBERSHIP, { metadata: { annotations: { [annotation]: text } } }, { type: 'merge' }, signal)
    },
  }
}

/** Reads the output of gatewayChoiceEnv(). Throws UserError that names the variable. */
export function readGatewayChoice(
  env: Readonly<Record<string, string | undefined>>,
): GatewayChoice & { readonly replaces: boolean } {
  const text = env[REPLACE_GATEWAYS] ?? ''
  if (!['', REPLACE_NEVER, REPLACE_MISSING].includes(text)) {
    throw new UserError(
      `${REPLACE_GATEWAYS} ${shown(text)}: expected ${REPLACE_MISSING} or ${REPLACE_NEVER}, or nothing`,
    )
  }
  // Keys of Sealane and Kubernetes are allowed here, such as topology.kubernetes.io/zone.
  const nodeSelector = readTexts(env, GATEWAY_NODES, (key, value) => {
    const problem = isQualifiedName(key) ? valueProblem('labels', value) : 'expected the key of a label'
    if (problem !== undefined) throw new UserError(`${GATEWAY_NODES}: ${shown(key)}: ${problem}`)
  })
  // The agent itself gives a node this label, so a candidate cannot have it yet.
  const { [LABEL_GATEWAY]: _chosen, ...candidates } = nodeSelector
  return { replaces: text !== REPLACE_NEVER, fillsUp: text === REPLACE_MISSING, nodeSelector: candidates }
}

/**
 * Selects the objects to watch. Of pods, the route agent knows those of its node. Slices that belong to no import are for the agent, which exports them, and for the
 * route agent, which lets other clusters reach their endpoints. The others would cache those of the whole cluster in
 * vain.
 */
function selectorsFor(
  { components, node }: Pick<OpenKubeSiteInit, 'components' | 'node'>,
  namespace: string,
): NonNullable<KubeApiInit['selectors']> {
  const own = {
    Lease: { namespace },
    ...(node === undefined ? {} : { Pod: { fieldSelector: `spec.nodeName=${node}` } }),
  }
  if (components === undefined || ['agent', 'routeagent'].some((one) => components.includes(one))) return own
  return { ...own, EndpointSlice: { labelSelector: LABEL_SERVICE_NAME } }
}

/** Each node runs a route agent, and every one of them keeps the Gateways of its cluster. */
function slimmersFor(components: OpenKubeSiteInit['components']): NonNullable<KubeApiInit['slimmers']> {
  if (components === undefined || components.includes('gateway')) return {}
  return { Gateway: withoutLinkCandidates }
}

// Reads the labels and annotations for all written objects from the environment of the pod.

type TextMap = Readonly<Record<string, string>>

/** Reads the output of objectMarksEnv(). Throws UserError that names variable and key. */
export function readObjectMarks(env: Readonly<Record<string, string | undefined>>): Marks {
  return { labels: readMap(env, 'labels'), annotations: readMap(env, 'annotations') }
}

function readMap(env: Readonly<Record<string, string | undefined>>, kind: MarkKind): TextMap {
  const name = OBJECT_MARKS[kind]
  return readTexts(env, name, (key, value) => {
    const problem = keyProblem(key)
    if (problem !== undefined) throw new UserError(`${name}: key ${shown(key)}: ${problem}`)
    const wrong = valueProblem(kind, value)
    if (wrong !== undefined) throw new UserError(`${name}: value of ${key} ${shown(value)}: ${wrong}`)
  })
}

/** A map of texts as jsonText() writes it. `check` throws for a pair that is not allowed. */
function readTexts(
  env: Readonly<Record<string, string | undefined>>,
  name: string,
  check: (key: string, value: string) => void,
): TextMap {
  const text = env[name] ?? ''
  if (text === '') return {}
  const map = parsed(text)
  if (typeof map !== 'object' || map === null || Array.isArray(map)) {
    throw new UserError(`${name} ${shown(text)}: expected a JSON object of strings, such as {"team":"net"}`)
  }
  const pairs = Object.entries(map).map(([key, value]: [string, unknown]): [string, string] => {
    if (typeof value !== 'string') throw new UserError(`${name}: value of ${key.slice(0, 100)}: expected a string`)
    check(key, value)
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
