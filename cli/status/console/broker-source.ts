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

export function brokerSource(init: BrokerSourceInit, context: CommandContext): ConsoleSource {
  const { kube, current, state, clusterset, timeoutMs: timeout, clock } = init
  const brokerFlags = kube === undefined ? `--state ${shellWord(state)}` : targetFlags(kube, current)
  const flags = clusterset === undefined ? brokerFlags : `${brokerFlags} --clusterset ${clusterset}`
  const target = kube === undefined ? `broker with the state ${state}` : `broker in the cluster of ${brokerFlags}`
  const published = publishedReader(clock)
  let isFirst = true
  const facts = async (signal: AbortSignal): Promise<BrokerFacts> => {
    // The name of the selected cluster is printed once.
    const at = isFirst ? kube : kube && (kubeTarget(kube) ?? {})
    isFirst = false
    return withBroker({ kube: at, state, clusterset, timeout }, { ...context, signal }, async (broker, reached) => {
      const [members, status, waiting, access, topology, records] = await Promise.all([
        broker.members(),
        broker.status(),
        broker.waiting(),
        broker.accessDefault(),
        broker.topology(),
        published(broker),
      ])
      const own = 'why' in status.log ? '' : status.log.clusterset
      return {
        ...{ takenAt: new Date(clock.now()).toISOString(), clusterset: clusterset ?? own, target, flags, brokerFlags },
        unserved: unservedText(state, reached, members),
        // A state that no broker serves says that itself.
        problems: reached.served === false ? [] : status.problems,
        ...{ members, waiting, accessDefault: access.accessDefault, topology, published: records },
      }
    })
  }
  const everyMs = kube === undefined ? init.everyMs : Math.max(init.everyMs, KUBE_EVERY_MS)
  return { facts, everyMs }
}

/** A broker of an earlier release does not know the question: all else is shown. */
function publishedReader(clock: Clock): (broker: BrokerAdmin) => Promise<Answer<PublishedFacts>> {
  let kept: { readonly answer: Answer<PublishedFacts>; readonly atMs: number } | undefined
  return async (broker) => {
    const atMs = clock.monotonic()
    if (kept !== undefined && atMs - kept.atMs < PUBLISHED_EVERY_MS) return kept.answer
    const answer = await broker.published().then(
      (value): Answer<PublishedFacts> => ({ t: 'known', at: new Date(clock.now()).toISOString(), value }),
      (error: unknown): Answer<PublishedFacts> => {
        const why = messageOf(error)
        return kept?.answer.t === 'known' ? { ...kept.answer, why } : { t: 'none', why }
      },
    )
    kept = { answer, atMs }
    return answer
  }
}
