/**
 * Sockets at ports of their own, from which a NAT that maps each destination gives as many places to packets for one
 * place of the far end. That at which the far end gets through stays open: nothing else of this node gets its port.
 */
import type { OpenProbeSocket, ProbeSocket } from '../../../kernel/probing/probing.ts'
import { type AddressPort, formatAddress, parseAddress, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { Batches, HOLES, OWN_PORTS, type Random, portsAtRandom } from './plan-port-tries.ts'

export interface NatHolesInit {
  readonly openSocket: OpenProbeSocket
  readonly random: Random
  /** The far end's place. */
  readonly to: AddressPort
  /** What opens the NAT, once for each socket. */
  readonly bytes: () => Buffer
  /** Octets have come from the far end's place to this port. */
  readonly onMessage: (bytes: Buffer, port: number) => void
  readonly nowMs: number
}

export class NatHoles {
  readonly to: AddressPort
  readonly #init: NatHolesInit
  readonly #sockets = new Map<number, ProbeSocket>()
  readonly #ports: Generator<number, undefined>
  readonly #batches: Batches

  constructor(init: NatHolesInit) {
    this.to = init.to
    this.#init = init
    this.#ports = portsAtRandom(OWN_PORTS, init.random)
    this.#batches = new Batches(HOLES, init.nowMs)
  }

  get dueMs(): number {
    return this.#batches.dueMs
  }

  /** Opens the next ones. A port that something else has is left out. */
  open(nowMs: number): void {
    for (let left = this.#batches.next(nowMs); left > 0; left -= 1) {
      const port = this.#ports.next().value
      if (port !== undefined) this.#open(port)
    }
  }

  send(port: number, bytes: Buffer): void {
    this.#sockets.get(port)?.send(bytes, formatAddress(this.to.address), this.to.port)
  }

  /** Closes all but this one. */
  keep(port: number): void {
    for (const [one, socket] of this.#sockets) {
      if (one === port) continue
      socket.close()
      this.#sockets.delete(one)
    }
  }

  close(): void {
    for (const socket of this.#sockets.values()) socket.close()
    this.#sockets.clear()
  }

  #open(port: number): void {
    const { openSocket, bytes, onMessage } = this.#init
    const socket = openSocket('0.0.0.0', port, {
      onReady: () => this.send(port, bytes()),
      onMessage: (received, from) => {
        const at = { address: parseAddress(from.address), port: from.port }
        if (sameAddressPort(at, this.to)) onMessage(received, port)
      },
      onError: () => void this.#sockets.delete(port),
    })
    this.#sockets.set(port, socket)
  }
}
