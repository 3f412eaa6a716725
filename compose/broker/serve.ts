/** Assembles the broker. Only a few modules connect the command line to a component. */
import {
  AUDIT_STDOUT,
  type AuditConfig,
  DEFAULT_BROKER_CONFIG,
  type EtcdStoreConfig,
  type SignerConfig,
} from '../../broker/config/config.ts'
import { runBroker } from '../../broker/main.ts'
import type { MemberQuota } from '../../model/model.ts'
import { type ComponentDeps, calmHeap, messageOf, ownHeap } from '../../runtime/runtime.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import { withProcess } from '../compose.ts'
import type { TopologyFollower } from './follow-topology.ts'

export type { EtcdStoreConfig } from '../../broker/config/config.ts'

export interface BrokerProcessInit {
  readonly state: string
  readonly listen: string
  readonly adminListen?: string
  readonly advertise: readonly string[]
  readonly statusListen: readonly string[]
  readonly clusterset: string
  readonly globalRange?: string
  readonly clustersetIpRange?: string
  readonly allowNamespace?: readonly string[]
  readonly externalTrafficPolicy?: 'Local' | 'Cluster'
  readonly acceptEmptyAtMs?: number
  readonly approve?: boolean
  readonly defaultAccess?: 'allow' | 'deny'
  readonly relays?: readonly string[]
  readonly topologyFrom?: 'commands' | 'object'
  readonly audit?: AuditConfig
  readonly quotaRecords?: number
  readonly quotaBytes?: number
  readonly quotaChanges?: number
  readonly quotaStreams?: number
  readonly maxMembers?: number
  readonly renewalGrace?: number
  readonly store?: EtcdStoreConfig | undefined
  readonly connectionAge?: number
  readonly drain?: number
  readonly authorityDir?: string
  readonly signer?: SignerConfig
  readonly logLevel: LogThreshold
}

export async function serveBrokerProcess(init: BrokerProcessInit, signal: AbortSignal): Promise<void> {
  const config = {
    ...DEFAULT_BROKER_CONFIG,
    stateDir: init.state,
    clusterset: init.clusterset,
    listen: init.listen,
    ...(init.adminListen === undefined ? {} : { adminListen: init.adminListen }),
    advertise: init.advertise,
    globalRange: init.globalRange ?? DEFAULT_BROKER_CONFIG.globalRange,
    clustersetIpRange: init.clustersetIpRange ?? DEFAULT_BROKER_CONFIG.clustersetIpRange,
    allowedNamespaces: init.allowNamespace ?? DEFAULT_BROKER_CONFIG.allowedNamespaces,
    ...(init.acceptEmptyAtMs === undefined ? {} : { acceptEmptyAtMs: init.acceptEmptyAtMs }),
    ...(init.defaultAccess === undefined ? {} : { defaultAccess: init.defaultAccess }),
    ...(init.relays === undefined ? {} : { relays: init.relays }),
    ...(init.topologyFrom === 'object' ? { followsTopology: true } : {}),
    ...(init.audit === undefined ? {} : { audit: init.audit }),
    ...(init.store === undefined ? {} : { store: init.store }),
    ...(init.connectionAge === undefined ? {} : { connectionAgeMs: init.connectionAge }),
    ...(init.drain === undefined ? {} : { drainMs: init.drain }),
    ...(init.authorityDir === undefined ? {} : { authorityDir: init.authorityDir }),
    ...(init.signer === undefined ? {} : { signer: init.signer }),
    ...(init.renewalGrace === undefined ? {} : { renewalGraceMs: init.renewalGrace }),
    sourcesKept: init.externalTrafficPolicy !== 'Cluster',
    limits: {
      membersPerClusterset: init.maxMembers ?? DEFAULT_BROKER_CONFIG.limits.membersPerClusterset,
      quota: quotaOfAll(init),
    },
    approve: init.approve ?? DEFAULT_BROKER_CONFIG.approve,
  }
  // Without a log file to reopen, SIGHUP ends the process, as in all other processes.
  const hasFile = init.audit !== undefined && init.audit.log !== AUDIT_STDOUT
  await withProcess({ name: 'broker', ...init }, async (deps, started) => {
    const follower = init.topologyFrom === 'object' ? await topologyFollower(deps) : undefined
    const over = new AbortController()
    const calm = calmHeap(ownHeap(), deps.clock, AbortSignal.any([signal, over.signal])).catch((error: unknown) =>
      deps.logger.info('memory is no longer returned to the system while the process is idle', {
        why: messageOf(error),
      }),
    )
    try {
      const followed = follower === undefined ? {} : { followTopology: follower.follow }
      const logs = hasFile ? { onLogsMoved } : {}
      await runBroker({ ...deps, onListening: started, ...logs, ...followed }, config, signal)
    } finally {
      over.abort(new Error('the broker has ended'))
      await follower?.close()
      await calm
    }
  })
}

/** Loaded on demand: most brokers need no API server. */
async function topologyFollower(deps: ComponentDeps): Promise<TopologyFollower> {
  const { openTopologyFollower } = await import('./follow-topology.ts')
  return openTopologyFollower(deps)
}

function quotaOfAll({ quotaRecords, quotaBytes, quotaChanges, quotaStreams }: BrokerProcessInit): MemberQuota {
  const { quota } = DEFAULT_BROKER_CONFIG.limits
  return {
    records: quotaRecords ?? quota.records,
    bytes: quotaBytes ?? quota.bytes,
    changes: quotaChanges ?? quota.changes,
    streams: quotaStreams ?? quota.streams,
  }
}

function onLogsMoved(callback: () => void): () => void {
  process.on('SIGHUP', callback)
  return () => void process.off('SIGHUP', callback)
}
