/** The public interface of this room, needed by every process: components, errors, flag values, files, programs. */
export {
  TEMPORARY_NAME,
  createFile,
  putInPlace,
  removeTemporaries,
  replaceFile,
  syncPath,
  temporaryPath,
  writeTemporary,
  writeTemporaryUnsynced,
} from './atomic-file.ts'
export { type CallerCheck, type ComponentDeps, type LoopRun, StatusBoard, reportedLoop } from './component.ts'
export { ExitWith, type Failure, UserError, errorOf, firstReasonOf, messageOf, reasonOf } from './errors.ts'
export {
  type DurationRange,
  type HostPort,
  formatDuration,
  formatHostPort,
  parseDuration,
  parseHostPort,
} from './flag-values.ts'
export { EVERY_ADDRESS, listenAt } from './listen.ts'
export { type MachineNetwork, interfaceNetworks, nearAddresses, readMachineNetwork } from './machine-network.ts'
export { calmHeap, favourProcess, favourStarted, openFiles, ownHeap } from './process-resources.ts'
export { checkReadable, kindName } from './regular-file.ts'
export { exitOnceWritten, runProcess } from './run-process.ts'
export { ProgramError, runProgram } from './run-program.ts'
export { sourceKey } from './source-key.ts'
export { probeTcp } from './tcp-probe.ts'
export { sealaneVersion } from './version.ts'
