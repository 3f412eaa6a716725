/** Offers forwarded connections as a Unix socket, for clients that can only dial an address. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type Socket, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join as joinPath } from 'node:path'
import type { Duplex } from 'node:stream'
import { errorOf } from '../../../runtime/runtime.ts'

/** A client needs one, and a second one when it connects again. */
const MAX_CONNECTIONS = 16

/**
 * Calls `work` with the path of a Unix socket that only this user can reach. Each connection to it is joined with one
 * that `open` opens; `open` gets a signal that aborts when `work` has ended.
 *
 * `failed` aborts with the first error of `open` or of an opened connection, which a client would only see as a closed
 * connection. Connections may still work after that, so `work` decides what the error means.
 *
 * Returns what `work` returns and throws what it throws, after all connections are destroyed and the socket and its
 * directory are removed. Throws Error if the socket cannot be made in the temporary directory.
 */
export async function withForwardedSocket<T>(
  open: (signal: AbortSignal) => Promise<Duplex>,
  work: (path: string, failed: AbortSignal) => Promise<T>,
): Promise<T> {
  // Its mode is 0700.
  const folder = await mkdtemp(joinPath(tmpdir(), 'sealane-'))
  const ended = new AbortController()
  const failed = new AbortController()
  const sockets = new Set<Socket>()
  const joinWithPod = async (local: Socket): Promise<void> => {
    const remote = await open(ended.signal)
    remote.on('error', (error) => {
      // A client that has ended its side does not need the rest.
      if (!local.readableEnded && !ended.signal.aborted) failed.abort(error)
    })
    if (local.destroyed) remote.destroy()
    else join(local, remote)
  }
  const server = createServer({ allowHalfOpen: true }, (local) => {
    sockets.add(local)
    // Without a listener an error during open() would end the process.
    local.on('error', () => undefined).on('close', () => sockets.delete(local))
    joinWithPod(local).catch((error: unknown) => {
      if (!ended.signal.aborted) failed.abort(errorOf(error))
      local.destroy()
    })
  })
  server.on('error', (error) => failed.abort(error))
  server.maxConnections = MAX_CONNECTIONS
  try {
    const path = joinPath(folder, 'forward.sock')
    server.listen(path)
    await once(server, 'listening')
    return await work(path, failed.signal)
  } finally {
    ended.abort(new Error('the forwarded socket is closed'))
    const closed = server.listening ? once(server, 'close') : Promise.resolve()
    server.close()
    for (const socket of sockets) socket.destroy()
    await closed
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Passes data both ways. Not by pipeline(): when the pod ends the connection while the client has not, it would destroy
 * the client's side before the client has read the rest.
 */
function join(local: Socket, remote: Duplex): void {
  local.pipe(remote).pipe(local)
  local.on('close', () => remote.destroy())
  remote.on('close', () => {
    if (remote.errored !== null) local.destroy()
    // Without a reader the end of the client's side would not be noticed.
    else local.resume().end()
  })
}
