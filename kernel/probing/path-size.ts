/** Finds out by padded questions which packets get to one far end, as time passes. */
import type { Clock } from '../../reconcile/reconcile.ts'

/**
 * Which packets get to a far end whole, by padded probes (RFC 8899). Pure: time and answers come from outside.
 *
 *   resting ──► confirming ──answered──► resting
 *                   └──── not in time: trying, all sizes at once
 *                            │ the size in use answers: nothing was wrong ──► resting
 *                            │ nothing answers: the way is silent, which says nothing of sizes ──► resting
 *                            └ smaller ones answer: the largest of them from now on, then those between ──► resting
 *
 * Now and then larger sizes are tried. Sizes are octets of an IP packet inside the tunnel.
 */

export interface SizeBounds {
  /** Used where nothing larger answers, whether it answers or not: what the far end says can do no more harm. */
  readonly floor: number
  /** Tried before what lies below: few ways are narrower. */
  readonly base: number
  /** Of the device. */
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
  /** doubt: the size in use gets no answer; between: only those that are left; more: larger ones. */
  readonly why: 'doubt' | 'between' | 'more'
  /** Answers of each size that is tried. */
  readonly answers: ReadonlyMap<number, number>
  readonly roundsLeft: number
  /** Known not to pass; those above are not tried. */
  readonly failed: number
}

export interface SearchState {
  readonly bounds: SizeBounds
  /** What passes; absent: not known yet, `most` is used. */
  readonly size?: number
  readonly phase: Rest | Confirm | Trial
  /** When step() is due. Milliseconds. */
  readonly dueMs: number
  readonly raise: Raise
  /** Doubts in a row to which nothing at all was answered. Absent: none. */
  readonly fruitless?: number
}

/** When larger sizes are tried again. A way that is narrow again soon after is tried less and less often. */
interface Raise {
  readonly waitMs: number
  readonly atMs: number
  /** The same where something speaks for it. */
  readonly soonestMs: number
  /** When the size grew last. */
  readonly grewMs: number
}

export interface SearchMoment {
  readonly nowMs: number
  /** Traffic flows there. */
  readonly busy: boolean
  /** How long an answer may take. */
  readonly patienceMs: number
}

/** WireGuard fills packets up to a multiple of this (its paper, 5.4.6): sizes between behave like the next one. */
export const SIZE_STEP = 16
/** From one confirmation to the next, where traffic flows and where none does. */
const CONFIRM_BUSY_MS = 400
const CONFIRM_IDLE_MS = 10_000
/** Between two rounds of a trial. */
const ROUND_MS = 50
/** So many in a row are not lost by chance: of 7 % each way, once in some 10 million doubts. */
const DOUBT_ROUNDS = 8
const ROUNDS = 5
/** A size passes by so many answers. */
const ANSWERS_TO_FALL = 2
const ANSWERS_TO_GROW = 3
/** Tried at once between two sizes. */
const AT_ONCE = 4
/** At most so long after doubts to which nothing was answered, doubled each time: it may be that nobody answers at all. */
const FRUITLESS_MOST_MS = 60_000
const RAISE_MS = 10_000
const RAISE_MOST_MS = 600_000
/** Where nothing flows, nobody waits for it. */
const RAISE_IDLE = 6
/** A size that falls within this time after it grew had better not have grown. */
const GROWN_WELL_MS = 60_000

/** `size`: what passed when somebody looked last; larger ones are tried at once. */
export function newSearch(bounds: SizeBounds, nowMs: number, size?: number): SearchState {
  const raise = { waitMs: RAISE_MS, atMs: nowMs, soonestMs: nowMs, grewMs: -Infinity }
  const known = size === undefined || size < bounds.floor || size >= bounds.most ? {} : { size }
  return { bounds, ...known, phase: { is: 'resting', sinceMs: nowMs }, dueMs: nowMs, raise }
}

