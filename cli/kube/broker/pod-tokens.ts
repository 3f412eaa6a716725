/** The tokens of a broker that runs on a cluster: the same commands, in its pod. */
import type { TokenInit, TokenSummary } from '../../../compose/parts/broker-store.ts'
import type { CommandContext } from '../../context.ts'
import { type AskBroker, type BrokerInPod, askForJson, withPodBroker } from './pod-broker.ts'

/** What can be done with tokens over any distance. */
export interface Tokens {
  create(init: TokenInit): Promise<{
    readonly id: string
    readonly text: string
    readonly expiresAtMs: number
  }>
  list(): Promise<TokenSummary[]>
  revoke(id: string): Promise<unknown>
}

export function withPodTokens<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (tokens: Tokens) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podTokens(ask)))
}

/** A token, as it is printed. */
export interface MadeToken {
  readonly id: string
  readonly token: string
  readonly expires: string
}

/** Throws what askForJson() throws. */
export function podTokens(ask: AskBroker): Tokens {
  return {
    create: async ({ ttlMs, uses, cluster, allowedCIDRs = [], approve = false }) => {
      const words = [
        ...(ttlMs === undefined ? [] : ['--ttl', `${Math.round(ttlMs / 1000)}s`]),
        ...(uses === undefined ? [] : ['--uses', String(uses)]),
        ...(cluster === undefined ? [] : ['--cluster-id', cluster]),
        ...allowedCIDRs.flatMap((cidr) => ['--allow-cidr', cidr]),
        ...(approve ? ['--approve'] : []),
      ]
      const made = await askForJson<MadeToken>(ask, ['token', 'create', ...words])
      return { id: made.id, text: made.token, expiresAtMs: Date.parse(made.expires) }
    },
    list: async () => (await askForJson<{ readonly items: TokenSummary[] }>(ask, ['token', 'list'])).items,
    revoke: (id) => ask(['token', 'revoke', id]),
  }
}
