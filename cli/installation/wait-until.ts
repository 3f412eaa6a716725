/**
 * Waits for changes that a cluster makes by itself: polls the cluster, prints what is missing, and gives up after a
 * time limit.
 */
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'

export interface Missing {
  /** The names of what is missing: `gateway, dns`. Printed at once when it changes. */
  readonly what: string
  /** The current state of what is missing. It may change often, so it is printed only if it lasts. */
  readonly why?: string | undefined
  /** What the user has to do if the problem does not go away by itself. Such a problem is waited for only briefly. */
  readonly mend?: string | undefined
  /** The time limit from the start in milliseconds, if a person has to decide. Undefined for the usual limit. */
  readonly mayTakeMs?: number | undefined
}

/** Undefined if nothing is missing. */
export type Probe = (signal: AbortSignal) => Promise<Missing | undefined>

export interface WaitInit {
  /** `the agent to join` */
  readonly what: string
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  /** What to do if the time limit is exceeded. */
  readonly hint: string
}

/** The time limit is exceeded, or the problem does not go away by itself. */
export class TookTooLong extends UserError {}

const LOOK_EVERY_MS = 250
/** Pods restart and lanes handshake; a state that passes sooner than this is not printed. */
const LASTS_MS = 5000
/** A registry that fails for a moment recovers sooner than this; a wrong image name never does. */
const GIVE_UP_MS = 15_000

/**
 * Polls `look` until nothing is missing. Throws TookTooLong, which says what was missing last, if the time limit is
 * exceeded or if the user has had to fix the same problem for 15 seconds. Also throws what `look` throws, but waits for
 * an API server that is unavailable as for anything else.
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
      throw new TookTooLong(`stopped waiting for ${what}, which needs your action: ${sentence(missing)}`, {
        hint: mend,
      })
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

/** Prints each message once: what is missing when it changes, and its state when it has lasted. */
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