/** The device has another MTU: what was as large as it goes is again, and is confirmed at once. */
export function withBounds(state: SearchState, bounds: SizeBounds, nowMs: number): SearchState {
  const before = state.bounds
  if (before.most === bounds.most && before.base === bounds.base && before.floor === bounds.floor) return state
  const { size, ...rest } = state
  const kept = size === undefined || size >= before.most || size >= bounds.most ? {} : { size }
  return { ...rest, ...kept, bounds, phase: { is: 'resting', sinceMs: nowMs }, dueMs: nowMs }
}

/** The way has come up: what is known of it is confirmed at once. */
function confirmSoon(state: SearchState, nowMs: number): SearchState {
  return { ...withoutFruitless(state), phase: { is: 'resting', sinceMs: nowMs }, dueMs: nowMs }
}

/** Traffic flows where none did when it began to rest: it is confirmed sooner. */
export function followTraffic(state: SearchState, { busy }: Pick<SearchMoment, 'busy'>): SearchState {
  const { phase, dueMs } = state
  if (phase.is !== 'resting' || !busy || state.fruitless !== undefined || dueMs <= phase.sinceMs + CONFIRM_BUSY_MS)
    return state
  return { ...state, dueMs: phase.sinceMs + CONFIRM_BUSY_MS }
}

/** Another way has become narrow, perhaps by what both have in common: it is confirmed at this time. */
function confirmAt(state: SearchState, atMs: number): SearchState {
  return state.phase.is === 'resting' && atMs < state.dueMs ? { ...state, dueMs: atMs } : state
}

/** Another way carries more than before, perhaps by what both have in common: larger sizes are tried soon. */
function raiseAt(state: SearchState, atMs: number): SearchState {
  const { raise } = state
  const soonMs = Math.max(atMs, raise.soonestMs)
  if (sizeInUse(state) >= state.bounds.most || soonMs >= raise.atMs) return state
  const dueMs = state.phase.is === 'resting' ? Math.min(state.dueMs, soonMs) : state.dueMs
  return { ...state, raise: { ...raise, atMs: soonMs }, dueMs }
}

/** What packets may have now. */
export function sizeInUse({ size, bounds }: SearchState): number {
  return Math.min(size ?? bounds.most, bounds.most)
}

interface Step {
  readonly state: SearchState
  /** Sizes to send a padded question of, each once. */
  readonly send: readonly number[]
}

/** What is due. */
export function step(state: SearchState, moment: SearchMoment): Step {
  switch (state.phase.is) {
    case 'resting':
      return begin(state, moment)
    case 'confirming':
      if (state.phase.answered) return rest(state, moment)
      return round(trial(state, 'doubt', doubtSizes(state), sizeInUse(state)), moment)
    case 'trying':
      return state.phase.roundsLeft > 0 ? round(state, moment) : conclude(state, state.phase, moment)
  }
}

/** An answer to a question of this phase. */
export function answered(state: SearchState, size: number, moment: SearchMoment): SearchState {
  const { phase } = state
  if (phase.is === 'resting') return state
  if (state.fruitless !== undefined) return answered(withoutFruitless(state), size, moment)
  if (phase.is === 'confirming') {
    return size === sizeInUse(state) ? { ...state, size, phase: { is: 'confirming', answered: true } } : state
  }
  const count = phase.answers.get(size)
  if (count === undefined) return state
  // It was a packet that got lost, and not its size.
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
    // The next one too: the last search may have ended a little too low.
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

/** The size in use, and what may pass instead. */
function doubtSizes(state: SearchState): number[] {
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
    phase: { is: 'trying', why, answers, failed, roundsLeft: why === 'doubt' ? DOUBT_ROUNDS : ROUNDS },
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

/** At most so many sizes between two, evenly, without these. */
function spread(above: number, below: number, most: number): number[] {
  const first = Math.floor(above / SIZE_STEP) + 1
  const count = Math.ceil(below / SIZE_STEP) - first
  if (count <= most) return Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * SIZE_STEP)
  return Array.from({ length: most }, (_, i) => (first + Math.floor(((i + 1) * count) / (most + 1))) * SIZE_STEP)
}

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
