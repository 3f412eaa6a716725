/**
 * How many connections a server holds at once. A new one always gets a slot: where all are taken, the source that holds
 * most of them loses its oldest. So nobody keeps others out by holding what there is, be it from many addresses: an
 * honest caller is answered within milliseconds and gone before its turn comes.
 */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/** From now on the server holds at most `most` connections. */
export function limitConnections(server: Pick<Server, 'on'>, most: number): void {
  /** By address, each with its connections in the order in which they came. */
  const bySource = new Map<string, Set<Socket>>()
  let held = 0
  const drop = (source: string, socket: Socket): void => {
    const sockets = bySource.get(source)
    if (sockets?.delete(socket) !== true) return
    held -= 1
    if (sockets.size === 0) bySource.delete(source)
  }
  const evictOldestOfLargest = (): void => {
    let largest: [source: string, sockets: Set<Socket>] | undefined
    for (const one of bySource) if (one[1].size > (largest?.[1].size ?? 0)) largest = one
    const [oldest] = largest?.[1] ?? []
    if (largest === undefined || oldest === undefined) return
    drop(largest[0], oldest)
    oldest.destroy()
  }
  server.on('connection', (socket: Socket) => {
    const source = socket.remoteAddress ?? ''
    if (held >= most) evictOldestOfLargest()
    const sockets = bySource.get(source) ?? new Set()
    bySource.set(source, sockets.add(socket))
    held += 1
    socket.once('close', () => drop(source, socket))
  })
}
