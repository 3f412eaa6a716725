/** Waiting for what a cluster does by itself: asked again and again, told about while it lasts, never for ever. */
import type { Clock } from '../../reconcile/clock.ts'
import { formatDuration } from '../../runtime/duration.ts'
import { UserError } from '../../runtime/user-error.ts'

export interface Missing {
  /** What is waited for, by name: `gateway, dns`. Told at once when it changes. */
  readonly what: string
  /** How it stands, as of now: it comes and goes, and is told only when it lasts. */
  readonly why?: string | undefined
}

/** Undefined: it is done. */
export type Look = (signal: AbortSignal) => Promise<Missing | undefined>

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

const LOOK_EVERY_MS = 250
/** Pods restart, lanes shake hands: what passes sooner than this is no news. */
const LASTS_MS = 5000

/** Throws UserError with what was missing last when the time is over, and whatever the look throws. */
export async function waitUntil(look: Look, init: WaitInit): Promise<void> {
  const { what, timeoutMs, clock, signal, hint } = init
  const end = clock.monotonic() + timeoutMs
  const account = new WaitAccount(init)
  for (;;) {
    signal.throwIfAborted()
    const missing = await look(signal)
    if (missing === undefined) return
    if (clock.monotonic() >= end) {
      throw new UserError(`waited ${formatDuration(timeoutMs)} for ${what}: ${sentence(missing)}`, { hint })
    }
    account.hear(missing)
    await clock.sleep(LOOK_EVERY_MS, signal)
  }
}

/** Says each thing once: what is waited for when it changes, how it stands when that has lasted. */
class WaitAccount {
  readonly #init: WaitInit
  #what: string | undefined
  #why: string | undefined
  #since = 0
  readonly #told = new Set<string>()

  constructor(init: WaitInit) {
    this.#init = init
  }

  hear({ what, why }: Missing): void {
    const { clock, say } = this.#init
    if (what !== this.#what) say(`waiting for ${this.#init.what}: ${what}\n`)
    if (what !== this.#what || why !== this.#why) this.#since = clock.monotonic()
    this.#what = what
    this.#why = why
    if (why === undefined || clock.monotonic() - this.#since < LASTS_MS || this.#told.has(why)) return
    this.#told.add(why)
    say(`  ${what}: ${why}\n`)
  }
}

function sentence({ what, why }: Missing): string {
  return why === undefined ? what : `${what}: ${why}`
}
