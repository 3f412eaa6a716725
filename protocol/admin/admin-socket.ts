/** The Unix socket of the admin service, in the state directory of the broker. */
import { closeSync, openSync } from 'node:fs'
import { chmod, mkdir, rename, rm } from 'node:fs/promises'
import { type Server, connect } from 'node:net'
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
 * Listens on the socket, which no other user can open at any moment: it is made in a folder of mode 0700 and then moved to
 * its place. What was there before, such as the socket of a broker that was killed or a link, is replaced and not
 * followed. The caller holds the lock of the directory. Throws the error of the system. The returned function is to be
 * called after the server is closed.
 */
export async function listenOnSocket(server: Server, socket: string): Promise<() => void> {
  const folder = `${socket}.new`
  const made = join(folder, 's')
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { mode: 0o700 })
  try {
    // The system removes the socket by this path when the server is closed, so that it must mean the same until then.
    const short = shortSocketPath(made)
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject)
        server.listen(short.path, () => {
          server.off('error', reject)
          resolve()
        })
      })
      await chmod(made, 0o600)
      await rename(made, socket)
    } catch (error) {
      server.close()
      short.close()
      throw error
    }
    return () => short.close()
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Whether a process listens on the socket, even if it accepts no connection now. False if there is none, or if it ended
 * without removing it. Throws the error of connect(2) otherwise, such as EACCES for another user.
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
        // Its queue of connections is full.
        else if (error.code === 'EAGAIN') resolve(true)
        else reject(error)
      })
    })
  } finally {
    short.close()
  }
}
