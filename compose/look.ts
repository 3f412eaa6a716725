/** For commands that look at this machine and change nothing. */
import { addressesHere } from '../kernel/look/devices.ts'
import { runCommand } from '../kernel/run-command.ts'

export { type HostLook, type HostTrouble, lookAtHost } from '../kernel/look/look-at-host.ts'

/** All addresses of this machine. Rejects only after the signal. */
export function ownAddresses(timeoutMs: number, signal: AbortSignal): Promise<readonly string[]> {
  return addressesHere({ run: runCommand, timeoutMs, signal })
}
