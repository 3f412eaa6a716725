/** The console: looks at a member at an interval and shows what it sees on a page, to browsers that may read it. */
import { type Clock, SystemClock, unlessAborted } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import { AddressInUseError, type ConsoleServer, type ConsoleServerInit, serveConsolePage } from './server/server.ts'
import { type ConsoleFacts, type PlannedState, planLook, withFailure } from './state/state.ts'

export { type PageFiles, readPageFiles } from './server/server.ts'
export type { Answer, ConsoleFacts, DeniedFact, SharesFacts } from './state/state.ts'

/** Where the facts come from. */
export interface ConsoleSource {
  /** Rejects if there is no answer: the page then shows the last facts, and since when they are old. */
  readonly facts: (signal: AbortSignal) => Promise<ConsoleFacts>
  /** The time between two looks. Undefined: the facts never change, as those of a file. */
  readonly everyMs: number | undefined
}

export interface ConsoleInit extends Omit<ConsoleServerInit, 'clock'> {
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
  let look = planLook(await source.facts(signal))
  const server = await open({ ...init, clock })
  try {
    server.publish(look.state)
    onOpen(server.url)
    const { everyMs } = source
    // A file never changes: then the server alone goes on.
    while (await unlessAborted(clock.sleep(everyMs ?? LONG_MS, signal), signal)) {
      if (everyMs === undefined) continue
      look = await looked(source, look, clock, signal)
      server.publish(look.state)
    }
  } finally {
    await server.close()
  }
}

async function looked(
  source: ConsoleSource,
  before: PlannedState,
  clock: Clock,
  signal: AbortSignal,
): Promise<PlannedState> {
  try {
    return planLook(await source.facts(signal), before)
  } catch (error) {
    if (signal.aborted) return before
    const since = before.state.about.failing?.since ?? new Date(clock.now()).toISOString()
    return { ...before, state: withFailure(before.state, since, messageOf(error)) }
  }
}

async function open(init: ConsoleInit & { readonly clock: Clock }): Promise<ConsoleServer> {
  try {
    return await serveConsolePage(init)
  } catch (error) {
    if (init.anyPort !== true || !(error instanceof AddressInUseError)) throw error
    return serveConsolePage({ ...init, listen: { ...init.listen, port: 0 } })
  }
}
