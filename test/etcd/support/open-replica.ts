/** Opens a replica's log on the etcd of a test. */
import type { Test } from 'tap'
import { EtcdClient, type EtcdLogin } from '../../../broker/store/etcd/client/etcd-client.ts'
import type { EtcdLimits } from '../../../broker/store/etcd/client/etcd-connection.ts'
import { type EtcdLog, type EtcdLogInit, openEtcdLog } from '../../../broker/store/etcd/etcd-log.ts'
import { EtcdStore } from '../../../broker/store/etcd/etcd-store.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import type { EtcdCluster } from './etcd-cluster.ts'

export interface ReplicaInit extends Partial<Omit<EtcdLogInit, 'store'>> {
  readonly prefix: string
  /** Ports of members, or of the proxies in front of them; all members by default. */
  readonly ports?: readonly number[]
  readonly login?: EtcdLogin
  readonly limits?: Partial<EtcdLimits>
}

export function connect(
  t: Pick<Test, 'teardown'>,
  cluster: EtcdCluster,
  { prefix, ports, login, limits }: ReplicaInit,
): { readonly store: EtcdStore; readonly logger: CapturingLogger } {
  const logger = new CapturingLogger()
  const endpoints = (ports ?? cluster.members.map(({ port }) => port)).map((port) => ({ host: '127.0.0.1', port }))
  const { certificate, key } = cluster.client
  const tls = { ca: cluster.ca, certificate, key }
  const client = new EtcdClient({ endpoints, credentials: { tls, login }, clock: new SystemClock(), logger, limits })
  t.teardown(() => client.close())
  return { store: new EtcdStore(client, prefix), logger }
}

export async function openReplica(
  t: Pick<Test, 'teardown'>,
  cluster: EtcdCluster,
  init: ReplicaInit,
): Promise<{ readonly log: EtcdLog; readonly store: EtcdStore; readonly logger: CapturingLogger }> {
  const { store, logger } = connect(t, cluster, init)
  const { ports: _ports, prefix: _prefix, login: _login, limits: _limits, ...more } = init
  const log = await openEtcdLog({ store, clock: new SystemClock(), logger, ...more }, new AbortController().signal)
  t.teardown(() => log.close())
  return { log, store, logger }
}
