/**
 * What every command works with: output, terminal, timeouts and targets, and functions that open a site or a cluster.
 */
export { type BrokerOptions, addBrokerOptions, addWholeBrokerOptions } from './broker-options.ts'
export { checkServed } from './check-served.ts'
export { type Applied, type ClusterAdmin, listIfAllowed, unlessForbidden } from './cluster-admin.ts'
export {
  type CommandContext,
  approveOption,
  choiceOption,
  clustersetOption,
  collect,
  durationOption,
  logLevelOption,
  outputOption,
  parseWith,
  parsed,
  quoted,
  siteOption,
  stateOption,
  statusListenOption,
  subcommand,
  throwingUsageErrors,
} from './command-context.ts'
export { confirm, terminalOf } from './confirm.ts'
export { type OpenSite, withSite } from './open-site.ts'
export { type Target, withTarget } from './open-target.ts'
export {
  CLEAR_SCREEN,
  type Column,
  type Output,
  type OutputFormat,
  PlainLogger,
  printItems,
  printOne,
  processOutput,
  renderTable,
} from './output.ts'
export {
  type KubeTarget,
  LOCAL_BROKER,
  LOCAL_SITE,
  type ShowOptions,
  type TargetOptions,
  addKubeOptions,
  addShowOptions,
  addTargetOptions,
  envOf,
  kubeTarget,
  otherContexts,
  seenOtherwise,
  shellWord,
  targetFlags,
  targetToAsk,
  targetToChange,
  targetToJoin,
  targetToSee,
} from './target.ts'
export { type Terminal, askAtTerminal, lineFromTerminal, processTerminal } from './terminal.ts'
export { OutOfTime, lookTimeoutOption, withinTime } from './timeout.ts'
export { withAdmin } from './with-admin.ts'
