/** TCP probe: checks whether a machine's kernel answers, independently of its processes. */
import { connect } from 'node:net'

/** The kubelet's port. If no process listens there, the kernel refuses the connection, which also is an answer. */
export const TCP_PROBE_PORT = 10_250
const PATIENCE_MS = 1000

/**
 * Whether the kernel at this address answers a TCP connection, by accepting or refusing it (RFC 9293 section 3.10.7).
 * False after a second, and if there is no route. Never rejects.
 */
export function probeTcp(address: string, port: number = TCP_PROBE_PORT): Promise<boolean> {
  return new Promise((resolve) => {
    const caller = connect({ host: address, port, timeout: PATIENCE_MS })
    caller.unref()
    const end = (answers: boolean): void => {
      caller.destroy()
      resolve(answers)
    }
    caller.on('connect', () => end(true))
    // If this process was blocked, the answer may have arrived but not been read yet: Node runs timers first.
    caller.on('timeout', () => setImmediate(end, false))
    caller.on('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED'))
  })
}
