/** The UDP socket that probes travel through, and the knock at a far kernel, as an interface, and the real ones. */
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import { PortTakenError, describePortHolders } from '../kernel.ts'

export interface ProbeSocket {
  /** Never throws: what cannot be sent is a probe that gets no answer. */
  send(bytes: Buffer, address: string, port: number): void
  /**
   * Asks the far kernel, not the far process: a TCP connection to a port where nobody listens is refused by the
   * kernel at once (RFC 9293 3.10.7.1), and taken by it where somebody does. Calls back when either comes; never
   * throws. Gives the function that stops waiting for it.
   */
  knock(address: string, port: number, onAnswer: () => void): () => void
  close(): void
}

export interface ProbeSocketEvents {
  onMessage(bytes: Buffer, from: { readonly address: string; readonly port: number }): void
  /** It listens. Called once at most, before the first message. */
  onReady(): void
  /** The socket is of no more use. Called once at most, also instead of onReady(). */
  onError(error: Error): void
}

export type OpenProbeSocket = (address: string, port: number, events: ProbeSocketEvents) => ProbeSocket

/** A dgram socket bound to one address of this node. Errors of single packets are swallowed. */
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
    // ENOKEY, EDESTADDRREQ and the like: WireGuard has no session with that peer yet.
    send: (bytes, to, toPort) => {
      if (open && bound) socket.send(bytes, toPort, to, () => undefined)
    },
    knock: (to, toPort, onAnswer) => {
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
