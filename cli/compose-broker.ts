/** Puts the broker together; one of the few places where the command line knows a component. */
import { type BrokerStore, openBrokerStore } from '../broker/broker-store.ts'
import { DEFAULT_BROKER_CONFIG } from '../broker/config.ts'
import { StateError } from '../broker/log/record-log.ts'
import { runBroker } from '../broker/main.ts'
import { SystemClock } from '../reconcile/clock.ts'
import type { LogThreshold } from '../runtime/pino-logger.ts'
import { UserError } from '../runtime/user-error.ts'
import { withProcess } from './compose-process.ts'

export type { BrokerStore, TokenInit, TokenSummary } from '../broker/broker-store.ts'
export type { EvictInit, Eviction, MemberSummary } from '../broker/member-list.ts'

export interface BrokerProcessInit {
  readonly state: string
  readonly listen: string
  readonly advertise: readonly string[]
  readonly statusListen: string
  readonly clusterset: string
  readonly globalRange?: string
  readonly clustersetIpRange?: string
  readonly allowNamespace?: readonly string[]
  readonly logLevel: LogThreshold
}

export async function serveBrokerProcess(init: BrokerProcessInit, signal: AbortSignal): Promise<void> {
  const config = {
    ...DEFAULT_BROKER_CONFIG,
    stateDir: init.state,
    clusterset: init.clusterset,
    listen: init.listen,
    advertise: init.advertise,
    globalRange: init.globalRange ?? DEFAULT_BROKER_CONFIG.globalRange,
    clustersetIpRange: init.clustersetIpRange ?? DEFAULT_BROKER_CONFIG.clustersetIpRange,
    allowedNamespaces: init.allowNamespace ?? DEFAULT_BROKER_CONFIG.allowedNamespaces,
  }
  await withProcess({ name: 'broker', ...init }, (deps, started) =>
    runBroker({ ...deps, onListening: started }, config, signal),
  )
}

/** Opens the broker's database, beside a running broker or not. Throws when no broker has ever started on this state. */
export async function withBrokerStore<T>(state: string, work: (store: BrokerStore) => Promise<T> | T): Promise<T> {
  const store = await openBrokerStore(state, new SystemClock()).catch((cause: unknown) => {
    if (!(cause instanceof StateError) || cause.code !== 'Absent') throw cause
    throw new UserError(cause.message, { hint: 'for a broker on a cluster: --context NAME', cause })
  })
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}
