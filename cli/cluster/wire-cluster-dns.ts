/** Configures the cluster's own DNS to forward clusterset.local to Sealane, or removes that configuration. */
import { objectName } from '../../install/values/values.ts'
import { titleOf } from '../../kubeapi/kube/kube.ts'
import { CLUSTERSET_ZONE, CONDITION_CLUSTER_DNS, SYSTEM_NAMESPACE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import {
  type ClusterDnsClient,
  type ClusterDnsFlavour,
  type ClusterDnsPlan,
  type DnsObject,
  applyClusterDns,
  planClusterDns,
  planClusterDnsRemoval,
  readClusterDns,
} from '../cluster-dns/cluster-dns.ts'
import type { ClusterAdmin } from '../context/context.ts'
import type { Discovery } from '../discovery/discovery.ts'
import { type Missing, TookTooLong, conditionsOf, waitUntil } from '../installation/installation.ts'
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
  const flavour = flavourOf(discovery)
  const say = (text: string): void => init.say(withoutAddress(text))
  return carryOut(admin, flavour, (present) => planClusterDns(flavour, present, options), { ...init, say })
}

/** The changes that wireClusterDns() would make now. */
export async function previewClusterDns(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  { clock, signal }: Pick<WireInit, 'clock' | 'signal'>,
): Promise<readonly PlannedChange[]> {
  const forwardTo = (await serviceAddress(admin, signal)) ?? NO_ADDRESS
  const flavour = flavourOf(discovery)
  const present = await readClusterDns(clientOf(admin, clock), flavour, signal)
  const { changes, problems } = planClusterDns(flavour, present, { domain: CLUSTERSET_ZONE, forwardTo })
  if (problems.length > 0) return []
  return changes.flatMap(({ object, before, after, why }) =>
    plannedChange(object, before, after).map((change) => ({
      ...change,
      why: withoutAddress(why),
      lines: change.lines.map(withoutAddress),
    })),
  )
}

async function serviceAddress(admin: ClusterAdmin, signal: AbortSignal): Promise<string | undefined> {
  return ((await admin.get(SERVICE, signal))?.['spec'] as { clusterIP?: string } | undefined)?.clusterIP
}

function withoutAddress(text: string): string {
  return text.replaceAll(NO_ADDRESS, SERVICE_TITLE)
}

export function unwireClusterDns(
  admin: ClusterAdmin,
  discovery: DnsDiscovery,
  init: WireInit,
): Promise<ClusterDnsOutcome> {
  const flavour = flavourOf(discovery)
  return carryOut(admin, flavour, (present) => planClusterDnsRemoval(flavour, present), init)
}

async function carryOut(
  admin: ClusterAdmin,
  flavour: ClusterDnsFlavour,
  plan: (present: readonly DnsObject[]) => ClusterDnsPlan,
  { dryRun, clock, signal, say }: WireInit,
): Promise<ClusterDnsOutcome> {
  const client = clientOf(admin, clock)
  const result = dryRun
    ? { plan: plan(await readClusterDns(client, flavour, signal)), toRestart: [] }
    : await applyClusterDns(client, flavour, plan, signal)
  // The changes of a dry run are already shown by previewClusterDns().
  for (const { object, why } of dryRun ? [] : result.plan.changes) say(`  changed   ${titleOf(object)}  (${why})\n`)
  for (const note of result.plan.notes) say(`  cluster DNS: ${note}\n`)
  return {
    left: [
      ...result.plan.problems.flatMap(({ message, advice }) => [message, ...advice]),
      ...result.toRestart.map((workload) => `restart ${titleOf(workload)} to apply its new DNS settings`),
    ],
  }
}

function clientOf(admin: ClusterAdmin, clock: Clock): ClusterDnsClient {
  return {
    get: (ref, signal) => admin.get(ref, signal),
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
