/** A command that looks ends in time, whatever it waits for. */
import type { Option } from 'commander'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'
import { durationOption } from './command-context.ts'

/** `--timeout` of the commands that look. */
export function lookTimeoutOption(standardMs = 30_000): Option {
  return durationOption('--timeout', 'how long to wait for answers', standardMs, { minMs: 1 })
}

/** The reason of a signal whose time is over. */
export class OutOfTime extends UserError {
  readonly ms: number
  constructor(ms: number, whom = '') {
    const from = whom === '' ? '' : `${whom}: `
    super(`${from}no answer within ${formatDuration(ms)}`, {
      hint: 'see that it runs and can be reached from here, or wait longer with --timeout',
    })
    this.name = 'OutOfTime'
    this.ms = ms
  }
}

/**
 * Works with a signal that ends with `signal`, and after `ms`. Throws OutOfTime where the work has not ended by then.
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
 * What a command that was ended throws: that its time is over, naming whom it waited for, or that somebody stopped it.
 */
export function interruption(signal: AbortSignal, whom?: string): UserError {
  const reason: unknown = signal.reason
  // No cause: the frame of the process takes a signal's own reason for success.
  return reason instanceof OutOfTime ? new OutOfTime(reason.ms, whom) : new UserError('interrupted before it was done')
}
