/**
 * Room for a handful of datagrams and their answers, in the form that recvmmsg(2) and sendmmsg(2) want: arrays of
 * `struct mmsghdr` for what comes and for what goes, each entry with one `iovec` and a sender's `sockaddr`. All of it
 * lies in one buffer that is never moved; every pointer in it is computed once, here, from no value of the network.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { endianness } from 'node:os'
import { formatAddress } from '../../model/addresses/addresses.ts'
import { HEADER_LENGTH, MAX_UDP_SIZE, byte } from '../message/message.ts'

// recvmmsg(2) and sendmmsg(2): many datagrams by one system call, which Node's sockets do not offer. Called through
// `node:ffi` (Node 26.1, experimental; decision 24). Callers also work without it, one by one.

export interface Mmsg {
  /** Reads at most `count` datagrams into the `mmsghdr` array at `headers`. Gives how many; -1: none, or an error. */
  receive(descriptor: number, headers: bigint, count: number): number
  /** Sends the first `count` of the array. Gives how many were sent; -1: not even the first. */
  send(descriptor: number, headers: bigint, count: number): number
  /** Where the bytes are, for as long as somebody holds `memory`: a buffer of its own, not a piece of Node's pool. */
  addressOf(memory: Buffer): bigint
}

/** Same value on every Linux: the socket is never waited on here. */
const MSG_DONTWAIT = 0x40

/** Undefined where the C structures are laid out otherwise, or this Node cannot call the C library. Never rejects. */
export async function openMmsg(): Promise<Mmsg | undefined> {
  const known = process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch) && endianness() === 'LE'
  if (!known) return undefined
  try {
    const { dlopen, getRawPointer } = await import('node:ffi')
    const { functions } = dlopen(null, {
      recvmmsg: { arguments: ['i32', 'pointer', 'u32', 'i32', 'pointer'], return: 'i32' },
      sendmmsg: { arguments: ['i32', 'pointer', 'u32', 'i32'], return: 'i32' },
    })
    return {
      receive: (descriptor, headers, count) => functions.recvmmsg(descriptor, headers, count, MSG_DONTWAIT, 0n),
      send: (descriptor, headers, count) => functions.sendmmsg(descriptor, headers, count, MSG_DONTWAIT),
      addressOf: (memory) => getRawPointer(memory),
    }
  } catch {
    // An older Node, one built or started without it, or a C library without these calls.
    return undefined
  }
}

/** Where a datagram came from. */
export interface DatagramSource {
  readonly address: string
  readonly port: number
}

/** Enough to share the cost of a system call, few enough that the first answer need not wait. */
export const SLOTS = 32
/** Octets that a query may have. */
export const MAX_QUERY_SIZE = 4096
/** Room for more than that, so that what is longer shows, and words stay where words are. */
const QUERY_ROOM = MAX_QUERY_SIZE + 4

/**
 * struct mmsghdr on 64 bit: name 0, its length 8, iovec 16, their number 24, control 32 and 40, flags 48, length 56.
 */
const HEADER = 64
const NAME_LENGTH_AT = 8
const VECTOR_AT = 16
const VECTOR_COUNT_AT = 24
const MESSAGE_LENGTH_AT = 56
/** struct iovec: address 0, length 8. */
const VECTOR = 16
/** struct sockaddr_in6 is the longest: 28. */
const NAME = 32
const WORD = 4

const AT = {
  received: 0,
  sent: SLOTS * HEADER,
  receivedVectors: 2 * SLOTS * HEADER,
  sentVectors: 2 * SLOTS * HEADER + SLOTS * VECTOR,
  names: 2 * SLOTS * (HEADER + VECTOR),
  queries: 2 * SLOTS * (HEADER + VECTOR) + SLOTS * NAME,
  answers: 2 * SLOTS * (HEADER + VECTOR) + SLOTS * (NAME + QUERY_ROOM),
  end: 2 * SLOTS * (HEADER + VECTOR) + SLOTS * (NAME + QUERY_ROOM + MAX_UDP_SIZE),
} as const

