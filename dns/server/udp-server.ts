/**
 * DNS over UDP. Nothing that arrives can make it throw. Node reads one datagram with one system call. If this Node
 * supports openMmsg(), the datagrams that wait behind it are read, answered and sent together.
 */
import { type Socket, type SocketOptions, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { isIP } from 'node:net'
import { formatAddress } from '../../model/addresses/addresses.ts'
import type { DropReason, SocketAddress } from '../config/config.ts'
import type { Client, Clients } from '../clients/clients.ts'
import type { Pipeline } from './pipeline.ts'
import { DatagramSlots, type DatagramSource, type Mmsg, withoutExcess } from './datagram-slots.ts'
import { descriptorOpenedBy } from './port-group.ts'

export interface UdpServerInit {
  readonly listen: SocketAddress
  readonly reusePort: boolean
  /** If undefined, each datagram needs its own system call. */
  readonly mmsg: Mmsg | undefined
  /** Its answers have at most MAX_UDP_SIZE octets. */
  readonly pipeline: Pick<Pipeline, 'answer'>
  readonly clients: Pick<Clients, 'ofText' | 'ofWords'>
  /** Called for each datagram that gets no answer because of the socket. */
  readonly onDropped: (reason: DropReason, error?: Error) => void
}

/** Room for bursts while the process does other work. The kernel may grant less. */
const SOCKET_BUFFER_BYTES = 4 * 1024 * 1024

/**
 * Node reads 32 datagrams in one turn of its event loop. With these rounds, a socket answers at most 288 before timers,
 * TCP clients and the API get their turn: a few milliseconds. A flood must not keep the process from its other work.
 */
export const MOST_ROUNDS = 8

/** Rounds before the socket is closed: more than its queue holds, but limited in case of a flood. */
const LAST_ROUNDS = 256

/** Addresses are numeric already. Node's own look-up would delay each answer to a later tick. */
const noLookup: NonNullable<SocketOptions['lookup']> = (hostname, _options, callback) =>
  callback(null, hostname, isIP(hostname))

/** Opens the socket. Rejects with the error of the system (`code` EADDRINUSE, EADDRNOTAVAIL, EACCES …). */
export async function openUdp(init: UdpServerInit): Promise<UdpServer> {
  const { listen, reusePort } = init
  const type = listen.address.family === 4 ? 'udp4' : 'udp6'
  const socket = createSocket({ type, reusePort, ipv6Only: type === 'udp6', lookup: noLookup })
  const slots = await bind(socket, listen, init.mmsg)
  enlargeBuffers(socket)
  return new UdpServer(socket, slots, init)
}

export class UdpServer {
  readonly #socket: Socket
  readonly #slots: DatagramSlots | undefined
  readonly #pipeline: UdpServerInit['pipeline']
  readonly #clients: UdpServerInit['clients']
  readonly #onDropped: UdpServerInit['onDropped']
  #isClosed = false

  constructor(socket: Socket, slots: DatagramSlots | undefined, { pipeline, clients, onDropped }: UdpServerInit) {
    this.#socket = socket
    this.#slots = slots
    this.#pipeline = pipeline
    this.#clients = clients
    this.#onDropped = onDropped
    const mayGoOn = roundsOfATurn(MOST_ROUNDS)
    socket.on('error', (error) => onDropped('socket_error', error))
    socket.on('message', (query, source) => {
      const answer = this.#answer(withoutExcess(query), source, clients.ofText(source.address))
      if (answer !== undefined) this.#send(answer, source)
      if (slots !== undefined && mayGoOn()) this.#answerWaiting(slots)
    })
  }

  get port(): number {
    return this.#socket.address().port
  }

  /** True if many datagrams are read with one system call. */
  get isBatched(): boolean {
    return this.#slots !== undefined
  }

  /**
   * Answers the datagrams that wait, if they can be read in batches, then closes. Later answers of upstreams are not
   * sent.
   */
  close(): Promise<void> {
    for (let round = 0; round < LAST_ROUNDS && this.#slots !== undefined; round += 1) {
      if (this.#answerWaiting(this.#slots) === 0) break
    }
    this.#isClosed = true
    return new Promise((resolve) => this.#socket.close(() => resolve()))
  }

  /** Reads, answers and sends one batch of the datagrams that wait. Returns how many were read. */
  #answerWaiting(slots: DatagramSlots): number {
    const count = slots.receive()
    for (let slot = 0; slot < count; slot += 1) {
      const answer = this.#answer(slots.query(slot), slots.source(slot), this.#clients.ofWords(slots.words(slot)))
      if (answer !== undefined) slots.reply(slot, answer)
    }
    slots.flush(this.#sendRest)
    return count
  }

  /**
   * Returns the answer to send at once. An answer of an upstream is sent when it comes. Keeps neither query nor source.
   */
  #answer(query: Buffer, source: DatagramSource, client: Client): Buffer | undefined {
    // Only a forged packet has source port 0, to which nothing can be sent.
    if (source.port === 0) {
      this.#onDropped('no_source_port')
      return undefined
    }
    const reply = this.#pipeline.answer(query, 'udp', client)
    if (!(reply instanceof Promise)) return reply
    const { address, port } = source
    void reply.then((late) => {
      if (late !== undefined && !this.#isClosed) this.#send(late, { address, port })
    })
    return undefined
  }

  /** Sends one answer with its own system call. */
  #send(answer: Buffer, to: DatagramSource): void {
    try {
      this.#socket.send(answer, to.port, to.address)
    } catch (error) {
      this.#onDropped('socket_error', error as Error)
    }
  }

  readonly #sendRest = (answer: Buffer, to: DatagramSource): void => this.#send(answer, to)
}

/** Returns a function that tells whether another round is allowed in this turn of the event loop. */
function roundsOfATurn(most: number): () => boolean {
  let rounds = 0
  const turned = (): void => {
    rounds = 0
  }
  return () => {
    if (rounds === 0) setImmediate(turned)
    rounds += 1
    return rounds <= most
  }
}

/** Returns slots for batches if the descriptor of the socket is known. */
async function bind(socket: Socket, listen: SocketAddress, mmsg?: Mmsg): Promise<DatagramSlots | undefined> {
  const bound = once(socket, 'listening')
  let isBoundAtOnce = false as boolean
  const descriptor = descriptorOpenedBy(() => {
    socket.once('listening', () => (isBoundAtOnce = true))
    socket.bind({ address: formatAddress(listen.address), port: listen.port })
  })
  // The new descriptor surely belongs to this socket only if the socket is bound by now, as it is with noLookup.
  const own = isBoundAtOnce ? descriptor : undefined
  try {
    await bound
  } catch (error) {
    socket.close()
    throw error
  }
  return mmsg === undefined || own === undefined ? undefined : new DatagramSlots(mmsg, own)
}

function enlargeBuffers(socket: Socket): void {
  try {
    socket.setRecvBufferSize(SOCKET_BUFFER_BYTES)
    socket.setSendBufferSize(SOCKET_BUFFER_BYTES)
  } catch {
    // A smaller buffer works too.
  }
}
