/** The console for the command line, which starts components by this folder alone. */
export {
  type Answer,
  type ConsoleFacts,
  type FlowsFacts,
  type SharesFacts,
  readPageFiles,
  runConsole,
} from '../../console/console.ts'
