/** What the drivers of the kernel share: errors, drift, running a program, finding the processes that hold a port. */
export { Drift, type DriftReason } from './drift.ts'
export { KernelError, type KernelErrorCode, isExists, isNotFound, isNotSupported } from './errors.ts'
export { PortTakenError, describePortHolders, namingPortHolders } from './port-holders.ts'
export { type RunCommand, runCommand, toolEnvironment } from './run-command.ts'
