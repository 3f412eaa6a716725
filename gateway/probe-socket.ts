/** The UDP socket that probes travel through, as an interface, and the real one. */
import { createSocket } from 'node:dgram'

export interface ProbeSocket {
  /** Never throws: what cannot be sent is a probe that gets no answer. */
  send(bytes: Buffer, address: string, port: number): void
  close(): void
}

export interface ProbeSocketEvents {
  onMessage(bytes: Buffer, from: { readonly address: string; readonly port: number }): void
  /** The socket is of no more use. Called once at most, also instead of the first message. */
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
  })
  socket.on('message', (bytes, from) => {
    if (open) events.onMessage(bytes, from)
  })
  socket.on('error', (error) => {
    if (!open) return
    close()
    events.onError(error)
  })
  socket.bind({ address, port })
  return {
    // ENOKEY, EDESTADDRREQ and the like: WireGuard has no session with that peer yet.
    send: (bytes, to, toPort) => {
      if (open && bound) socket.send(bytes, toPort, to, () => undefined)
    },
    close,
  }
}
