/** Configures the cluster's own DNS to forward clusterset.local to Sealane, or removes that configuration. */
import { CLUSTER_DNS_ROLE, clusterDnsAccess } from '../../install/policies/policies.ts'
import { type ManifestObject, objectName } from '../../install/values/values.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { refOf, titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import { ANNOTATION_WIRED_DNS, formatWiredDns, readWiredDns } from '../../model/cluster-dns/cluster-dns.ts'
import {
  APP_MANAGED_BY_SEALANE,
  CLUSTERSET_ZONE,
  CONDITION_CLUSTER_DNS,
  LABEL_APP_MANAGED_BY,
  MEMBERSHIP_NAME,
  SYSTEM_NAMESPACE,
} from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type ClusterDnsClient,
  type ClusterDnsFlavour,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  type FoundDns,
  applyClusterDns,
  planClusterDns,
  planClusterDnsRemoval,
  readClusterDns,
  reasonOf,
  wiredMaps,
} from '../cluster-dns/cluster-dns.ts'
import { type ClusterAdmin, listIfAllowed } from '../context/context.ts'
import type { Discovery } from '../discovery/discovery.ts'
import {
  type Missing,
  type Right,
  TookTooLong,
  conditionsOf,
  removalRights,
  rightTo,
  waitUntil,
} from '../installation/installation.ts'
import { type PlannedChange, plannedChange } from './preview-changes.ts'