/** What is too long is handed on as its header alone, which is malformed whatever it says. */
export function withoutExcess(query: Buffer): Buffer {
  return query.length > MAX_QUERY_SIZE ? query.subarray(0, HEADER_LENGTH) : query
}

export class DatagramSlots {
  readonly #mmsg: Mmsg
  readonly #descriptor: number
  readonly #memory = Buffer.alloc(AT.end)
  readonly #words: Uint32Array
  readonly #start: bigint
  readonly #queries: readonly Buffer[]
  readonly #sources: readonly DatagramSource[]
  /** Slot of the query that each answer belongs to. */
  readonly #answered = new Uint8Array(SLOTS)
  readonly #address = new Uint32Array(4)
  #answers = 0

  constructor(mmsg: Mmsg, descriptor: number) {
    this.#mmsg = mmsg
    this.#descriptor = descriptor
    this.#words = new Uint32Array(this.#memory.buffer, this.#memory.byteOffset, AT.end / WORD)
    this.#start = mmsg.addressOf(this.#memory)
    this.#queries = Array.from({ length: SLOTS }, (_, slot) => this.#part(AT.queries, slot, QUERY_ROOM))
    this.#sources = Array.from({ length: SLOTS }, (_, slot) => new SocketName(this.#part(AT.names, slot, NAME)))
    for (let slot = 0; slot < SLOTS; slot += 1) this.#layOut(slot)
  }

