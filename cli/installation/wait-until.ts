/**
 * Waiting for what a cluster does by itself: it is asked again and again, what is missing is printed, and there is a
 * deadline.
 */
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'

export interface Missing {
  /** What is waited for, by name: `gateway, dns`. Printed at once when it changes. */
  readonly what: string
  /** Its state as of now: it comes and goes, and is printed only when it lasts. */
  readonly why?: string | undefined
  /** It does not pass by itself, as far as can be seen: what somebody has to do. Waited for a moment only. */
  readonly mend?: string | undefined
  /** Somebody decides about it, and is given so long from the start, in milliseconds. */
  readonly mayTakeMs?: number | undefined
}

/** Undefined: it is done. */
export type Probe = (signal: AbortSignal) => Promise<Missing | undefined>

export interface WaitInit {
  /** `the agent to join` */
  readonly what: string
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  /** What to do when it takes too long. */
  readonly hint: string
}

/** The time is over, or what is waited for does not come by itself. */
export class TookTooLong extends UserError {}

const LOOK_EVERY_MS = 250
/** Pods restart, lanes shake hands: what passes sooner than this is no news. */
const LASTS_MS = 5000
/** A registry that stumbles is asked again sooner than this; a wrong name stays wrong. */
const GIVE_UP_MS = 15_000

/**
 * Throws TookTooLong with what was missing last when the time is over, or when it has been something to mend for 15
 * seconds; and whatever the look throws. An API server that
 * is away for a moment is waited for like everything else.
 */
export async function waitUntil(look: Probe, init: WaitInit): Promise<void> {
  const { what, timeoutMs, clock, signal, hint } = init
  const begun = clock.monotonic()
  const account = new WaitAccount(init)
  let hopelessSince: number | undefined
  for (;;) {
    signal.throwIfAborted()
    const missing = await looked(look, signal)
    if (missing === undefined) return
    const { mend } = missing
    hopelessSince = mend === undefined ? undefined : (hopelessSince ?? clock.monotonic())
    if (mend !== undefined && clock.monotonic() - (hopelessSince ?? 0) >= GIVE_UP_MS) {
      throw new TookTooLong(`waited for ${what}, which will not come by itself: ${sentence(missing)}`, { hint: mend })
    }
    const limitMs = missing.mayTakeMs ?? timeoutMs
    if (clock.monotonic() >= begun + limitMs) {
      throw new TookTooLong(
        `waited ${formatDuration(Math.round(limitMs / 1000) * 1000)} for ${what}: ${sentence(missing)}`,
        {
          hint: mend ?? hint,
        },
      )
    }
    account.onReason(missing)
    await clock.sleep(LOOK_EVERY_MS, signal)
  }
}

async function looked(look: Probe, signal: AbortSignal): Promise<Missing | undefined> {
  try {
    return await look(signal)
  } catch (error) {
    if (signal.aborted || !(error instanceof ClusterApiError) || error.code !== 'Unavailable') throw error
    return { what: 'the API server', why: error.message }
  }
}

/** Prints each thing once: what is waited for when it changes, its state when that has lasted. */
class WaitAccount {
  readonly #init: WaitInit
  #what: string | undefined
  #why: string | undefined
  #since = 0
  readonly #reported = new Set<string>()

  constructor(init: WaitInit) {
    this.#init = init
  }

  onReason({ what, why }: Missing): void {
    const { clock, say } = this.#init
    if (what !== this.#what) say(`waiting for ${this.#init.what}: ${what}\n`)
    if (what !== this.#what || why !== this.#why) this.#since = clock.monotonic()
    this.#what = what
    this.#why = why
    if (why === undefined || clock.monotonic() - this.#since < LASTS_MS || this.#reported.has(why)) return
    this.#reported.add(why)
    say(`  ${what}: ${why}\n`)
  }
}

function sentence({ what, why }: Missing): string {
  return why === undefined ? what : `${what}: ${why}`
}
