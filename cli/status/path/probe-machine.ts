/** What one machine does for `sealane explain --probe`: follows the packets of a call, and sends them if it is asked to. */
import {
  PROBE_REPORT,
  PROBE_SECONDS,
  PROBE_TASK,
  type ProbeReport,
  type ProbeTask,
} from '../../../explain/path/path.ts'
import { type Clock, SystemClock } from '../../../reconcile/reconcile.ts'
import { UserError } from '../../../runtime/runtime.ts'
import { sendProbe } from './send-probe.ts'

export interface ProbeMachineInit {
  readonly task: ProbeTask
  /** Called when packets are followed, before any is sent. */
  readonly onReady?: (problem: string | undefined) => void
  /** A machine that sends nothing follows packets until this resolves, and not longer than the task says. */
  readonly until?: Promise<unknown>
  readonly clock?: Clock
}

/** Rejects only with the signal's reason. */
export async function probeMachine(
  { task, onReady, until, clock = new SystemClock() }: ProbeMachineInit,
  signal: AbortSignal,
): Promise<ProbeReport> {
  const { traceHere } = await import('../../../compose/trace.ts')
  const { family, send, seconds, counts, ...call } = task
  const tables = send !== undefined || counts === true
  return traceHere({ family, call, seconds }, signal, async (trace) => {
    const before = await trace.counters({ tables }, signal)
    onReady?.(trace.problem)
    const { protocol, sourcePort } = call
    const sent =
      send === undefined
        ? undefined
        : await sendProbe({ ...send, protocol, family, sourcePort, waitMs: PROBE_SECONDS * 1000 }, clock, signal)
    if (send === undefined) await firstOf(until, { ms: seconds * 1000, clock, signal })
    const lines = await trace.lines(signal)
    const after = await trace.counters({ tables }, signal)
    const { problem } = trace
    return {
      at: new Date(clock.now()).toISOString(),
      ...(sent === undefined ? {} : { sent }),
      ...(problem === undefined ? {} : { problem: problem.slice(0, 300) }),
      lines: [...lines],
      leftOut: trace.leftOut,
      counters: grown(before, after),
    }
  })
}

interface Wait {
  readonly ms: number
  readonly clock: Clock
  readonly signal: AbortSignal
}

async function firstOf(until: Promise<unknown> | undefined, { ms, clock, signal }: Wait): Promise<void> {
  const stop = new AbortController()
  const sleeps = clock.sleep(ms, AbortSignal.any([signal, stop.signal])).catch(() => undefined)
  await Promise.race([sleeps, until ?? sleeps])
  stop.abort()
  signal.throwIfAborted()
}

/** One that was not read before may have counted anything. */
function grown(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): ProbeReport['counters'] {
  return [...after].flatMap(([name, count]) => {
    const had = before.get(name)
    return had !== undefined && count > had ? [{ name, before: had, after: count }] : []
  })
}

/** The task of the hidden command. Throws UserError. */
export function parseProbeTask(text: string): ProbeTask {
  return checked('task', () => PROBE_TASK.parse(JSON.parse(text)))
}

/** The report of a machine, which may run another release. Throws UserError. */
export function parseProbeReport(text: string): ProbeReport {
  return checked('report', () => PROBE_REPORT.parse(JSON.parse(text)))
}

function checked<T>(what: string, read: () => T): T {
  try {
    return read()
  } catch (cause) {
    throw new UserError(`the ${what} of a probe: expected JSON as this release writes it`, { cause, exitCode: 2 })
  }
}
