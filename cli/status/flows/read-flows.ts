/** Reads what a route agent says about calls, which another release or another program may have written. Pure. */
import {
  FLOW_OUTCOMES,
  type FlowEndpoint,
  type FlowLine,
  type FlowPage,
  type FlowRow,
  MAX_FLOW_ROWS,
  readFlowCounts,
  isTimes,
} from '../../../model/model.ts'
import { UserError } from '../../../runtime/runtime.ts'
import { readDenied } from '../access/read-denied.ts'

/** A page, with the refusals of access rules among its lines. */
export interface NodeFlows extends FlowPage {
  readonly node?: string
}

const MAX_LINES = 1000

/** Takes the page of a routeagent. Throws UserError. */
export function readFlows(text: string): NodeFlows {
  const refuse = (what: string): never => {
    throw new UserError(`counts of calls: expected ${what}`)
  }
  let said: unknown
  try {
    said = JSON.parse(text)
  } catch {
    refuse('JSON')
  }
  const { since, recentSeconds, rows, rest, lines, sampled, problem, denied } = fieldsOf(said)
  if (rows === undefined && Array.isArray(denied)) return refuse('counts, which this routeagent does not have')
  const [begun, others] = [shortText(since), rowOf(rest)]
  if (begun === undefined || !isAbove0(recentSeconds) || !isAbove0(sampled) || others === undefined)
    return refuse('since, recentSeconds, sampled and rest')
  if (!Array.isArray(rows) || rows.length > MAX_FLOW_ROWS) return refuse(`at most ${MAX_FLOW_ROWS} rows`)
  if (!Array.isArray(lines) || lines.length > MAX_LINES) return refuse(`at most ${MAX_LINES} lines`)
  const why = shortText(problem)
  return {
    ...{ since: begun, recentSeconds, sampled, rest: others },
    rows: rows.map((row: unknown) => rowOf(row) ?? refuse('way, total, recent and times in each row')),
    lines: [
      ...lines
        .filter((line: unknown) => !isOfLaterRelease(line))
        .map((line: unknown) => lineOf(line) ?? refuse('at, outcome, from, to and protocol in each line')),
      ...readDenied(JSON.stringify(denied ?? [])).map((row): FlowLine => ({ ...row, outcome: 'denied' })),
    ],
    ...(why === undefined ? {} : { problem: why }),
  }
}

function rowOf(value: unknown): FlowRow | undefined {
  const { way, namespace, service, cluster, total, recent, times } = fieldsOf(value)
  const [all, late] = [readFlowCounts(total), readFlowCounts(recent)]
  if ((way !== 'in' && way !== 'out') || all === undefined || late === undefined || !isTimes(times)) return undefined
  return { way, ...names({ namespace, service, cluster }), total: all, recent: late, times }
}

/** Route agents of later releases may have more outcomes. */
function isOfLaterRelease(line: unknown): boolean {
  const outcome = shortText(fieldsOf(line)['outcome'])
  return outcome !== undefined && FLOW_OUTCOMES.every((one) => one !== outcome)
}

function lineOf(value: unknown): FlowLine | undefined {
  const { number, at, outcome, reason, from, to, protocol, port, ms } = fieldsOf(value)
  const [time, kind, why] = [shortText(at), shortText(protocol), shortText(reason)]
  const [caller, called] = [endOf(from), endOf(to)]
  const known = FLOW_OUTCOMES.find((one) => one === outcome)
  if (time === undefined || kind === undefined || known === undefined) return undefined
  if (caller === undefined || called === undefined) return undefined
  return {
    ...{ at: time, outcome: known, from: caller, to: called, protocol: kind },
    ...(isAbove0(number) ? { number } : {}),
    ...(why === undefined ? {} : { reason: why }),
    ...(isAbove0(port) ? { port } : {}),
    ...(typeof ms === 'number' && Number.isFinite(ms) ? { ms } : {}),
  }
}

function endOf(value: unknown): FlowEndpoint | undefined {
  const { address, namespace, pod, service, cluster } = fieldsOf(value)
  const text = shortText(address)
  return text === undefined ? undefined : { address: text, ...names({ namespace, pod, service, cluster }) }
}

function names<K extends string>(fields: Readonly<Record<K, unknown>>): { readonly [key in K]?: string } {
  const found = Object.entries(fields).flatMap(([key, value]) => {
    const text = shortText(value)
    return text === undefined ? [] : [[key, text] as const]
  })
  return Object.fromEntries(found) as { readonly [key in K]?: string }
}

function isAbove0(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {}
}

/** No line ends or other control characters reach the terminal. */
function shortText(value: unknown): string | undefined {
  return typeof value === 'string' && /^[\x20-\x7e]{1,300}$/.test(value) ? value : undefined
}
