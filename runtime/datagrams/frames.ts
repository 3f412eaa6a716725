/**
 * The frames between a gateway and a relay on port 443: binary messages of a WebSocket (RFC 6455). Numbers are in
 * network order. The first octet is the type:
 *
 *   1 challenge   relay    version, 1 │ nonce, 32 │ X25519 key of the relay for this connection, 32 │ time in ms, 8
 *   2 proof       gateway  identity, 32 │ MAC, 32 │ ticket of its cluster (protocol/tickets/)
 *   3 welcome     relay    nothing
 *   4 refused     relay    code, 1 │ time in ms, 8
 *   5 wants       gateway  endName(), 8, of each end with which it wants to exchange datagrams: all of them
 *   6 present     relay    endName(), 8, of each of these that is here and wants this end too: all of them
 *   7 datagrams   both     for each one: length, 2 │ endName() of the other end, 8 │ octets
 *   8 restarting  relay    when to come again, in ms, 4
 *
 * A decoder never throws: octets that are not a whole, well-formed frame give undefined.
 */
import { createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'

export const FRAMES_VERSION = 1
/** The WebSocket subprotocol. */
export const SUBPROTOCOL = 'sealane.relay.v1'
/**
 * A header of the relay's answer to the WebSocket handshake: which process it is (makeInstance()). It is no frame,
 * because gateways of earlier releases end a connection on which a frame comes that they do not know. Relays of earlier
 * releases send none.
 */
export const INSTANCE_HEADER = 'sealane-relay-instance'
const INSTANCE_BYTES = 8
/**
 * With this code of WebSocket (RFC 6455 section 7.4.2) a relay ends the connection of a gateway of which another one has
 * taken the place. Relays of earlier releases say nothing of it.
 */
export const REPLACED_CODE = 4001
export const NONCE_BYTES = 32
export const KEY_BYTES = 32
const MAC_BYTES = 32
export const END_BYTES = 8
/** Largest frame. */
export const MAX_FRAME_BYTES = 65_536
/**
 * Most parts of a frame. Neither side splits any, but a proxy between them may (RFC 6455 section 5.4), by 4 KiB or more.
 * Only a whole frame is charged, so one of many empty parts would cost its sender next to nothing.
 */
export const MAX_FRAME_PARTS = 16
/** Largest datagram: a packet of a cable on a network with jumbo frames. */
export const MAX_DATAGRAM_BYTES = 9216
export const MAX_TICKET_BYTES = 8192
/** Most ends that a gateway may want at one relay. */
export const MAX_WANTS = 1024
const ENTRY_BYTES = 2 + END_BYTES

/** Why a relay refuses a gateway. The order is that of the codes on the wire. */
export const RELAY_REFUSALS = [
  'malformed',
  'foreignClusterset',
  'expired',
  'wrongClock',
  'notListed',
  'badProof',
  'full',
  'memberFull',
  'tooFast',
] as const
export type RelayRefusal = (typeof RELAY_REFUSALS)[number]

export interface Challenge {
  readonly version: number
  readonly nonce: Buffer
  /** The public X25519 key that the relay made for this connection. */
  readonly key: Buffer
  /** The relay's clock. */
  readonly timeMs: number
}

export interface Proof {
  /** The gateway's identity: a public X25519 key, of 32 octets. */
  readonly identity: Buffer
  readonly mac: Buffer
  readonly ticket: Buffer
}

export interface Datagram {
  /** The far end: to whom the gateway sends, or from whom the relay forwards. */
  readonly end: string
  readonly bytes: Buffer
}

export type Frame =
  | ({ readonly t: 'challenge' } & Challenge)
  | ({ readonly t: 'proof' } & Proof)
  | { readonly t: 'welcome' }
  | { readonly t: 'refused'; readonly why: RelayRefusal; readonly timeMs: number }
  | { readonly t: 'wants'; readonly ends: readonly string[] }
  | { readonly t: 'present'; readonly ends: readonly string[] }
  | { readonly t: 'datagrams'; readonly datagrams: readonly Datagram[] }
  | { readonly t: 'restarting'; readonly againMs: number }

const TYPES = {
  challenge: 1,
  proof: 2,
  welcome: 3,
  refused: 4,
  wants: 5,
  present: 6,
  datagrams: 7,
  restarting: 8,
} as const

/** Another one for each process that relays, in hexadecimal: two processes with one key are two relays. */
export function makeInstance(): string {
  return randomBytes(INSTANCE_BYTES).toString('hex')
}

/** Undefined for a header that is absent, or not of the form that makeInstance() gives. Never throws. */
export function readInstance(header: unknown): string | undefined {
  const isOne = typeof header === 'string' && header.length === 2 * INSTANCE_BYTES && /^[0-9a-f]+$/.test(header)
  return isOne ? header : undefined
}

/** The name of an end in frames, in hexadecimal. Another clusterset has other names for the same identity. */
export function endName(clusterset: string, identity: Buffer): string {
  const size = Buffer.alloc(4)
  size.writeUInt32BE(Buffer.byteLength(clusterset))
  const hash = createHash('sha256').update('sealane relay 443 end 1\0').update(size).update(clusterset).update(identity)
  return hash.digest('hex').slice(0, 2 * END_BYTES)
}

/**
 * The MAC of a proof. `secret` is what the gateway's identity and the relay's key agree on (X25519): only the two of
 * them have it. It covers the whole challenge and the ticket, so a proof is of use for one connection alone.
 */
export function proofMac(secret: Buffer, challenge: Challenge, { identity, ticket }: Omit<Proof, 'mac'>): Buffer {
  const key = Buffer.from(hkdfSync('sha256', secret, challenge.nonce, 'sealane relay 443 proof 1', 32))
  const whole = encodeFrame({ t: 'challenge', ...challenge })
  return createHmac('sha256', key).update(whole).update(identity).update(ticket).digest()
}

/** Compares in constant time. */
export function isProofMac(mac: Buffer, expected: Buffer): boolean {
  return mac.length === expected.length && timingSafeEqual(mac, expected)
}

/** Throws RangeError for a frame that the form has no room for. */
export function encodeFrame(frame: Frame): Buffer {
  switch (frame.t) {
    case 'challenge': {
      const bytes = head(frame.t, 1 + NONCE_BYTES + KEY_BYTES + 8)
      bytes.writeUInt8(frame.version, 1)
      frame.nonce.copy(bytes, 2)
      frame.key.copy(bytes, 2 + NONCE_BYTES)
      bytes.writeBigUInt64BE(BigInt(Math.round(frame.timeMs)), 2 + NONCE_BYTES + KEY_BYTES)
      return bytes
    }
    case 'proof':
      return Buffer.concat([head(frame.t, 0), frame.identity, frame.mac, frame.ticket])
    case 'welcome':
      return head(frame.t, 0)
    case 'refused': {
      const bytes = head(frame.t, 9)
      bytes.writeUInt8(RELAY_REFUSALS.indexOf(frame.why), 1)
      bytes.writeBigUInt64BE(BigInt(Math.round(frame.timeMs)), 2)
      return bytes
    }
    case 'wants':
    case 'present':
      if (frame.ends.length > MAX_WANTS)
        throw new RangeError(`${frame.ends.length} ends: expected at most ${MAX_WANTS}`)
      return Buffer.concat([head(frame.t, 0), ...frame.ends.map((end) => Buffer.from(end, 'hex'))])
    case 'datagrams':
      return encodeDatagrams(frame.datagrams)
    case 'restarting': {
      const bytes = head(frame.t, 4)
      bytes.writeUInt32BE(frame.againMs, 1)
      return bytes
    }
  }
}

function encodeDatagrams(datagrams: readonly Datagram[]): Buffer {
  const length = datagrams.reduce((sum, { bytes }) => sum + entryBytes(bytes), 1)
  if (length > MAX_FRAME_BYTES) throw new RangeError(`${length} octets: expected at most ${MAX_FRAME_BYTES}`)
  const frame = Buffer.allocUnsafe(length)
  frame.writeUInt8(TYPES.datagrams, 0)
  let offset = 1
  for (const { end, bytes } of datagrams) {
    frame.writeUInt16BE(bytes.length, offset)
    frame.write(end, offset + 2, END_BYTES, 'hex')
    bytes.copy(frame, offset + ENTRY_BYTES)
    offset += entryBytes(bytes)
  }
  return frame
}

/** How many octets of a frame a datagram takes. */
export function entryBytes(bytes: Buffer): number {
  return ENTRY_BYTES + bytes.length
}

/** Undefined for what is not a frame of this version. The octets of datagrams and tickets are views. Never throws. */
export function decodeFrame(bytes: Buffer): Frame | undefined {
  if (bytes.length === 0 || bytes.length > MAX_FRAME_BYTES) return undefined
  const rest = bytes.length - 1
  const type: number = bytes.readUInt8(0)
  switch (type) {
    case TYPES.challenge: {
      const timeMs = rest === 1 + NONCE_BYTES + KEY_BYTES + 8 ? timeAt(bytes, 2 + NONCE_BYTES + KEY_BYTES) : undefined
      if (timeMs === undefined) return undefined
      const nonce = bytes.subarray(2, 2 + NONCE_BYTES)
      const key = bytes.subarray(2 + NONCE_BYTES, 2 + NONCE_BYTES + KEY_BYTES)
      return { t: 'challenge', version: bytes.readUInt8(1), nonce, key, timeMs }
    }
    case TYPES.proof: {
      const ticket = bytes.subarray(1 + KEY_BYTES + MAC_BYTES)
      if (rest <= KEY_BYTES + MAC_BYTES || ticket.length > MAX_TICKET_BYTES) return undefined
      const mac = bytes.subarray(1 + KEY_BYTES, 1 + KEY_BYTES + MAC_BYTES)
      return { t: 'proof', identity: bytes.subarray(1, 1 + KEY_BYTES), mac, ticket }
    }
    case TYPES.welcome:
      return rest === 0 ? { t: 'welcome' } : undefined
    case TYPES.refused: {
      if (rest !== 9) return undefined
      const [why, timeMs] = [RELAY_REFUSALS[bytes.readUInt8(1)], timeAt(bytes, 2)]
      return why === undefined || timeMs === undefined ? undefined : { t: 'refused', why, timeMs }
    }
    case TYPES.wants:
    case TYPES.present: {
      const ends = endsIn(bytes)
      return ends === undefined ? undefined : { t: type === TYPES.wants ? 'wants' : 'present', ends }
    }
    case TYPES.datagrams: {
      const datagrams = datagramsIn(bytes)
      return datagrams === undefined ? undefined : { t: 'datagrams', datagrams }
    }
    case TYPES.restarting:
      return rest === 4 ? { t: 'restarting', againMs: bytes.readUInt32BE(1) } : undefined
    default:
      return undefined
  }
}

function datagramsIn(bytes: Buffer): readonly Datagram[] | undefined {
  // A list of none is of no use, and costs its sender nothing.
  if (bytes.length === 1) return undefined
  const datagrams: Datagram[] = []
  for (let offset = 1; offset < bytes.length;) {
    if (offset + ENTRY_BYTES > bytes.length) return undefined
    const length = bytes.readUInt16BE(offset)
    const start = offset + ENTRY_BYTES
    if (length === 0 || length > MAX_DATAGRAM_BYTES || start + length > bytes.length) return undefined
    const end = bytes.toString('hex', offset + 2, start)
    datagrams.push({ end, bytes: bytes.subarray(start, start + length) })
    offset = start + length
  }
  return datagrams
}

function endsIn(bytes: Buffer): readonly string[] | undefined {
  const count = (bytes.length - 1) / END_BYTES
  if (!Number.isInteger(count) || count > MAX_WANTS) return undefined
  return Array.from({ length: count }, (_, i) => bytes.toString('hex', 1 + i * END_BYTES, 1 + (i + 1) * END_BYTES))
}

/** Undefined for a number that is not exact as a JavaScript number. */
function timeAt(bytes: Buffer, offset: number): number | undefined {
  const value = bytes.readBigUInt64BE(offset)
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : undefined
}

function head(type: keyof typeof TYPES, rest: number): Buffer {
  const bytes = Buffer.alloc(1 + rest)
  bytes.writeUInt8(TYPES[type], 0)
  return bytes
}
