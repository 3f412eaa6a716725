/**
 * The broker's view for the console: what its admin service answers to `members`, `cluster list`, `cluster waiting`,
 * `topology show`, `access default`, `broker status`, `broker gateways` and `broker services`.
 */
import type { Answer, BrokerFacts, ConsoleSource, PublishedFacts } from '../../../compose/console/console.ts'
import type { BrokerAdmin } from '../../../protocol/admin/admin.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { unservedText, withBroker } from '../../broker/broker.ts'
import { type CommandContext, type KubeTarget, kubeTarget, shellWord, targetFlags } from '../../context/context.ts'

export interface BrokerSourceInit {
  /** Undefined for the broker on this machine. */
  readonly kube: KubeTarget | undefined
  /** The name of the kubeconfig's current context. */
  readonly current?: string | undefined
  /** The state directory of the broker on this machine. */
  readonly state: string
  readonly clusterset: string | undefined
  readonly everyMs: number
  readonly timeoutMs: number
  readonly clock: Clock
}

/** In a cluster each question takes a port-forward. */
const KUBE_EVERY_MS = 10_000
/** All records of all members are many: they are read less often than the rest. */
const PUBLISHED_EVERY_MS = 10_000
/** Without a broker, each question opens the stored state. */
const UNSERVED_EVERY_MS = 30_000

export function brokerSource(init: BrokerSourceInit, context: CommandContext): ConsoleSource {
  const { kube, current, state, clusterset, timeoutMs: timeout, clock } = init
  const brokerFlags = kube === undefined ? `--state ${shellWord(state)}` : targetFlags(kube, current)
  const flags = clusterset === undefined ? brokerFlags : `${brokerFlags} --clusterset ${clusterset}`
  const target = kube === undefined ? `broker with the state ${state}` : `broker in the cluster of ${brokerFlags}`
  const published = publishedReader(clock, timeout / 2)
  const pinned = kube === undefined ? undefined : pinnedTarget(kube, current)
  let isFirst = true
  let unserved: { readonly facts: BrokerFacts; readonly atMs: number } | undefined
  const facts = async (signal: AbortSignal): Promise<BrokerFacts> => {
    const atMs = clock.monotonic()
    if (unserved !== undefined && atMs - unserved.atMs < UNSERVED_EVERY_MS) return unserved.facts
    // The name of the selected cluster is printed once.
    const at = isFirst && kube?.by !== undefined ? { ...pinned, by: kube.by } : pinned
    isFirst = false
    return withBroker({ kube: at, state, clusterset, timeout }, { ...context, signal }, async (broker, reached) => {
      const read = reached.served === false ? inTurn() : atOnce
      const [members, status, waiting, access, topology, records] = await Promise.all([
        read(() => broker.members()),
        read(() => broker.status()),
        read(() => broker.waiting()),
        read(() => broker.accessDefault()),
        read(() => broker.topology()),
        read(() => published(broker)),
      ])
      const own = 'why' in status.log ? '' : status.log.clusterset
      const found: BrokerFacts = {
        ...{ takenAt: new Date(clock.now()).toISOString(), clusterset: clusterset ?? own, target, flags, brokerFlags },
        unserved: unservedText(state, reached, members),
        // A state that no broker serves says that itself.
        problems: reached.served === false ? [] : status.problems,
        ...{ members, waiting, accessDefault: access.accessDefault, topology, published: records },
      }
      unserved = reached.served === false ? { facts: found, atMs } : undefined
      return found
    })
  }
  const everyMs = kube === undefined ? init.everyMs : Math.max(init.everyMs, KUBE_EVERY_MS)
  return { facts, everyMs }
}

/** The cluster that was current at first: another command may change which one that is. */
function pinnedTarget(kube: KubeTarget, current: string | undefined): KubeTarget {
  const name = kube.context ?? current
  return { ...kubeTarget(kube), ...(name === undefined ? {} : { context: name }) }
}

type Read = <T>(work: () => Promise<T>) => Promise<T>

const atOnce: Read = (work) => work()

/** One begins after the one before has ended, and not after one that failed. */
function inTurn(): Read {
  let before: Promise<unknown> = Promise.resolve()
  return (work) => {
    const mine = before.then(work)
    before = mine
    return mine
  }
}

/**
 * A broker of an earlier release does not know the question, and a broker with many records answers late: all else is
 * shown. Milliseconds.
 */
export function publishedReader(
  clock: Clock,
  waitMs: number,
): (broker: Pick<BrokerAdmin, 'published'>) => Promise<Answer<PublishedFacts>> {
  let kept: { readonly answer: Answer<PublishedFacts>; readonly atMs: number } | undefined
  return async (broker) => {
    const atMs = clock.monotonic()
    if (kept !== undefined && atMs - kept.atMs < PUBLISHED_EVERY_MS) return kept.answer
    const late = Promise.withResolvers<never>()
    const cancel = clock.setTimer(waitMs, () => late.reject(new Error(`no answer within ${waitMs / 1000} s`)))
    const answer = await Promise.race([broker.published(), late.promise]).then(
      (value): Answer<PublishedFacts> => ({ t: 'known', at: new Date(clock.now()).toISOString(), value }),
      (error: unknown): Answer<PublishedFacts> => {
        const why = messageOf(error)
        return kept?.answer.t === 'known' ? { ...kept.answer, why } : { t: 'none', why }
      },
    )
    cancel()
    kept = { answer, atMs }
    return answer
  }
}
