/** The console for the command line, which starts components by this folder alone. */
export {
  type Answer,
  type BrokerFacts,
  type ConsoleFacts,
  type ConsoleSource,
  type ConsoleSources,
  type ContextSource,
  type FlowsFacts,
  MOST_CONTEXTS,
  type PathEnds,
  type PublishedFacts,
  type SharesFacts,
  readPageFiles,
  runConsole,
} from '../../console/console.ts'
