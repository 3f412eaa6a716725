/** Finds the largest packet that reaches a far end, with padded probes (RFC 8899), again and again over time. */
import type { Clock } from '../../reconcile/reconcile.ts'

/**
 * The search is pure: time and answers are inputs.
 *
 *   resting ──► confirming ──answered──► resting
 *                   └──── not in time: trying, all sizes at once
 *                            │ the size in use answers: nothing was wrong ──► resting
 *                            │ nothing answers: the path is silent, which says nothing about sizes ──► resting
 *                            └ smaller ones answer: use the largest of them, then try those between ──► resting
 *
 * Larger sizes are tried from time to time. Sizes are octets of an IP packet inside the tunnel.
 */

export interface SizeBounds {
  /**
   * The smallest size that is tried and used. It limits the harm that a far end can do by leaving larger sizes
   * unanswered.
   */
  readonly floor: number
  /** Sizes below it are tried only after it has failed: few paths are narrower. */
  readonly base: number
  /** MTU of the device. */
  readonly most: number
}

interface Rest {
  readonly is: 'resting'
  readonly sinceMs: number
}

interface Confirm {
  readonly is: 'confirming'
  readonly answered: boolean
}

interface Trial {
  readonly is: 'trying'
  /** doubt: the size in use gets no answer. between: only the sizes left between two others. more: larger sizes. */
  readonly why: 'doubt' | 'between' | 'more'
  /** Number of answers for each size that is tried. */
  readonly answers: ReadonlyMap<number, number>
  readonly roundsLeft: number
  /** Smallest size known to fail. Sizes above it are not tried. */
  readonly failed: number
}

export interface SearchState {
  readonly bounds: SizeBounds
  /** The size that passes. If absent, it is not known yet and `most` is used. */
  readonly size?: number
  readonly phase: Rest | Confirm | Trial
  /** When step() is due, in milliseconds. */
  readonly dueMs: number
  readonly raise: Raise
  /** Number of consecutive `doubt` trials without any answer. Absent if there is none. */
  readonly fruitless?: number
}

/** When larger sizes are tried again. A path that becomes narrow again soon after is tried less and less often. */
interface Raise {
  readonly waitMs: number
  readonly atMs: number
  /** The earliest time, used if there is a reason to try sooner. */
  readonly soonestMs: number
  /** When the size last grew. */
  readonly grewMs: number
}

export interface SearchMoment {
  readonly nowMs: number
  /** True if traffic flows to the far end. */
  readonly busy: boolean
  /** How long an answer may take. */
  readonly patienceMs: number
}

/**
 * WireGuard pads packets to a multiple of this (its paper, 5.4.6), so sizes between two multiples behave like the
 * larger one.
 */
export const SIZE_STEP = 16
/** Time between confirmations, with and without traffic. */
const CONFIRM_BUSY_MS = 400
const CONFIRM_IDLE_MS = 10_000
/** Time between two rounds of a trial. */
const ROUND_MS = 50
/**
 * With 7 % loss in each direction, this many consecutive losses occur by chance in one of about 10 million `doubt`
 * trials.
 */
const SUSPECT_ROUNDS = 8
const ROUNDS = 5
/** Number of answers that prove that a size passes. */
const ANSWERS_TO_FALL = 2
const ANSWERS_TO_GROW = 3
/** Number of sizes between two others that are tried at once. */
const AT_ONCE = 4
/**
 * The longest wait after trials without any answer; the wait doubles up to it. The far end may not answer sized probes
 * at all.
 */
const FRUITLESS_MOST_MS = 60_000
const RAISE_MS = 10_000
const RAISE_MOST_MS = 600_000
/** Factor of the wait if no traffic flows, since no traffic needs a larger size. */
const RAISE_IDLE = 6
/** If the size falls within this time after it grew, the wait until the next raise doubles. */
const GROWN_WELL_MS = 60_000

