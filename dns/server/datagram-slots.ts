/**
 * Memory for a batch of datagrams and their answers in the layout of recvmmsg(2) and sendmmsg(2): two arrays of
 * `struct mmsghdr`, for received and sent datagrams, each entry with one `iovec` and the `sockaddr` of the sender. All
 * of it lies in one buffer that never moves. Every pointer in it is computed once, in this module, and never from
 * network data.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { endianness } from 'node:os'
import { formatAddress } from '../../model/addresses/addresses.ts'
import { HEADER_LENGTH, MAX_UDP_SIZE, byte } from '../message/message.ts'

// recvmmsg(2) and sendmmsg(2): many datagrams with one system call, which Node's sockets do not offer. They are called
// through `node:ffi` (Node 26.1, experimental; decision 24). Without it, callers handle datagrams one by one.

export interface Mmsg {
  /**
   * Reads at most `count` datagrams into the `mmsghdr` array at `headers`. Returns their number, or -1 if there are
   * none or on error.
   */
  receive(descriptor: number, headers: bigint, count: number): number
  /** Sends the first `count` datagrams of the array. Returns how many were sent, or -1 if not even the first was. */
  send(descriptor: number, headers: bigint, count: number): number
  /**
   * Returns the address of the bytes, valid as long as `memory` is referenced. It must be a buffer of its own, not a
   * part of Node's pool.
   */
  addressOf(memory: Buffer): bigint
}

/** The same value on every Linux. The socket is never waited on here. */
const MSG_DONTWAIT = 0x40

/** Undefined if the C structures have another layout, or if this Node cannot call the C library. Never rejects. */
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
    // Node is older or lacks `node:ffi`, or the C library lacks these calls.
    return undefined
  }
}

/** The source of a datagram. */
export interface DatagramSource {
  readonly address: string
  readonly port: number
}

/** Large enough to share the cost of a system call, small enough that the first answer does not wait. */
export const SLOTS = 32
/** Maximum size of a query in octets. */
export const MAX_QUERY_SIZE = 4096
/** A bit larger, so that longer queries are detected and words stay aligned. */
const QUERY_ROOM = MAX_QUERY_SIZE + 4

/**
 * Offsets in struct mmsghdr on 64 bit: name 0, its length 8, iovec 16, their number 24, control 32 and 40, flags 48,
 * length 56.
 */
const HEADER = 64
const NAME_LENGTH_AT = 8
const VECTOR_AT = 16
const VECTOR_COUNT_AT = 24
const MESSAGE_LENGTH_AT = 56
/** struct iovec: address 0, length 8. */
const VECTOR = 16
/** Room for struct sockaddr_in6, the longest: 28 octets. */
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

/** Reduces a query that is too long to its header, which is malformed in any case. */
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
  /** The slot of the query that each answer belongs to. */
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

  /** Fills the slots from 0 with the datagrams that wait at the socket. Returns how many were filled. */
  receive(): number {
    for (let slot = 0; slot < SLOTS; slot += 1) this.#set(AT.received + slot * HEADER + NAME_LENGTH_AT, NAME)
    this.#answers = 0
    return Math.max(0, this.#mmsg.receive(this.#descriptor, this.#start + BigInt(AT.received), SLOTS))
  }

  /** Returns the received bytes, valid until the next receive(). */
  query(slot: number): Buffer {
    const length = this.#get(AT.received + slot * HEADER + MESSAGE_LENGTH_AT)
    return withoutExcess((this.#queries[slot] ?? this.#memory).subarray(0, Math.min(length, QUERY_ROOM)))
  }

  /** Returns the source, valid until the next receive(). */
  source(slot: number): DatagramSource {
    return this.#sources[slot] ?? NOBODY
  }

  /** Returns the source address as four numbers (see clients.ts), in an array that the next call overwrites. */
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

  /** Adds an answer of at most MAX_UDP_SIZE octets to the batch. */
  reply(slot: number, answer: Buffer): void {
    const next = this.#answers
    const length = answer.copy(this.#memory, AT.answers + next * MAX_UDP_SIZE, 0, MAX_UDP_SIZE)
    this.#set(AT.sentVectors + next * VECTOR + 8, length)
    // The destination is the source of the query: the same pointer and length.
    const from = AT.received + slot * HEADER
    const to = AT.sent + next * HEADER
    this.#set(to, this.#get(from))
    this.#set(to + WORD, this.#get(from + WORD))
    this.#set(to + NAME_LENGTH_AT, this.#get(from + NAME_LENGTH_AT))
    this.#answered[next] = slot
    this.#answers = next + 1
  }

  /** Sends the answers. Those that the system did not accept are passed to `rest`, each as a copy. */
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

/** A `sockaddr_in` or `sockaddr_in6`, parsed on demand: most answers need only its bytes. */
class SocketName implements DatagramSource {
  readonly #name: Buffer

  constructor(name: Buffer) {
    this.#name = name
  }

  get port(): number {
    return this.#name.readUInt16BE(2)
  }

  /** The form of Node's sockets: a link-local address includes its zone. */
  get address(): string {
    const name = this.#name
    if (name.readUInt16LE(0) === AF_INET) return formatAddress({ family: 4, value: BigInt(name.readUInt32BE(4)) })
    const value = (name.readBigUInt64BE(8) << 64n) | name.readBigUInt64BE(16)
    return formatAddress({ family: 6, value }) + zone(name.readUInt32LE(24))
  }
}

const DEVICES = '/sys/class/net'
/**
 * How long the list is cached, so that datagrams from link-local addresses do not cause a read of the folder each time.
 */
const DEVICES_KEPT_MS = 1000
let devices: { readonly names: ReadonlyMap<number, string>; readonly atMs: number } | undefined

/**
 * Returns `%eth0` for the interface with that index, which a link-local address requires. Returns '' if there is none.
 */
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

/** Undefined if the file has disappeared, is not a device, or /sys is missing. */
function contents<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
