/** The console: looks at a member at an interval and shows what it sees on a page, to browsers that may read it. */
import { type Clock, SystemClock, unlessAborted } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import { type PathQuestion, type PathSide, explainPath } from '../explain/path/path.ts'
import { AddressInUseError, type ConsoleServer, type ConsoleServerInit, serveConsolePage } from './server/server.ts'
import { type ConsoleFacts, type PlannedState, planLook, planPath, withFailure } from './state/state.ts'

export { type PageFiles, readPageFiles } from './server/server.ts'
export type { Answer, ConsoleFacts, DeniedFact, FlowsFacts, SharesFacts } from './state/state.ts'

/** Where the facts come from. */
export interface ConsoleSource {
  /**
   * `isSeen`: a page is open, so that what costs the cluster something is worth it. Rejects if there is no answer: the
   * page then shows the last facts, and since when they are old.
   */
  readonly facts: (signal: AbortSignal, isSeen?: boolean) => Promise<ConsoleFacts>
  /** The time between two looks. Undefined: the facts never change, as those of a file. */
  readonly everyMs: number | undefined
  /** Gathers what `sealane explain` explains a call by. Undefined: the page explains none. */
  readonly pathSide?: (question: PathQuestion, signal: AbortSignal) => Promise<PathSide>
}

export interface ConsoleInit extends Omit<ConsoleServerInit, 'clock' | 'explain'> {
  readonly source: ConsoleSource
  /** If the port is in use, any other port is as good. */
  readonly anyPort?: boolean
  readonly clock?: Clock
  /** Called once the page can be opened. */
  readonly onOpen: (url: string) => void
}

const LONG_MS = 3_600_000

/**
 * Serves until the signal aborts. The first look comes before anything is served. Throws what that look throws, and
 * UserError if the address cannot be used.
 */
export async function runConsole(init: ConsoleInit, signal: AbortSignal): Promise<void> {
  const { source, clock = new SystemClock(), onOpen } = init
  const first = await source.facts(signal)
  let look = planLook(first)
  const server = await open({ ...init, clock, explain: explainerOf(source, first.flags) })
  try {
    server.publish(look.state)
    onOpen(server.url)
    const { everyMs } = source
    // A file never changes: then the server alone goes on.
    while (await unlessAborted(clock.sleep(everyMs ?? LONG_MS, signal), signal)) {
      if (everyMs === undefined) continue
      look = await looked({ source, isSeen: server.pages > 0, clock }, look, signal)
      server.publish(look.state)
    }
  } finally {
    await server.close()
  }
}

/** By the function that `sealane explain` calls. */
function explainerOf({ pathSide }: ConsoleSource, flags: string): ConsoleServerInit['explain'] {
  if (pathSide === undefined) return undefined
  return async (question, signal) => planPath(explainPath(question, { here: await pathSide(question, signal) }), flags)
}

interface Looking {
  readonly source: ConsoleSource
  readonly isSeen: boolean
  readonly clock: Clock
}

async function looked(
  { source, isSeen, clock }: Looking,
  before: PlannedState,
  signal: AbortSignal,
): Promise<PlannedState> {
  try {
    return planLook(await source.facts(signal, isSeen), before)
  } catch (error) {
    if (signal.aborted) return before
    const since = before.state.about.failing?.since ?? new Date(clock.now()).toISOString()
    return { ...before, state: withFailure(before.state, since, messageOf(error)) }
  }
}

type OpenInit = ConsoleInit & Pick<ConsoleServerInit, 'clock' | 'explain'>

async function open(init: OpenInit): Promise<ConsoleServer> {
  try {
    return await serveConsolePage(init)
  } catch (error) {
    if (init.anyPort !== true || !(error instanceof AddressInUseError)) throw error
    return serveConsolePage({ ...init, listen: { ...init.listen, port: 0 } })
  }
}
