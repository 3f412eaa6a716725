/** The members that a broker on a cluster knows: the same commands, in its pod. */
import type {
  Answer,
  AnswerInit,
  BrokerStore,
  Eviction,
  MemberSummary,
  RekeyInit,
  WaitingSummary,
} from '../../../compose/parts/broker-store.ts'
import type { CommandContext } from '../../context.ts'
import { type AskBroker, type BrokerInPod, askForJson, withPodBroker } from './pod-broker.ts'
import type { MadeToken } from './pod-tokens.ts'

/** The part of the broker's store that is about members. */
export type Members = Pick<BrokerStore, 'members' | 'evict' | 'changeQuota' | 'waiting' | 'accept' | 'refuse'> & {
  rekey(init: RekeyInit): Promise<{ readonly id: string; readonly text: string; readonly expiresAtMs: number }>
}

export function withPodMembers<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (members: Members) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podMembers(ask)))
}

interface Evicted {
  readonly id: Eviction['id']
  readonly evicted: string
  readonly repeated: boolean
}

/** Throws what askForJson() throws. */
export function podMembers(ask: AskBroker): Members {
  return {
    members: async () => {
      const words = ['cluster', 'list', '--all']
      return (await askForJson<{ readonly items: MemberSummary[] }>(ask, words, { looks: true })).items
    },
    evict: async ({ cluster, force }) => {
      const words = ['cluster', 'evict', cluster, ...(force ? ['--force'] : [])]
      const { id, evicted, repeated } = await askForJson<Evicted>(ask, words)
      return { id, evictedAtMs: Date.parse(evicted), repeated }
    },
    changeQuota: async ({ cluster, change }) => {
      const words = Object.entries(change).flatMap(([field, value]) => [`--${field}`, String(value)])
      return (await askForJson<{ readonly changed: boolean }>(ask, ['cluster', 'quota', cluster, ...words])).changed
    },
    waiting: async () =>
      (await askForJson<{ readonly items: WaitingSummary[] }>(ask, ['cluster', 'waiting'], { looks: true })).items.map(
        // A broker of an earlier release knows joins alone, and does not say so.
        (row) => ({ ...row, what: (row as Partial<WaitingSummary>).what ?? 'join' }),
      ),
    accept: (init) => askForJson<Answer>(ask, answerWords('accept', init)),
    refuse: (init) => askForJson<Answer>(ask, answerWords('refuse', init)),
    rekey: async ({ cluster, ttlMs }) => {
      const words = ttlMs === undefined ? [] : ['--ttl', `${Math.round(ttlMs / 1000)}s`]
      const made = await askForJson<MadeToken>(ask, ['cluster', 'rekey', cluster, ...words])
      return { id: made.id, text: made.token, expiresAtMs: Date.parse(made.expires) }
    },
  }
}

function answerWords(verb: 'accept' | 'refuse', { cluster, fingerprint }: AnswerInit): readonly string[] {
  return ['cluster', verb, cluster, ...(fingerprint === undefined ? [] : ['--fingerprint', fingerprint])]
}