/** `size` is the size that passed in an earlier run; larger ones are tried at once. */
export function newSearch(bounds: SizeBounds, nowMs: number, size?: number): SearchState {
  const raise = { waitMs: RAISE_MS, atMs: nowMs, soonestMs: nowMs, grewMs: -Infinity }
  const known = size === undefined || size < bounds.floor || size >= bounds.most ? {} : { size }
  return { bounds, ...known, phase: { is: 'resting', sinceMs: nowMs }, dueMs: nowMs, raise }
}

/**
 * Applies a new MTU of the device. A size that was at the old maximum is unknown again. The size is confirmed at once.
 */
export function withBounds(state: SearchState, bounds: SizeBounds, nowMs: number): SearchState {
  const before = state.bounds
  if (before.most === bounds.most && before.base === bounds.base && before.floor === bounds.floor) return state
  const { size, ...rest } = state
  const kept = size === undefined || size >= before.most || size >= bounds.most ? {} : { size }
  return { ...rest, ...kept, bounds, phase: { is: 'resting', sinceMs: nowMs }, dueMs: nowMs }
}

/** The path has come up: the size is confirmed at once. */
function confirmSoon(state: SearchState, nowMs: number): SearchState {
  return { ...withoutFruitless(state), phase: { is: 'resting', sinceMs: nowMs }, dueMs: nowMs }
}

/** Confirms the size sooner if traffic has started since the rest began. */
export function followTraffic(state: SearchState, { busy }: Pick<SearchMoment, 'busy'>): SearchState {
  const { phase, dueMs } = state
  if (phase.is !== 'resting' || !busy || state.fruitless !== undefined || dueMs <= phase.sinceMs + CONFIRM_BUSY_MS)
    return state
  return { ...state, dueMs: phase.sinceMs + CONFIRM_BUSY_MS }
}

/** Confirms the size at this time, because another path has become narrow and this one may share the cause. */
function confirmAt(state: SearchState, atMs: number): SearchState {
  return state.phase.is === 'resting' && atMs < state.dueMs ? { ...state, dueMs: atMs } : state
}

/** Tries larger sizes at this time, because another path has become wider and this one may share the cause. */
function raiseAt(state: SearchState, atMs: number): SearchState {
  const { raise } = state
  const soonMs = Math.max(atMs, raise.soonestMs)
  if (sizeInUse(state) >= state.bounds.most || soonMs >= raise.atMs) return state
  const dueMs = state.phase.is === 'resting' ? Math.min(state.dueMs, soonMs) : state.dueMs
  return { ...state, raise: { ...raise, atMs: soonMs }, dueMs }
}

/** Returns the size that packets may have now. */
export function sizeInUse({ size, bounds }: SearchState): number {
  return Math.min(size ?? bounds.most, bounds.most)
}

interface Step {
  readonly state: SearchState
  /** Sizes of the padded questions to send, one of each. */
  readonly send: readonly number[]
}

/** Does what is due. */
export function step(state: SearchState, moment: SearchMoment): Step {
  switch (state.phase.is) {
    case 'resting':
      return begin(state, moment)
    case 'confirming':
      if (state.phase.answered) return rest(state, moment)
      return round(trial(state, 'doubt', suspectSizes(state), sizeInUse(state)), moment)
    case 'trying':
      return state.phase.roundsLeft > 0 ? round(state, moment) : conclude(state, state.phase, moment)
  }
}

/** Handles an answer to a question of this phase. */
export function answered(state: SearchState, size: number, moment: SearchMoment): SearchState {
  const { phase } = state
  if (phase.is === 'resting') return state
  if (state.fruitless !== undefined) return answered(withoutFruitless(state), size, moment)
  if (phase.is === 'confirming') {
    return size === sizeInUse(state) ? { ...state, size, phase: { is: 'confirming', answered: true } } : state
  }
  const count = phase.answers.get(size)
  if (count === undefined) return state
  // The packet was lost for another reason than its size.
  if (phase.why === 'doubt' && size === sizeInUse(state)) return rest({ ...state, size }, moment).state
  return { ...state, phase: { ...phase, answers: new Map(phase.answers).set(size, count + 1) } }
}

