/** Assembles the broker. Only a few modules connect the command line to a component. */
import { join } from 'node:path'
import {
  AUDIT_STDOUT,
  type AuditConfig,
  DEFAULT_BROKER_CONFIG,
  type EtcdStoreConfig,
  type SignerConfig,
} from '../../broker/config/config.ts'
import { type BrokerDeps, runBroker } from '../../broker/main.ts'
import { relayConflict, usableRelays } from '../../model/lanes/lanes.ts'
import type { MemberQuota } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { parseBrokerAddress } from '../../protocol/protocol.ts'
import { type ComponentDeps, calmHeap, messageOf, ownHeap } from '../../runtime/runtime.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import { SharedPort } from '../../runtime/shared-port/shared-port.ts'
import { withProcess } from '../compose.ts'
import { relayPin, serveRelayHere } from '../relay/relay.ts'
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
  /** Serves a relay on the broker's port too. */
  readonly relayHere?: boolean
  /** Called with the addresses of that relay, as members are to call it. */
  readonly onRelayHere?: (addresses: readonly string[]) => void
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
  const { relayHere = false, relays = [] } = init
  const relayState = join(init.state, 'relay')
  const here = relayHere ? relayAddresses(init.advertise, await relayPin(relayState)) : []
  if (relayHere) init.onRelayHere?.(here)
  const statesNone = relayHere ? relays.length === 0 && init.store !== undefined : init.relays === undefined
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
    // Stated relays count as they are: brokers that share a store must all state the same. Each has a relay with a key of
    // its own, so what is stored stays where they state none.
    ...(statesNone ? {} : { relays: relays.length > 0 ? relays : here }),
    ...(relayHere && relays.length === 0 && !statesNone ? { relaysHere: true } : {}),
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
    warnOfSameHost(deps, relays)
    const follower = init.topologyFrom === 'object' ? await topologyFollower(deps) : undefined
    const over = new AbortController()
    const calm = calmHeap(ownHeap(), deps.clock, AbortSignal.any([signal, over.signal])).catch((error: unknown) =>
      deps.logger.info('memory is no longer returned to the system while the process is idle', {
        why: messageOf(error),
      }),
    )
    const until = AbortSignal.any([signal, over.signal])
    const relay = relayHere ? new RelayHere(deps, relayState, until) : undefined
    try {
      const followed = follower === undefined ? {} : { followTopology: follower.follow }
      const logs = hasFile ? { onLogsMoved } : {}
      const parts = { ...deps, onListening: started, ...logs, ...relay?.brokerParts, ...followed }
      await runBroker(parts, config, signal)
    } finally {
      over.abort(new Error('the broker has ended'))
      await follower?.close()
      await Promise.all([calm, relay?.ended])
    }
  })
}

/** They count as they are: a broker that has served with them serves with them after an upgrade. */
function warnOfSameHost({ logger }: Pick<ComponentDeps, 'logger'>, relays: readonly string[]): void {
  const { flagged, added } = relayConflict(relays, relays) ?? {}
  if (flagged === undefined) return
  const reason: ReasonCode = 'InvalidValue'
  const why = '--relay: expected another host and port for each relay'
  logger.warn('two relays have one host and port', { reason, relay: added, other: flagged, why })
}

/** The relay on the broker's port. If it fails, the broker goes on. */
class RelayHere {
  readonly brokerParts: Required<Pick<BrokerDeps, 'shared' | 'onAuthorities'>>
  ended: Promise<void> = Promise.resolve()

  constructor(deps: ComponentDeps, state: string, signal: AbortSignal) {
    const logger = deps.logger.child({ component: 'relay' })
    const shared = new SharedPort()
    const onAuthorities = (authorities: () => readonly Uint8Array[]): void => {
      this.ended = serveRelayHere({ ...deps, logger }, { state, shared, authorities }, signal).catch((error: unknown) =>
        logger.error('the relay on this port has ended; the broker goes on', {
          reason: 'RelayUnreachable',
          why: messageOf(error),
        }),
      )
    }
    this.brokerParts = { shared, onAuthorities }
  }
}

/** Where members reach a relay that shares the port of a broker with these addresses. */
export function relayAddresses(advertised: readonly string[], pin: string): readonly string[] {
  const all = advertised.map((text) => {
    const { host, port } = parseBrokerAddress(text, '--advertise')
    const name = host.includes(':') ? `[${host}]` : host
    return `wss://${name}${port === 443 ? '' : `:${port}`}/#${pin}`
  })
  return usableRelays(all)
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
