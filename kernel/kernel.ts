/** What drivers of the kernel share: errors, drift, programs that are run, holders of ports. */
export { Drift, type DriftReason, tableDrift } from './drift.ts'
export { KernelError, type KernelErrorCode, isExists, isNotFound } from './errors.ts'
export { PortTakenError, describePortHolders, namingPortHolders } from './port-holders.ts'
export { type RunCommand, runCommand, toolEnvironment } from './run-command.ts'
