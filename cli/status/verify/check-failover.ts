/** The check `failover`: calls go on all the time while a gateway of one side is drained and taken back. */
import { type Gateway, CONDITION_DRAINED, findCondition, printable } from '../../../model/model.ts'
import { LABEL_DRAIN } from '../../../model/lanes/lanes.ts'
import { messageOf, reasonOf } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { type Outcome, failureOutcome, steadyOutcome } from './check-outcome.ts'
import type { ProbeResult } from './probe-wire.ts'

export interface DrainInit {
  readonly signal: AbortSignal
  /** Awaited before the Node is marked, which is not done if it was marked already. */
  readonly beforeMark: () => Promise<void>
}

/** The gateways of one side. */
export interface DrainSide {
  /** The id of the member. */
  readonly id: string
  /** A gateway to drain, see freeGateway(). Rejects as the API does. */
  freeGateway(signal: AbortSignal): Promise<string | undefined>
  /** Drains it. Rejects if it does not carry nothing in time. */
  drain(node: string, init: DrainInit): Promise<unknown>
  /** Notes where the next run finds it that this one is about to drain it. */
  noteDrained(node: string, signal: AbortSignal): Promise<void>
  /** Ends the drain of this run, also after an interrupt. False if that failed. */
  takeBack(node: string): Promise<boolean>
}

export interface FailoverInit {
  readonly side: DrainSide
  /** Calls for FAILOVER_SECONDS, one each STEADY_MS. */
  readonly call: () => Promise<ProbeResult<'steady'>>
  readonly way: string
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

export const FAILOVER_SECONDS = 25
export const STEADY_MS = 50

/** Rejects only with the signal's reason. */
export async function checkFailover({ side, call, way, signal, say }: FailoverInit): Promise<Outcome> {
  let node: string | undefined
  try {
    node = await side.freeGateway(signal)
  } catch (error) {
    signal.throwIfAborted()
    return drainTrouble(error)
  }
  if (node === undefined) {
    const measured = `${side.id} has no two gateways that are not drained`
    return { measured, reason: 'OneGatewayOnly', isSkipped: true }
  }
  const calls = call()
  calls.catch(() => undefined)
  const marked = { isOurs: false, isTakenBack: true }
  let trouble: Outcome | undefined
  const name = node
  const beforeMark = async (): Promise<void> => {
    await side.noteDrained(name, signal)
    marked.isOurs = true
  }
  try {
    say(`${way}  drains gateway ${printable(node)}\n`)
    await side.drain(node, { signal, beforeMark })
  } catch (error) {
    signal.throwIfAborted()
    trouble = drainTrouble(error)
  } finally {
    // A drain that somebody else has begun meanwhile is not of this run.
    if (marked.isOurs) marked.isTakenBack = await side.takeBack(node)
  }
  const result = await calls
  if (!marked.isTakenBack) return { measured: `gateway ${node} stays drained`, reason: 'VerifyDrainFailed' }
  if (trouble !== undefined) return trouble
  if (!marked.isOurs) return { measured: `${node} was drained already`, reason: 'VerifySkipped', isSkipped: true }
  if (!result.ok) return failureOutcome(result)
  const outcome = steadyOutcome(result.value)
  return { ...outcome, measured: `${outcome.measured}; ${node} of ${side.id} drained and taken back` }
}

function drainTrouble(error: unknown): Outcome {
  return { measured: messageOf(error), reason: reasonOf(error) ?? 'VerifyDrainFailed' }
}

type Reader = Pick<ClusterAdmin, 'get' | 'list'>

/** The names of the active gateways that are not drained, sorted. */
export async function activeGateways(admin: Reader, signal: AbortSignal): Promise<readonly string[]> {
  const all = (await admin.list('sealane.io/v1alpha1', 'Gateway', {}, signal)) as unknown as readonly Gateway[]
  const active = all.filter(({ status }) => findCondition(status?.conditions, CONDITION_DRAINED) === undefined)
  return active.map(({ metadata }) => metadata.name).sort()
}

/**
 * A gateway to drain: neither it nor another one is drained already, which whoever drained it would lose. Undefined if
 * there are no two such gateways. Rejects as the API does.
 */
export async function freeGateway(admin: Reader, signal: AbortSignal): Promise<string | undefined> {
  const names = await activeGateways(admin, signal)
  const nodes = await Promise.all(names.map((name) => admin.get({ apiVersion: 'v1', kind: 'Node', name }, signal)))
  const free = nodes.filter((node) => node !== undefined && node.metadata.labels?.[LABEL_DRAIN] === undefined)
  return free.length > 1 ? free[0]?.metadata.name : undefined
}
