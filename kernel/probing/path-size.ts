/** Finds out by padded questions which packets get to one far end, as time passes. */
import type { Clock } from '../../reconcile/clock.ts'
import {
  type SearchMoment,
  type SearchState,
  type SizeBounds,
  answered,
  confirmAt,
  confirmSoon,
  followTraffic,
  raiseAt,
  newSearch,
  sizeInUse,
  step,
  withBounds,
} from './size-search.ts'

export interface PathSizeDeps {
  readonly clock: Clock
  /** Sends a padded question of so many octets. Gives its sequence. */
  readonly ask: (size: number) => number
  /** Undefined: the far end does not answer; nothing is asked. */
  readonly moment: () => Pick<SearchMoment, 'busy' | 'patienceMs'> | undefined
  /** Too many far ends are tried with many sizes at this moment. */
  readonly isCrowded: () => boolean
  /** Called when what passes is less or more than before, and when it is known exactly. */
  readonly onChange: (what: 'less' | 'more' | 'same') => void
}

/** While many others are tried. */
const CROWDED_WAIT_MS = 50
/** Many far ends that are suspected are not asked at one moment. */
const SUSPECT_WITHIN_MS = 200
/** While it does not answer: start() comes when it does. */
const SILENT_WAIT_MS = 1000
const TIMER_STEP_MS = 10

export class PathSize {
  readonly #deps: PathSizeDeps
  #state: SearchState
  /** Of this phase: sequence to size. */
  readonly #asked = new Map<number, number>()
  #cancel = (): void => undefined
  #running = false
  #theirs: number | undefined

  /** `size`: as in newSearch(). */
  constructor(deps: PathSizeDeps, bounds: SizeBounds, size?: number) {
    this.#deps = deps
    this.#state = newSearch(bounds, deps.clock.monotonic(), size)
  }

  /** Octets of the largest packet that gets there; undefined: not known yet. */
  get sent(): number | undefined {
    return this.#state.size === undefined ? undefined : sizeInUse(this.#state)
  }

  /** The same for what comes from there, as the far end says; undefined: not known. */
  get received(): number | undefined {
    return this.#theirs
  }

  /** Many sizes are tried: what passes may be more than is known. */
  get isTrying(): boolean {
    return this.#state.phase.is === 'trying'
  }

  setBounds(bounds: SizeBounds): void {
    this.#change(withBounds(this.#state, bounds, this.#deps.clock.monotonic()))
  }

  /** The way is up: what is known of it may be old. */
  start(): void {
    this.#running = true
    this.#change(confirmSoon(this.#state, this.#deps.clock.monotonic()))
    this.#wait()
  }

  /** Called whenever the far end is asked whether it is there, which is more often where traffic flows. */
  onBeat(): void {
    const moment = this.#deps.moment()
    if (this.#running && moment !== undefined) this.#change(followTraffic(this.#state, moment))
  }

  /** Another way carries less than before, or more: this one perhaps too. */
  suspect(what: 'less' | 'more'): void {
    if (!this.#running) return
    const { clock } = this.#deps
    const atMs = clock.monotonic() + clock.random() * SUSPECT_WITHIN_MS
    this.#change(what === 'less' ? confirmAt(this.#state, atMs) : raiseAt(this.#state, atMs))
  }

  stop(): void {
    this.#running = false
    this.#cancel()
    this.#asked.clear()
  }

  /** The far end tells what gets from there to here. It is only shown: nothing depends on it. */
  onReport(carries: number): void {
    this.#theirs = carries === 0 ? undefined : carries
  }

  /** True when it is the answer to a question of this phase. */
  onAnswer(sequence: number, size: number): boolean {
    const moment = this.#moment()
    if (this.#asked.get(sequence) !== size || moment === undefined) return false
    this.#asked.delete(sequence)
    this.#change(answered(this.#state, size, moment))
    return true
  }

  #moment(): SearchMoment | undefined {
    const known = this.#deps.moment()
    return known === undefined ? undefined : { ...known, nowMs: this.#deps.clock.monotonic() }
  }

  #turn(): void {
    const moment = this.#moment()
    if (moment === undefined) {
      this.#wait(SILENT_WAIT_MS)
      return
    }
    if (moment.nowMs < this.#state.dueMs) {
      this.#wait()
      return
    }
    const { state, send } = step(this.#state, moment)
    if (state.phase.is === 'trying' && !this.isTrying && this.#deps.isCrowded()) {
      this.#wait(CROWDED_WAIT_MS)
      return
    }
    this.#change(state)
    for (const size of send) this.#asked.set(this.#deps.ask(size), size)
    this.#wait()
  }

  #wait(leastMs = 0): void {
    this.#cancel()
    if (!this.#running) return
    const ms = Math.max(leastMs, this.#state.dueMs - this.#deps.clock.monotonic())
    this.#cancel = this.#deps.clock.setTimer(Math.ceil(ms / TIMER_STEP_MS) * TIMER_STEP_MS, () => this.#turn())
  }

  #change(next: SearchState): void {
    const [before, usedBefore] = [this.#state, this.sent]
    this.#state = next
    if (phaseOf(before) !== phaseOf(next)) this.#asked.clear()
    if (next.dueMs !== before.dueMs) this.#wait()
    const isFound = phaseOf(before) === 'between' && phaseOf(next) !== 'between'
    if (usedBefore === this.sent && !isFound) return
    const more = sizeInUse(next) - sizeInUse(before)
    this.#deps.onChange(more < 0 ? 'less' : more > 0 ? 'more' : 'same')
  }
}

function phaseOf({ phase }: SearchState): string {
  return phase.is === 'trying' ? phase.why : phase.is
}
