/** A UDP socket that exchanges messages with one router and with no other machine. */
import { createSocket } from 'node:dgram'
import { ROUTER_PORT } from './mapping-frame.ts'

export interface RouterSocket {
  /** Never throws: a message that cannot be sent gets no answer. */
  send(bytes: Buffer): void
  close(): void
}

export interface RouterSocketEvents {
  /** `client`: the address of this node from which messages to the router go. Called at most once. */
  onReady(client: string): void
  onMessage(bytes: Buffer): void
  /** The socket is closed. Called at most once. Nothing listens at the router, or there is no way to it. */
  onError(error: Error): void
}

export type OpenRouterSocket = (router: string, events: RouterSocketEvents) => RouterSocket

/** The kernel drops what comes from elsewhere, because the socket is connected. */
export const openRouterSocket: OpenRouterSocket = (router, events) => {
  const socket = createSocket('udp4')
  let isOpen = true
  const close = (): void => {
    if (!isOpen) return
    isOpen = false
    socket.close()
  }
  const failed = (error: Error): void => {
    if (!isOpen) return
    close()
    events.onError(error)
  }
  socket.on('message', (bytes) => {
    if (isOpen) events.onMessage(bytes)
  })
  socket.on('error', failed)
  socket.connect(ROUTER_PORT, router, () => {
    if (isOpen) events.onReady(socket.address().address)
  })
  return {
    send: (bytes) => {
      if (isOpen)
        socket.send(bytes, (error) => {
          if (error !== null) failed(error)
        })
    },
    close,
  }
}
