/** The console: looks at one member, several, or a broker at an interval, and shows what it sees on a page, to browsers that may read it. */
import { type Clock, SystemClock, untilAborted } from '../reconcile/reconcile.ts'
import { AddressInUseError, type ConsoleServer, type ConsoleServerInit, serveConsolePage } from './server/server.ts'
import type { ConsoleState } from './state/state.ts'
import { type ConsoleSource, type ContextSource, lookAtOne, lookAtSeveral } from './looks/looks.ts'

export {
  ANSWER_HEADER,
  type Forward,
  type ForwardedAnswer,
  type PageFiles,
  Readers,
  TOKEN_HEADER,
  readPageFiles,
} from './server/server.ts'
export type { ConsoleSource, ContextSource, PathEnds } from './looks/looks.ts'
export {
  type Answer,
  type BrokerFacts,
  type ConsoleFacts,
  type DeniedFact,
  type FlowsFacts,
  MOST_CONTEXTS,
  type PublishedFacts,
  type SharesFacts,
} from './state/state.ts'

/** Either one source, or those of several contexts. */
export type ConsoleSources =
  | { readonly source: ConsoleSource; readonly contexts?: undefined }
  | { readonly source?: undefined; readonly contexts: readonly ContextSource[] }

interface OpenedInit {
  /** If the port is in use, any other port is as good. */
  readonly anyPort?: boolean
  readonly clock?: Clock
  /** Called once the page can be opened. */
  readonly onOpen: (url: string) => void
}

export type ConsoleInit = ConsoleSources & Omit<ConsoleServerInit, 'clock' | 'explain' | 'forward'> & OpenedInit

/** A console that passes on the answers of another one. */
export type ForwardedInit = Pick<ConsoleServerInit, 'listen' | 'token' | 'tls'> &
  Required<Pick<ConsoleServerInit, 'forward'>> &
  OpenedInit

/**
 * Serves until the signal aborts. With one source, the first look comes before anything is served, and what it throws is
 * thrown; with several contexts the page is served at once, and says which of them cannot be reached. Throws UserError
 * if the address cannot be used.
 */
export async function runConsole(init: ConsoleInit, signal: AbortSignal): Promise<void> {
  const { clock = new SystemClock(), onOpen } = init
  const looks =
    init.source === undefined ? lookAtSeveral(init.contexts, clock) : await lookAtOne(init.source, clock, signal)
  const server = await open({ ...init, clock, explain: looks.explain })
  try {
    server.publish(looks.state())
    onOpen(server.url)
    const publish = (state: ConsoleState): void => server.publish(state)
    await looks.run({ publish, isSeen: () => server.pages > 0, isRead: () => server.isRead }, signal)
  } finally {
    await server.close()
  }
}

/** Serves what another console answers until the signal aborts. Throws UserError if the address cannot be used. */
export async function runForwardedConsole(init: ForwardedInit, signal: AbortSignal): Promise<void> {
  const server = await open({ ...init, page: new Map(), clock: init.clock ?? new SystemClock() })
  try {
    init.onOpen(server.url)
    await untilAborted(signal)
  } finally {
    await server.close()
  }
}

type OpenInit = ConsoleServerInit & Pick<OpenedInit, 'anyPort'>

async function open(init: OpenInit): Promise<ConsoleServer> {
  try {
    return await serveConsolePage(init)
  } catch (error) {
    if (init.anyPort !== true || !(error instanceof AddressInUseError)) throw error
    return serveConsolePage({ ...init, listen: { ...init.listen, port: 0 } })
  }
}