function withoutFruitless({ fruitless: _, ...state }: SearchState): SearchState {
  return state
}

function begin(state: SearchState, moment: SearchMoment): Step {
  const { nowMs, patienceMs } = moment
  const { bounds, raise } = state
  const inUse = sizeInUse(state)
  if (inUse < bounds.most && nowMs >= raise.atMs) {
    // The next larger size is included because the last search may have ended slightly too low.
    const next = Math.min(bounds.most, (Math.floor(inUse / SIZE_STEP) + 1) * SIZE_STEP)
    const larger = [next, ...spread(next, bounds.most, AT_ONCE - 2), bounds.most]
    return round(trial(state, 'more', larger, bounds.most + 1), moment)
  }
  return {
    state: { ...state, phase: { is: 'confirming', answered: false }, dueMs: nowMs + patienceMs },
    send: [inUse],
  }
}

function rest(state: SearchState, { nowMs, busy }: SearchMoment): Step {
  const usualMs = busy ? CONFIRM_BUSY_MS : CONFIRM_IDLE_MS
  const confirmMs = Math.max(usualMs, Math.min(FRUITLESS_MOST_MS, CONFIRM_BUSY_MS * 2 ** (state.fruitless ?? 0)))
  const isFull = sizeInUse(state) >= state.bounds.most
  const dueMs = Math.min(nowMs + confirmMs, isFull ? Infinity : Math.max(nowMs + ROUND_MS, state.raise.atMs))
  return { state: { ...state, phase: { is: 'resting', sinceMs: nowMs }, dueMs }, send: [] }
}

/** Returns the size in use, and the sizes that may pass instead. */
function suspectSizes(state: SearchState): number[] {
  const { floor, base } = state.bounds
  const inUse = sizeInUse(state)
  const below =
    inUse > base ? [floor, base, ...spread(base, inUse, AT_ONCE - 1)] : [floor, ...spread(floor, inUse, AT_ONCE)]
  return [...below, inUse]
}

function trial(state: SearchState, why: Trial['why'], sizes: readonly number[], failed: number): SearchState {
  const answers = new Map([...new Set(sizes)].map((size) => [size, 0]))
  return {
    ...state,
    phase: { is: 'trying', why, answers, failed, roundsLeft: why === 'doubt' ? SUSPECT_ROUNDS : ROUNDS },
  }
}

function round(state: SearchState, { nowMs, patienceMs }: SearchMoment): Step {
  const { phase } = state
  if (phase.is !== 'trying') return { state, send: [] }
  const roundsLeft = phase.roundsLeft - 1
  const dueMs = nowMs + (roundsLeft === 0 ? Math.max(ROUND_MS, patienceMs) : ROUND_MS)
  return { state: { ...state, phase: { ...phase, roundsLeft }, dueMs }, send: [...phase.answers.keys()] }
}

function conclude(state: SearchState, phase: Trial, moment: SearchMoment): Step {
  const enough = phase.why === 'more' ? ANSWERS_TO_GROW : ANSWERS_TO_FALL
  const inUse = sizeInUse(state)
  const passed = [...phase.answers].filter(([size, count]) => count >= enough && size !== inUse).map(([size]) => size)
  const none = passed.length === 0
  if (none && phase.why === 'doubt') {
    const isSilent = [...phase.answers.values()].every((count) => count === 0)
    return rest(isSilent ? { ...state, fruitless: (state.fruitless ?? 0) + 1 } : state, moment)
  }
  const size = none ? inUse : Math.max(...passed)
  const failed = Math.min(phase.failed, ...[...phase.answers.keys()].filter((one) => one > size))
  const next = { ...state, size, raise: nextRaise(state.raise, { why: phase.why, grew: size > inUse }, moment) }
  const between = none && phase.why === 'more' ? [] : spread(size, failed, AT_ONCE)
  return between.length === 0 ? rest(next, moment) : round(trial(next, 'between', between, failed), moment)
}

