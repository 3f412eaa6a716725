/** Where the facts of the console come from, and what a look at them gives. */
import type { PathFrom, PathSide, PathTo } from '../../explain/path/path.ts'
import type { AskedPath, ConsoleState, LookFacts, PathAnswer } from '../state/state.ts'

export interface ConsoleSource {
  /**
   * `isSeen`: a page is open, so that what costs the cluster something is worth it. Rejects if there is no answer: the
   * page then shows the last facts, and since when they are old.
   */
  readonly facts: (signal: AbortSignal, isSeen?: boolean) => Promise<LookFacts>
  /** The time between two looks. Undefined: the facts never change, as those of a file. */
  readonly everyMs: number | undefined
  /** The time between two looks that no one reads. Undefined: the same. */
  readonly idleMs?: number
  /** Gathers what `sealane explain` explains a call by. Undefined: the page explains none. */
  readonly pathSide?: (ends: PathEnds, signal: AbortSignal) => Promise<PathSide>
}

export interface PathEnds {
  /** Undefined at the member of the called end, which knows no caller. */
  readonly from: PathFrom | undefined
  readonly to: PathTo
}

/** One of several contexts of a kubeconfig. */
export interface ContextSource {
  readonly context: string
  /** The flags that name it in a command. */
  readonly flags: string
  /** The flag that names it as the called end of a command about another context. */
  readonly toFlag: string
  /** The time between two attempts to open it. */
  readonly everyMs: number
  /** Opens it for as long as `work` lasts. Rejects if it cannot be opened, and with what `work` rejects. */
  readonly withSource: (work: (source: ConsoleSource) => Promise<void>, signal: AbortSignal) => Promise<void>
}

/** What looks need of the server. */
export interface LooksSink {
  readonly publish: (state: ConsoleState) => void
  /** Whether a page is open. */
  readonly isSeen: () => boolean
  /** Whether a page is open, or was answered a moment ago. */
  readonly isRead: () => boolean
}

export interface Looks {
  /** The state of now. */
  readonly state: () => ConsoleState
  /** Looks until the signal aborts. */
  readonly run: (sink: LooksSink, signal: AbortSignal) => Promise<void>
  readonly explain: ((question: AskedPath, signal: AbortSignal) => Promise<PathAnswer>) | undefined
}
