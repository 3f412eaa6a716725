/** Asks a machine, not a process, whether it is there. */
import { connect } from 'node:net'

/** The kubelet's; where nobody listens, the kernel says so, and that is an answer as well. */
export const KNOCK_PORT = 10_250
const PATIENCE_MS = 1000

/**
 * Whether the kernel at this address answers a TCP connection, by taking or by refusing it (RFC 9293 3.10.7). False
 * after a second, and where there is no way to it. Never rejects.
 */
export function knock(address: string, port: number = KNOCK_PORT): Promise<boolean> {
  return new Promise((resolve) => {
    const caller = connect({ host: address, port, timeout: PATIENCE_MS })
    caller.unref()
    const end = (answers: boolean): void => {
      caller.destroy()
      resolve(answers)
    }
    caller.on('connect', () => end(true))
    // Where this process was held up itself, the answer is there and has not been looked at yet: timers come first.
    caller.on('timeout', () => setImmediate(end, false))
    caller.on('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED'))
  })
}