function nextRaise(
  raise: Raise,
  { why, grew }: { readonly why: Trial['why']; readonly grew: boolean },
  { nowMs, busy }: SearchMoment,
): Raise {
  if (why === 'between') return raise
  const isWorse = nowMs - raise.grewMs < GROWN_WELL_MS
  const afterFall = isWorse ? Math.min(RAISE_MOST_MS, raise.waitMs * 2) : RAISE_MS
  const waitMs = why === 'more' ? raise.waitMs : afterFall
  const grewMs = why === 'more' && grew ? nowMs : raise.grewMs
  return { waitMs, atMs: nowMs + waitMs * (busy ? 1 : RAISE_IDLE), soonestMs: nowMs + waitMs, grewMs }
}

/** Returns at most `most` sizes strictly between two sizes, evenly spread. */
function spread(above: number, below: number, most: number): number[] {
  const first = Math.floor(above / SIZE_STEP) + 1
  const count = Math.ceil(below / SIZE_STEP) - first
  if (count <= most) return Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * SIZE_STEP)
  return Array.from({ length: most }, (_, i) => (first + Math.floor(((i + 1) * count) / (most + 1))) * SIZE_STEP)
}

export interface PathSizeDeps {
  readonly clock: Clock
  /** Sends a padded question of this many octets. Returns its sequence number. */
  readonly ask: (size: number) => number
  /** Undefined if the far end does not answer. No question is sent then. */
  readonly moment: () => Pick<SearchMoment, 'busy' | 'patienceMs'> | undefined
  /** True if trials run for too many far ends now. */
  readonly isCrowded: () => boolean
  /** Called when the size becomes smaller or larger, and when a search ends with the exact size. */
  readonly onChange: (what: 'less' | 'more' | 'same') => void
}

/** Wait before the next try while too many other trials run. */
const CROWDED_WAIT_MS = 50
/** Checks of suspected far ends are spread over this time. */
const SUSPECT_WITHIN_MS = 200
/** Wait while the far end does not answer. start() ends the wait early. */
const SILENT_WAIT_MS = 1000
const TIMER_STEP_MS = 10

export class PathSize {
  readonly #deps: PathSizeDeps
  #state: SearchState
  /** The questions of this phase: sequence number to size. */
  readonly #asked = new Map<number, number>()
  #cancel = (): void => undefined
  #running = false
  #theirs: number | undefined

  /** For `size`, see newSearch(). */
  constructor(deps: PathSizeDeps, bounds: SizeBounds, size?: number) {
    this.#deps = deps
    this.#state = newSearch(bounds, deps.clock.monotonic(), size)
  }

  /** Octets of the largest packet that reaches the far end. Undefined if not known yet. */
  get sent(): number | undefined {
    return this.#state.size === undefined ? undefined : sizeInUse(this.#state)
  }

  /**
   * Octets of the largest packet from the far end that arrives here, as the far end reports. Undefined if not known.
   */
  get received(): number | undefined {
    return this.#theirs
  }

  /** True while many sizes are tried: larger packets than the known size may pass. */
  get isTrying(): boolean {
    return this.#state.phase.is === 'trying'
  }

  setBounds(bounds: SizeBounds): void {
    this.#change(withBounds(this.#state, bounds, this.#deps.clock.monotonic()))
  }

  /** The path has come up: the known size may be outdated. */
  start(): void {
    this.#running = true
    this.#change(confirmSoon(this.#state, this.#deps.clock.monotonic()))
    this.#wait()
  }

  /** Called with each health question to the far end. These are more frequent if traffic flows. */
  onBeat(): void {
    const moment = this.#deps.moment()
    if (this.#running && moment !== undefined) this.#change(followTraffic(this.#state, moment))
  }

  /** The size to another far end has changed; this one may have changed too. */
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

  /** Stores the size that the far end reports for its direction. It is only displayed: nothing depends on it. */
  onReport(carries: number): void {
    this.#theirs = carries === 0 ? undefined : carries
  }

  /** Returns true if this answers a question of the current phase. */
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
