/** The Unix socket of the admin service, in the state directory of the broker. */
import { closeSync, openSync } from 'node:fs'
import { connect } from 'node:net'
import { basename, dirname, join } from 'node:path'

const SOCKET_FILE = 'admin.sock'
/** The size of sun_path, unix(7), without the final NUL. */
const MAX_SUN_PATH = 107

/** Takes the broker's state directory. */
export function adminSocket(stateDir: string): string {
  return join(stateDir, SOCKET_FILE)
}

/**
 * A path of the same socket that fits into a socket address: a longer one goes through the directory, as this process has
 * it open. Valid until close(). Throws if the directory cannot be opened.
 */
export function shortSocketPath(socket: string): { readonly path: string; close(): void } {
  if (Buffer.byteLength(socket) <= MAX_SUN_PATH) return { path: socket, close: () => undefined }
  const directory = openSync(dirname(socket), 'r')
  return { path: `/proc/self/fd/${directory}/${basename(socket)}`, close: () => closeSync(directory) }
}

/**
 * Whether a process listens on the socket. False if there is none, or if it ended without removing it. Throws the error of
 * connect(2) otherwise, such as EACCES for another user.
 */
export async function isAdminServed(socket: string): Promise<boolean> {
  let short: ReturnType<typeof shortSocketPath>
  try {
    short = shortSocketPath(socket)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw error
  }
  try {
    return await new Promise<boolean>((resolve, reject) => {
      const connection = connect(short.path)
      connection.on('connect', () => {
        connection.destroy()
        resolve(true)
      })
      connection.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') resolve(false)
        else reject(error)
      })
    })
  } finally {
    short.close()
  }
}
