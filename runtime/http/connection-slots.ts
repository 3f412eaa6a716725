/**
 * How many connections a server holds at once. A new one always gets a slot: where all are taken, one without a whole
 * request goes first, the oldest of the source that holds most of those. So nobody keeps others out by holding what there
 * is, be it from many addresses: an honest caller sends its request at once, and is answered within milliseconds.
 * Sources that are near have slots of their own: whatever others hold or open, these are theirs. Who is turned away is
 * cut off before it has a slot.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

interface Held {
  readonly socket: Socket
  readonly source: string
  /** Requests that are being answered. */
  answering: number
}

export interface ConnectionSlots {
  /** For all sources that are not near. */
  readonly most: number
  readonly mostNear: number
  /** Addresses, such as that of the node whose kubelet probes. */
  readonly near: readonly string[]
  /** Of a source that is not near: whether it gets no slot at all. Called once for each connection. */
  readonly turnsAway: (source: string) => boolean
}

/** From now on the server holds at most so many connections. */
export function limitConnections(
  server: Pick<Server, 'on'>,
  { most, mostNear, near, turnsAway }: ConnectionSlots,
): void {
  /** In the order in which they came. */
  const [others, own] = [new Map<Socket, Held>(), new Map<Socket, Held>()]
  const isNear = new Set(near)
  server.on('connection', (socket: Socket) => {
    const source = (socket.remoteAddress ?? '').replace(/^::ffff:/, '')
    if (!isNear.has(source) && turnsAway(source)) {
      // Nothing of it stays here, as a connection that is closed would for a minute.
      socket.resetAndDestroy()
      return
    }
    const [held, limit] = isNear.has(source) ? [own, mostNear] : [others, most]
    if (held.size >= limit) evict(held)
    held.set(socket, { socket, source, answering: 0 })
    socket.once('close', () => held.delete(socket))
  })
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const one = own.get(socket) ?? others.get(socket)
    if (one === undefined) return
    one.answering += 1
    response.once('close', () => (one.answering -= 1))
  })
}

function evict(held: Map<Socket, Held>): void {
  const all = [...held.values()]
  const idle = all.filter(({ answering }) => answering === 0)
  const from = idle.length > 0 ? idle : all
  const counts = new Map<string, number>()
  for (const { source } of from) counts.set(source, (counts.get(source) ?? 0) + 1)
  const largest = Math.max(...counts.values())
  const victim = from.find(({ source }) => counts.get(source) === largest)
  if (victim === undefined) return
  held.delete(victim.socket)
  victim.socket.destroy()
}