  /** Fills the slots from 0 on with what waits at the socket. Gives how many were filled. */
  receive(): number {
    for (let slot = 0; slot < SLOTS; slot += 1) this.#set(AT.received + slot * HEADER + NAME_LENGTH_AT, NAME)
    this.#answers = 0
    return Math.max(0, this.#mmsg.receive(this.#descriptor, this.#start + BigInt(AT.received), SLOTS))
  }

  /** The bytes that came, good until the next receive(). */
  query(slot: number): Buffer {
    const length = this.#get(AT.received + slot * HEADER + MESSAGE_LENGTH_AT)
    return withoutExcess((this.#queries[slot] ?? this.#memory).subarray(0, Math.min(length, QUERY_ROOM)))
  }

  /** Who sent it, good until the next receive(). */
  source(slot: number): DatagramSource {
    return this.#sources[slot] ?? NOBODY
  }

  /** The same address as four numbers (clients.ts), in an array that the next call writes to again. */
  words(slot: number): Uint32Array {
    const name = AT.names + slot * NAME
    const memory = this.#memory
    const words = this.#address
    if (memory[name] === AF_INET) {
      words[0] = 0
      words[1] = 0
      words[2] = 0xffff
      words[3] = bigEndian(memory, name + 4)
    } else {
      for (let i = 0; i < 4; i += 1) words[i] = bigEndian(memory, name + 8 + 4 * i)
    }
    return words
  }

  /** Puts an answer, at most MAX_UDP_SIZE octets, behind those of the slots before it. */
  reply(slot: number, answer: Buffer): void {
    const next = this.#answers
    const length = answer.copy(this.#memory, AT.answers + next * MAX_UDP_SIZE, 0, MAX_UDP_SIZE)
    this.#set(AT.sentVectors + next * VECTOR + 8, length)
    // To the address it came from: the same pointer, the same length.
    const from = AT.received + slot * HEADER
    const to = AT.sent + next * HEADER
    this.#set(to, this.#get(from))
    this.#set(to + WORD, this.#get(from + WORD))
    this.#set(to + NAME_LENGTH_AT, this.#get(from + NAME_LENGTH_AT))
    this.#answered[next] = slot
    this.#answers = next + 1
  }

  /** Sends the answers; those that the system did not take go to `rest`, each a copy. */
  flush(rest: (answer: Buffer, to: DatagramSource) => void): void {
    if (this.#answers === 0) return
    const taken = this.#mmsg.send(this.#descriptor, this.#start + BigInt(AT.sent), this.#answers)
    for (let left = Math.max(0, taken); left < this.#answers; left += 1) {
      const length = this.#get(AT.sentVectors + left * VECTOR + 8)
      const answer = this.#part(AT.answers, left, MAX_UDP_SIZE).subarray(0, length)
      rest(Buffer.from(answer), this.source(this.#answered[left] ?? 0))
    }
  }

  #layOut(slot: number): void {
    for (const [headers, vectors, parts, size] of [
      [AT.received, AT.receivedVectors, AT.queries, QUERY_ROOM],
      [AT.sent, AT.sentVectors, AT.answers, MAX_UDP_SIZE],
    ] as const) {
      this.#point(headers + slot * HEADER, AT.names + slot * NAME)
      this.#point(headers + slot * HEADER + VECTOR_AT, vectors + slot * VECTOR)
      this.#set(headers + slot * HEADER + VECTOR_COUNT_AT, 1)
      this.#point(vectors + slot * VECTOR, parts + slot * size)
      this.#set(vectors + slot * VECTOR + 8, size)
    }
  }

  #part(start: number, slot: number, size: number): Buffer {
    return this.#memory.subarray(start + slot * size, start + (slot + 1) * size)
  }

  #point(at: number, target: number): void {
    this.#memory.writeBigUInt64LE(this.#start + BigInt(target), at)
  }

  #get(at: number): number {
    return this.#words[at / WORD] ?? 0
  }

  #set(at: number, value: number): void {
    this.#words[at / WORD] = value
  }
}

function bigEndian(memory: Buffer, at: number): number {
  return (
    ((byte(memory, at) << 24) | (byte(memory, at + 1) << 16) | (byte(memory, at + 2) << 8) | byte(memory, at + 3)) >>> 0
  )
}

const NOBODY: DatagramSource = { address: '', port: 0 }
/** The first field of every sockaddr. */
const AF_INET = 2

/** A `sockaddr_in` or `sockaddr_in6`, read when asked: most answers need only its bytes. */
class SocketName implements DatagramSource {
  readonly #name: Buffer

  constructor(name: Buffer) {
    this.#name = name
  }

  get port(): number {
    return this.#name.readUInt16BE(2)
  }

  /** As Node's sockets write it: a link-local address with its interface. */
  get address(): string {
    const name = this.#name
    if (name.readUInt16LE(0) === AF_INET) return formatAddress({ family: 4, value: BigInt(name.readUInt32BE(4)) })
    const value = (name.readBigUInt64BE(8) << 64n) | name.readBigUInt64BE(16)
    return formatAddress({ family: 6, value }) + zone(name.readUInt32LE(24))
  }
}

const DEVICES = '/sys/class/net'
/** Who sends from addresses of a link must not make us read all of this for every datagram. */
const DEVICES_KEPT_MS = 1000
let devices: { readonly names: ReadonlyMap<number, string>; readonly atMs: number } | undefined

/** `%eth0` for the interface with that number: a link-local address leads nowhere without it. '' for none. */
function zone(scope: number): string {
  if (scope === 0) return ''
  const nowMs = performance.now()
  if (devices === undefined || nowMs - devices.atMs > DEVICES_KEPT_MS) devices = { names: namesByIndex(), atMs: nowMs }
  const name = devices.names.get(scope)
  return name === undefined ? '' : `%${name}`
}

function namesByIndex(): Map<number, string> {
  const names = contents(() => readdirSync(DEVICES)) ?? []
  return new Map(
    names.map((name) => [Number(contents(() => readFileSync(`${DEVICES}/${name}/ifindex`, 'utf8'))), name]),
  )
}

/** Undefined where it went while we looked, is no device, or /sys is not there. */
function contents<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
