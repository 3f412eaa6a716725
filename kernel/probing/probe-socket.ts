/** The interface of the UDP socket for probes and of TCP probes to a far kernel, and its implementation. */
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import { PortTakenError, describePortHolders } from '../kernel.ts'

export interface ProbeSocket {
  /** Never throws: a packet that cannot be sent is a probe without an answer. */
  send(bytes: Buffer, address: string, port: number): void
  /**
   * Sends a TCP probe, which the far kernel answers instead of the far process: it refuses a connection to a port
   * without a listener at once (RFC 9293 3.10.7.1), and accepts it if there is a listener. Calls `onAnswer` in both
   * cases. Never throws. Returns the function that stops the wait.
   */
  probeTcp(address: string, port: number, onAnswer: () => void): () => void
  close(): void
}

export interface ProbeSocketEvents {
  onMessage(bytes: Buffer, from: { readonly address: string; readonly port: number }): void
  /** The socket is bound. Called at most once, before the first message. */
  onReady(): void
  /** The socket is no longer usable. Called at most once, possibly instead of onReady(). */
  onError(error: Error): void
}

export type OpenProbeSocket = (address: string, port: number, events: ProbeSocketEvents) => ProbeSocket

/** Opens a dgram socket bound to one address of this node. Ignores errors of single packets. */
export const openUdpProbeSocket: OpenProbeSocket = (address, port, events) => {
  const socket = createSocket('udp4')
  let open = true
  const close = (): void => {
    if (!open) return
    open = false
    socket.close()
  }
  let bound = false
  socket.on('listening', () => {
    bound = true
    if (open) events.onReady()
  })
  socket.on('message', (bytes, from) => {
    if (open) events.onMessage(bytes, from)
  })
  socket.on('error', (error: NodeJS.ErrnoException) => {
    if (!open) return
    close()
    if (error.code !== 'EADDRINUSE') events.onError(error)
    else void describePortHolders(port).then((text) => events.onError(new PortTakenError(text, { cause: error })))
  })
  socket.bind({ address, port })
  return {
    // The callback ignores ENOKEY, EDESTADDRREQ and the like: WireGuard has no session with that peer yet.
    send: (bytes, to, toPort) => {
      if (open && bound) socket.send(bytes, toPort, to, () => undefined)
    },
    probeTcp: (to, toPort, onAnswer) => {
      const caller = connect({ host: to, port: toPort, localAddress: address })
      caller.unref()
      caller.on('connect', () => {
        caller.destroy()
        if (open) onAnswer()
      })
      caller.on('error', (error: NodeJS.ErrnoException) => {
        if (open && error.code === 'ECONNREFUSED') onAnswer()
      })
      return () => caller.destroy()
    },
    close,
  }
}
