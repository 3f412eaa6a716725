/** Time limits of commands that only look. */
import type { Option } from 'commander'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'
import { durationOption } from './command-context.ts'

/** `--timeout` of the commands that only look. */
export function lookTimeoutOption(standardMs = 30_000): Option {
  return durationOption('--timeout', 'how long to wait for answers', standardMs, { minMs: 1 })
}

/** The abort reason of a signal whose time limit is over. */
export class OutOfTime extends UserError {
  readonly ms: number
  constructor(ms: number, whom = '') {
    const from = whom === '' ? '' : `${whom}: `
    super(`${from}no answer within ${formatDuration(ms)}`, {
      hint: 'check that it runs and can be reached from here, or wait longer with --timeout',
    })
    this.name = 'OutOfTime'
    this.ms = ms
  }
}

/**
 * Runs `work` with a signal that aborts with `signal` or after `ms` milliseconds. Throws OutOfTime if the work has not
 * ended by then.
 */
export async function withinTime<T>(
  signal: AbortSignal,
  ms: number,
  work: (limited: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController()
  const cancel = new SystemClock().setTimer(ms, () => late.abort(new OutOfTime(ms)))
  try {
    return await work(AbortSignal.any([signal, late.signal]))
  } finally {
    cancel()
  }
}

/**
 * The error of a command whose signal has aborted: either the time limit is over, with the name of what did not answer,
 * or the user has interrupted the command.
 */
export function interruption(signal: AbortSignal, whom?: string): UserError {
  const reason: unknown = signal.reason
  // The error has no cause, because the frame of the process takes a signal's own reason for success.
  return reason instanceof OutOfTime
    ? new OutOfTime(reason.ms, whom)
    : new UserError('interrupted before it was complete')
}
