/** What is in a cluster that leave and uninstall would take out. */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { ETCD_VOLUME, etcdMembers, includedEtcdUrl } from '../../../install/etcd-names.ts'
import { BROKER_CLAIM, objectName } from '../../../install/names.ts'
import { DEFAULT_VALUES } from '../../../install/values.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../../model/spec-constants.ts'
import { messageOf } from '../../../runtime/thrown.ts'
import type { EarlierInstall } from '../../discovery/earlier-install.ts'
import { withinTime } from '../../within-time.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import type { BrokerFacts, RemovalFacts } from './plan-removal.ts'
import { storeUrlOf } from '../broker/installed-broker.ts'
import { podBroker } from '../broker/pod-broker.ts'
import { podClustersets } from '../broker/pod-clustersets.ts'
import { podMembers } from '../broker/pod-members.ts'

export interface ReadRemovalInit {
  readonly flags: string
  readonly earlier: Pick<EarlierInstall, 'parts'>
  /** Whether the broker is asked for its members. */
  readonly askBroker: boolean
  readonly signal: AbortSignal
}

const OURS = 'sealane.io/v1alpha1'
const MCS = 'multicluster.x-k8s.io/v1beta1'
const MANAGED = { labelSelector: `${LABEL_APP_MANAGED_BY}=${APP_MANAGED_BY_SEALANE}` }
/** A broker that is stuck must not hold up what removes it. */
const ASK_MS = 15_000

interface MembershipSpec {
  readonly clusterId?: string
  readonly clusterset?: string
  readonly phase?: string
}

export async function readRemoval(admin: ClusterAdmin, init: ReadRemovalInit): Promise<RemovalFacts> {
  const { flags, earlier, signal } = init
  const membership = await admin.get({ apiVersion: OURS, kind: 'Membership', name: MEMBERSHIP_NAME }, signal)
  const spec = membership?.['spec'] as MembershipSpec | undefined
  const [clusters, gateways, agents, exports, imports] = await Promise.all([
    admin.list(OURS, 'Cluster', {}, signal),
    admin.list(OURS, 'Gateway', {}, signal),
    admin.list(OURS, 'RouteAgent', {}, signal),
    admin.list(MCS, 'ServiceExport', {}, signal),
    admin.list(MCS, 'ServiceImport', MANAGED, signal),
  ])
  const id = spec?.clusterId
  return {
    title: admin.title,
    flags,
    site: false,
    member:
      id === undefined ? undefined : { id, clusterset: spec?.clusterset ?? '', leaving: spec?.phase === 'leaving' },
    // It is named by its id.
    parts: earlier.parts.filter((part) => !part.startsWith('Membership ')),
    others: names(clusters).filter((name) => name !== id),
    exports:
      id === undefined ? [] : exports.map(({ metadata: { namespace = '', name } }) => `${namespace}/${name}`).sort(),
    imports: imports.length,
    nodes: [...new Set([...names(gateways), ...names(agents)])].sort(),
    broker: await readBroker(admin, init),
  }
}

function names(objects: readonly ManifestObject[]): readonly string[] {
  return objects.map(({ metadata }) => metadata.name).sort()
}

async function readBroker(
  admin: ClusterAdmin,
  { flags, askBroker, signal }: ReadRemovalInit,
): Promise<BrokerFacts | undefined> {
  const { namespace } = DEFAULT_VALUES.broker
  const there = await admin.get({ apiVersion: 'v1', kind: 'Namespace', name: namespace }, signal)
  if (there === undefined) return undefined
  const claims = await admin.list('v1', 'PersistentVolumeClaim', { namespace }, signal)
  const own = objectName('broker')
  const workload = (kind: string) => admin.get({ apiVersion: 'apps/v1', kind, namespace, name: own }, signal)
  const [statefulSet, deployment] = [await workload('StatefulSet'), await workload('Deployment')]
  const installed = askBroker && (statefulSet ?? deployment) !== undefined
  const url = statefulSet === undefined ? storeUrlOf(deployment) : undefined
  return {
    members: installed ? await membersOf(admin, flags, signal) : undefined,
    claims: names(claims).filter(isData),
    ...(url === undefined || url === includedEtcdUrl(namespace) ? {} : { etcd: url }),
  }
}

/** Whatever else has a claim in that namespace is not ours. */
function isData(claim: string): boolean {
  return claim === BROKER_CLAIM || etcdMembers().some((member) => claim === `${ETCD_VOLUME}-${member}`)
}

async function membersOf(admin: ClusterAdmin, flags: string, signal: AbortSignal): Promise<BrokerFacts['members']> {
  try {
    return await withinTime(signal, ASK_MS, async (limited) => {
      const ask = podBroker(admin, flags, limited)
      const others = (await podClustersets(ask).list()).filter(
        ({ state, members }) => state === 'listed' && members !== 0,
      )
      // None of them is evicted, nor named, with those of the broker's own.
      if (others.length > 0)
        return { unknown: `it serves other clustersets: ${others.map(({ name }) => name).join(', ')}` }
      return podMembers(ask).members()
    })
  } catch (error) {
    signal.throwIfAborted()
    return { unknown: messageOf(error) }
  }
}
