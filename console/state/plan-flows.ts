/** Who calls whom, as `sealane flows` and `sealane top` read it: samples, what was refused by rule, calls by service. */
import type { FlowLine } from '../../model/model.ts'
import type { CallsRow, ConsoleState, FlowSample, RefusalRow, Section } from './document.ts'
import { type Answer, MAX_MESSAGE, clipped, compare, endText, numbers, section, staleOf } from './plan-rows.ts'

/** The latest samples. */
const MOST_FLOWS = 200
/** Services with errors and the most called ones, and the rules that refuse most. */
const MOST_CALLED = 200
const MOST_RULES = 100
/** Samples of which rules are counted. A page of a node has 400, and a cluster has many nodes. */
const MOST_COUNTED = 100_000

/** A sample with the node that saw it. */
export type FlowFact = FlowLine & { readonly node?: string }

/** Calls to one service, as `sealane top services` sums them. */
export interface CallsFact {
  readonly name: string
  readonly callsPerSecond: number
  readonly bytesPerSecond: number
  readonly recent: { readonly refused: number; readonly unanswered: number }
  readonly p50Ms?: number
  readonly p99Ms?: number
}

export interface FlowsFacts {
  /** In any order. */
  readonly lines: readonly FlowFact[]
  /** The most called first. */
  readonly calls: readonly CallsFact[]
  /** Calls a second of which a node makes samples at most. */
  readonly sampled: number
  /** What nodes could not count or sample, and which did not answer. */
  readonly problems: readonly string[]
}

export interface FlowCommands {
  readonly flows: string
  readonly refusals: string
  readonly calls: string
}

type FlowSections = Pick<ConsoleState, 'flows' | 'refusals' | 'calls'>

/** Undefined: the source has none. */
export function planFlows(answer: Answer<FlowsFacts> | undefined, commands: FlowCommands): FlowSections {
  if (answer?.t !== 'known') {
    const note = clipped(answer?.why ?? 'No calls are read here.', MAX_MESSAGE)
    const empty = <T>(command: string): Section<T> => ({ command, rows: [], more: 0, note })
    return { flows: empty(commands.flows), refusals: empty(commands.refusals), calls: empty(commands.calls) }
  }
  const { lines, calls, sampled, problems } = answer.value
  const latest = [...lines].sort((a, b) => compare(b.at, a.at) || (b.number ?? 0) - (a.number ?? 0))
  const said = [...problems.slice(0, 5), ...(problems.length > 5 ? [`and ${problems.length - 5} more`] : [])]
  const samples = `${lines.length === 0 ? 'No calls. ' : ''}Samples: at most ${sampled} calls a second of each node.`
  const about = (text: string): string => clipped([text, ...said].filter((one) => one !== '').join(' '), MAX_MESSAGE)
  const stale = staleOf(answer)
  return {
    flows: { ...section(commands.flows, latest, MOST_FLOWS, flowSample), note: about(samples), ...stale },
    refusals: { ...section(commands.refusals, rulesOf(latest), MOST_RULES, (row) => row), ...stale },
    calls: {
      ...section(commands.calls, calls.toSorted(byErrors), MOST_CALLED, callsRow),
      ...(said.length === 0 ? {} : { note: about('') }),
      ...stale,
    },
  }
}

function flowSample({ at, node, outcome, reason, from, to, protocol, port, ms }: FlowFact): FlowSample {
  return {
    at: clipped(at),
    ...(node === undefined ? {} : { node: clipped(node) }),
    ...{ outcome, from: endText(from), to: endText(to), protocol: clipped(protocol) },
    ...numbers({ port, ms }),
    ...(reason === undefined ? {} : { reason: clipped(reason) }),
  }
}

/** Services with errors come first, however rarely they are called. The order stays within the two. */
function byErrors(a: CallsFact, b: CallsFact): number {
  const hasErrors = ({ recent: { refused, unanswered } }: CallsFact): number => (refused + unanswered > 0 ? 1 : 0)
  return hasErrors(b) - hasErrors(a)
}

function callsRow({ name, callsPerSecond, bytesPerSecond, recent, p50Ms, p99Ms }: CallsFact): CallsRow {
  const { refused, unanswered } = recent
  return { service: clipped(name), callsPerSecond, bytesPerSecond, refused, unanswered, ...numbers({ p50Ms, p99Ms }) }
}

/** The rule is the reason code. The latest packet is the example. */
function rulesOf(latest: readonly FlowFact[]): readonly RefusalRow[] {
  const refused = latest.slice(0, MOST_COUNTED).filter(({ outcome }) => outcome === 'denied' || outcome === 'refused')
  const byRule = Map.groupBy(refused, ({ outcome, reason = '-' }) => `${outcome} ${clipped(reason)}`)
  const rows = [...byRule.values()].flatMap((some): readonly RefusalRow[] => {
    const [last] = some
    if (last === undefined) return []
    const { outcome, reason = '-', at, from, to } = last
    return [
      {
        ...{ outcome: outcome as RefusalRow['outcome'], reason: clipped(reason), count: some.length },
        ...{ latest: clipped(at), from: endText(from), to: endText(to) },
      },
    ]
  })
  return rows.sort((a, b) => b.count - a.count || compare(a.reason, b.reason))
}