export interface WireInit {
  readonly dryRun: boolean
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

export interface ClusterDnsOutcome {
  /** Sentences for the end of the report: what failed, and what the user has to do by hand. */
  readonly left: readonly string[]
}

/**
 * A placeholder from the documentation range (RFC 5737). Before a join there is no Service and therefore no address.
 */
const NO_ADDRESS = '192.0.2.53'

const SERVICE = { apiVersion: 'v1', kind: 'Service', namespace: SYSTEM_NAMESPACE, name: objectName('dns') }
const SERVICE_TITLE = titleOf(SERVICE)

type DnsDiscovery = Pick<Discovery, 'dns' | 'distribution'>

export async function wireClusterDns(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  init: WireInit,
): Promise<ClusterDnsOutcome> {
  const known = await serviceAddress(admin, init.signal)
  if (known === undefined && !init.dryRun) {
    throw new UserError(`${SERVICE_TITLE} has no address that the cluster DNS could forward to`)
  }
  const options = { domain: CLUSTERSET_ZONE, forwardTo: known ?? NO_ADDRESS }
  const [flavour, found] = [flavourOf(discovery), { server: discovery.dns.server }]
  const say = (text: string): void => init.say(withoutAddress(text))
  const plan = (present: readonly DnsObject[]): ClusterDnsPlan => planClusterDns(flavour, present, options)
  const { left, problems } = await carryOut(admin, { flavour, found }, plan, { ...init, say })
  if (!init.dryRun) await recordWiring(admin, { flavour, found, forwardTo: options.forwardTo, problems }, init)
  return { left }
}

const MEMBERSHIP: ObjectRef = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', name: MEMBERSHIP_NAME }

/**
 * Stores on the Membership what was wired, and gives the agent the right to put back exactly that. A Role goes before
 * the annotation, so that the agent never looks for what it may not read.
 */
async function recordWiring(
  admin: ClusterAdmin,
  { flavour, found, forwardTo, problems: all }: WiringFacts,
  { clock, signal, say }: WireInit,
): Promise<void> {
  const maps = wiredMaps(await readClusterDns(clientOf(admin, clock), flavour, signal, found))
  const problems = all
    .filter(({ kind }) => kind === 'cache')
    .map((problem) => ({ reason: reasonOf(problem), message: problem.message }))
  const roles = clusterDnsAccess(maps, SYSTEM_NAMESPACE)
  try {
    for (const role of roles) {
      if ((await admin.apply(role, { dryRun: false }, signal)) === 'unchanged') continue
      say(`  changed   ${titleOf(refOf(role))}  (the agent may put back what is wired there)\n`)
    }
  } catch (error) {
    if (!(error instanceof ClusterApiError) || error.code !== 'Forbidden') throw error
    say(`  cluster DNS: the agent cannot put it back after an upgrade of the cluster: ${error.message}\n`)
  }
  await removeRoles(admin, roles, { signal, say })
  const text = maps.length + problems.length === 0 ? null : formatWiredDns({ forwardTo, maps, problems })
  const membership = await admin.get(MEMBERSHIP, signal)
  if (membership === undefined || (membership.metadata.annotations?.[ANNOTATION_WIRED_DNS] ?? null) === text) return
  await admin.merge(MEMBERSHIP, { metadata: { annotations: { [ANNOTATION_WIRED_DNS]: text } } }, signal)
}

/** Which DNS the cluster has, and where. */
interface DnsPlace {
  readonly flavour: ClusterDnsFlavour
  readonly found: FoundDns
}

interface WiringFacts extends DnsPlace {
  readonly forwardTo: string
  readonly problems: readonly ClusterDnsProblem[]
}

/** Removes the agent's Roles for the cluster DNS, except `kept`. */
async function removeRoles(
  admin: ClusterAdmin,
  kept: readonly ManifestObject[],
  { signal, say }: Pick<WireInit, 'signal' | 'say'>,
): Promise<void> {
  const titles = new Set(kept.map((role) => titleOf(refOf(role))))
  for (const role of await agentRoles(admin, signal)) {
    const ref = refOf(role)
    if (titles.has(titleOf(ref))) continue
    if (await admin.remove(ref, signal)) say(`  removed   ${titleOf(ref)}\n`)
  }
}

/** The agent's Roles for the cluster DNS and their bindings, which come first. */
async function agentRoles(admin: ClusterAdmin, signal: AbortSignal): Promise<readonly ManifestObject[]> {
  const apiVersion = 'rbac.authorization.k8s.io/v1'
  const labelSelector = `${LABEL_APP_MANAGED_BY}=${APP_MANAGED_BY_SEALANE}`
  const roles: ManifestObject[] = []
  for (const kind of ['RoleBinding', 'Role']) {
    // Without the right to list them in all namespaces, those that are applied again are right anyway.
    const all = (await listIfAllowed(admin, apiVersion, kind, signal, { labelSelector })) ?? []
    const own = all.filter(({ metadata }) => metadata.name === CLUSTER_DNS_ROLE)
    // Lists leave out apiVersion and kind of their items.
    roles.push(...own.map((role) => ({ ...role, apiVersion, kind })))
  }
  return roles
}

/** The changes that wireClusterDns() would make now. */
export async function previewClusterDns(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  { clock, signal }: Pick<WireInit, 'clock' | 'signal'>,
): Promise<readonly PlannedChange[]> {
  const forwardTo = (await serviceAddress(admin, signal)) ?? NO_ADDRESS
  const flavour = flavourOf(discovery)
  const found = { server: discovery.dns.server }
  const present = await readClusterDns(clientOf(admin, clock), flavour, signal, found)
  const { changes } = planClusterDns(flavour, present, { domain: CLUSTERSET_ZONE, forwardTo })
  return changes.flatMap(({ object, before, after, why }) =>
    plannedChange(object, before, after).map((change) => ({
      ...change,
      why: withoutAddress(why),
      lines: change.lines.map(withoutAddress),
    })),
  )
}

/**
 * The rights that wireClusterDns() needs with the cluster as it is now. Without those to give the agent a Role there,
 * it does without (recordWiring()).
 */
export async function wiringRights(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  { clock, signal }: Pick<WireInit, 'clock' | 'signal'>,
): Promise<readonly Right[]> {
  const [flavour, found] = [flavourOf(discovery), { server: discovery.dns.server }]
  const present = await readClusterDns(clientOf(admin, clock), flavour, signal, found)
  const forwardTo = (await serviceAddress(admin, signal)) ?? NO_ADDRESS
  return changeRights(planClusterDns(flavour, present, { domain: CLUSTERSET_ZONE, forwardTo }))
}

/** The rights that unwireClusterDns() needs with the cluster as it is now. */
export async function unwiringRights(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  { clock, signal }: Pick<WireInit, 'clock' | 'signal'>,
): Promise<readonly Right[]> {
  const flavour = flavourOf(discovery)
  const found = { server: discovery.dns.server, maps: await recordedMaps(admin, signal) }
  const present = await readClusterDns(clientOf(admin, clock), flavour, signal, found)
  const roles = await agentRoles(admin, signal)
  return [...changeRights(planClusterDnsRemoval(flavour, present)), ...removalRights(roles)]
}

/** The rights to make the changes of a plan, by ClusterAdmin.replace() and merge(). */
function changeRights({ changes }: ClusterDnsPlan): readonly Right[] {
  return changes.flatMap(({ object, before, after, effect }) => {
    const verb = before === undefined ? 'create' : after === undefined ? 'delete' : 'update'
    return [rightTo(verb, object), ...(effect.how === 'restart' ? [rightTo('patch', effect.workload)] : [])]
  })
}

/** What a join wired, as the Membership states it. */
async function recordedMaps(admin: ClusterAdmin, signal: AbortSignal): Promise<readonly ObjectRef[]> {
  const { maps } = readWiredDns((await admin.get(MEMBERSHIP, signal))?.metadata.annotations) ?? { maps: [] }
  return maps.map(({ namespace, name }) => ({ apiVersion: 'v1', kind: 'ConfigMap', namespace, name }))
}

async function serviceAddress(admin: ClusterAdmin, signal: AbortSignal): Promise<string | undefined> {
  return ((await admin.get(SERVICE, signal))?.['spec'] as { clusterIP?: string } | undefined)?.clusterIP
}

function withoutAddress(text: string): string {
  return text.replaceAll(NO_ADDRESS, SERVICE_TITLE)
}

export async function unwireClusterDns(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  init: WireInit,
): Promise<ClusterDnsOutcome> {
  const flavour = flavourOf(discovery)
  // What was wired is undone also where the server has moved since, or has gone.
  const wired = await recordedMaps(admin, init.signal)
  if (!init.dryRun) await removeRoles(admin, [], init)
  const found = { server: discovery.dns.server, maps: wired }
  const { left } = await carryOut(admin, { flavour, found }, (present) => planClusterDnsRemoval(flavour, present), init)
  return { left }
}

async function carryOut(
  admin: ClusterAdmin,
  { flavour, found }: DnsPlace,
  plan: (present: readonly DnsObject[]) => ClusterDnsPlan,
  { dryRun, clock, signal, say }: WireInit,
): Promise<ClusterDnsOutcome & { readonly problems: readonly ClusterDnsProblem[] }> {
  const client = clientOf(admin, clock)
  const result = dryRun
    ? { plan: plan(await readClusterDns(client, flavour, signal, found)), toRestart: [] }
    : await applyClusterDns(client, flavour, plan, signal, found)
  // The changes of a dry run are already shown by previewClusterDns().
  for (const { object, why } of dryRun ? [] : result.plan.changes) say(`  changed   ${titleOf(object)}  (${why})\n`)
  for (const note of result.plan.notes) say(`  cluster DNS: ${note}\n`)
  const { problems } = result.plan
  return {
    problems,
    left: [
      ...problems.flatMap((problem) => [`${problem.message} (${reasonOf(problem)})`, ...problem.advice]),
      ...result.toRestart.map((workload) => `restart ${titleOf(workload)} to apply its new DNS settings`),
    ],
  }
}

function clientOf(admin: ClusterAdmin, clock: Clock): ClusterDnsClient {
  return {
    get: (ref, signal) => admin.get(ref, signal),
    list: ({ apiVersion, kind }, labelSelector, signal) =>
      admin.list(apiVersion, kind, labelSelector === undefined ? {} : { labelSelector }, signal),
    replace: ({ object, before, after }, signal) => admin.replace(object, before, after, signal),
    restart: (workload, signal) => {
      const annotations = {
        'sealane.io/restarted-for-dns': new Date(clock.now()).toISOString(),
      }
      return admin.merge(workload, { spec: { template: { metadata: { annotations } } } }, signal)
    },
  }
}

/** The provider determines which DNS a cluster with an immutable one has. */
function flavourOf({ dns, distribution }: DnsDiscovery): ClusterDnsFlavour {
  const { value } = dns.flavour
  if (value !== 'immutable') return value
  return distribution.value === 'gke' ? 'gke-cloud-dns' : 'eks-auto-mode'
}

// Waits until the cluster's own DNS has loaded its new settings. Before that, names of the clusterset do not resolve.

interface WatchDnsInit {
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * `own` is this cluster's id. After the time limit it returns a sentence with what is still missing instead of failing,
 * because the lanes are up and a cluster's DNS may take minutes.
 */
export async function watchClusterDns(
  admin: Pick<ClusterAdmin, 'get'>,
  own: string,
  init: WatchDnsInit,
): Promise<string | undefined> {
  const { signal, say } = init
  let last: Missing | undefined
  try {
    const look = async (): Promise<Missing | undefined> => (last = await progress(admin, own, signal))
    await waitUntil(look, { ...init, what: 'the cluster DNS', hint: '' })
  } catch (error) {
    if (!(error instanceof TookTooLong)) throw error
    return `it does not forward ${CLUSTERSET_ZONE} to Sealane yet${last?.why === undefined ? '' : ` (${last.why})`}`
  }
  say(`cluster DNS forwards ${CLUSTERSET_ZONE} to Sealane\n`)
  return undefined
}

/** The agent resolves names as any pod does, and writes the results into the status of this cluster's own Cluster. */
async function progress(
  admin: Pick<ClusterAdmin, 'get'>,
  own: string,
  signal: AbortSignal,
): Promise<Missing | undefined> {
  const cluster = await admin.get({ apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster', name: own }, signal)
  const found = cluster && conditionsOf(cluster).find(({ type }) => type === CONDITION_CLUSTER_DNS)
  if (found?.status === 'True') return undefined
  const why = found === undefined ? 'the agent has not reported it' : found.message
  return { what: `to forward ${CLUSTERSET_ZONE} to Sealane`, why }
}
