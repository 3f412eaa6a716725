/** The status that each member of an etcd cluster reports, and the replicas of the broker that hold a session there. */
import { type Clock, withDeadline } from '../../reconcile/reconcile.ts'
import type { ReplicaFacts, StoreMemberFacts } from '../../protocol/admin/admin.ts'
import { formatHostPort, messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { type EtcdStore, connectEtcd, parseEtcdUrl, parseSession } from '../store/store.ts'

export { connectEtcd } from '../store/store.ts'

interface Deps {
  readonly clock: Clock
  readonly logger: Logger
}

/**
 * In the order of the endpoints, each of which is queried separately. Throws for files and URLs that cannot be read.
 */
export async function readStoreMembers(
  deps: Deps,
  config: EtcdStoreConfig,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<readonly StoreMemberFacts[]> {
  const { endpoints, user, prefix } = parseEtcdUrl(config.url, '--store')
  const who = user === undefined ? '' : `${user}@`
  return Promise.all(
    endpoints.map(async (one) => {
      const endpoint = formatHostPort(one)
      const store = connectEtcd(deps, { ...config, url: `etcd://${who}${endpoint}${prefix}` })
      try {
        const { version, dbSize, leader, errors } = await withDeadline(deps.clock, deadlineMs, (late) =>
          store.client.status(AbortSignal.any([signal, late])),
        )
        return { endpoint, version, bytes: dbSize, hasLeader: leader, alarms: errors }
      } catch (error) {
        signal.throwIfAborted()
        return { endpoint, why: messageOf(error).replace(`etcd at ${endpoint}: `, '') }
      } finally {
        store.client.close()
      }
    }),
  )
}

/** The replicas with a session in etcd, sorted by id. */
export async function readReplicas({ client, keys }: EtcdStore, signal: AbortSignal): Promise<readonly ReplicaFacts[]> {
  const { kvs } = await client.range(keys.replicas, { action: 'list of brokers', signal })
  return kvs.map(({ key, value }) => {
    const { members, host, version, keepsToTopology } = parseSession(value)
    const id = keys.parseReplica(key)
    return {
      id,
      members: members.length,
      ...(host === undefined ? {} : { host }),
      ...(version === undefined ? {} : { version }),
      ...(keepsToTopology === true ? {} : { lacksTopology: true as const }),
    }
  })
}

/** What only replicas of later releases do. */
type ReplicaAbility = 'keepsToTopology' | 'keepsToTransit' | 'keepsTokenLabels' | 'keepsAddedRelays'

/** Replicas of an earlier release, which do not do that: their hosts, or their ids. */
export async function replicasWithout(
  ability: ReplicaAbility,
  { client, keys }: Pick<EtcdStore, 'client' | 'keys'>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { kvs } = await client.range(keys.replicas, { action: 'list of brokers', signal })
  return kvs.flatMap(({ key, value }) => {
    const session = parseSession(value)
    return session[ability] === true ? [] : [session.host ?? keys.parseReplica(key)]
  })
}
