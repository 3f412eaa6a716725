/** The console for the command line, which starts components by this folder alone. */
export {
  ANSWER_HEADER,
  type Answer,
  type BrokerFacts,
  type ConsoleFacts,
  type ConsoleSource,
  type ConsoleSources,
  type ContextSource,
  type FlowsFacts,
  type Forward,
  type ForwardedAnswer,
  MOST_CONTEXTS,
  type PathEnds,
  type PublishedFacts,
  Readers,
  type SharesFacts,
  TOKEN_HEADER,
  readPageFiles,
  runConsole,
  runForwardedConsole,
} from '../../console/console.ts'
export { type ConsoleDeps, type ConsoleProcessInit, withConsoleProcess } from './console-process.ts'
