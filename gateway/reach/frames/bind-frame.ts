/**
 * The messages between an end of a link and a relay. Each travels beside the packets that it is about: from the port of
 * the end's own cable, so that both share one mapping of every NAT on the path, to a port of the relay.
 *
 *   question (88 octets):  0 magic "SLR1" │ 4 type │ 5 mapping │ 6 zero, 2 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8
 *                         32 cookie, 16 │ 48 zero, 24 │ 72 MAC, 16
 *   answer (88 octets):    0 magic "SLR1" │ 4 type │ 5 code │ 6 port, 2 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8
 *                         32 body, 40 │ 72 MAC, 16
 *
 * Numbers are in network order. `from` and `to` are endId() of the two ends: `from` is the end that calls, also in the
 * answer. The MAC is HMAC-SHA256, truncated, by a key that only this end and this relay know (bindKey()), over all
 * octets before it. An answer is as long as its question, so that a relay never sends more than it receives.
 *
 *   body of a challenge:  cookie, 16 │ zero, 24
 *   body of bound:        next cookie, 16 │ place at which the end is seen, 6 │ place of the far end, 6
 *                         lifetime in ms, 4 │ time for which both have been bound, in ms, 4
 *                         mapping of the far end, 1 │ zero, 3
 *   body of refused:      newest counter that the relay has accepted, 8 │ zero, 32
 *
 * A place is an address, 4, and a port, 2; both are zero if the far end is not bound. They are XORed with the magic, as
 * in STUN (RFC 8489 section 14.2): some NATs rewrite what looks like an address of theirs. The mapping (MAPPINGS) is the
 * word of the end itself, which the relay only hands on. The magic is not the first word of a WireGuard message (types 1 to 4, little-endian), so
 * nft tells these messages from the packets of a cable by their first word.
 */
import { createHash, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto'
import type { AddressPort } from '../../../model/addresses/addresses.ts'
import type { Agreement } from '../../cable/cable.ts'

export const QUESTION_BYTES = 88
export const ANSWER_BYTES = 88
/** The first word of each message. */
export const BIND_MAGIC = 0x534c5231
export const COOKIE_BYTES = 16
export const NO_COOKIE: Buffer = Buffer.alloc(COOKIE_BYTES)
export const MAC_BYTES = 16
const ID_BYTES = 8
/** Stands for all times that are as long or longer. */
const LONGEST_SHARED_MS = 0xffffffff

/**
 * What the NAT in front of an end does, as far as it knows (RFC 4787 section 4.1). Endpoint-independent: all
 * destinations see it at one place, also where there is no NAT. Address-dependent: each sees another one. The order is
 * that of the codes on the wire.
 */
export const MAPPINGS = ['unknown', 'endpointIndependent', 'addressDependent'] as const
export type NatMapping = (typeof MAPPINGS)[number]

/** Asks to bind the address and port from which it was sent. */
export interface BindQuestion {
  /** endId() of the end that calls. */
  readonly from: string
  /** endId() of the end with which it wants to exchange packets. */
  readonly to: string
  /** Each question has a greater one than all before, also after a restart of the process. */
  readonly counter: number
  /** From the last challenge of this relay; NO_COOKIE before the first. */
  readonly cookie: Buffer
  /** What the end knows of the NAT in front of it. */
  readonly mapping: NatMapping
}

/** The far end as the relay sees it. */
export interface SeenFarEnd {
  readonly at: AddressPort
  readonly mapping: NatMapping
  /**
   * For how long both ends have been bound where they are now, so both know at which times both of them try. Undefined:
   * for longer than the form has room for.
   */
  readonly sharedMs: number | undefined
}

/** Why a relay refuses an end that has answered a challenge. The order is that of the codes on the wire. */
export const REFUSALS = ['stale', 'notAllowed', 'wrongPort', 'full', 'memberFull', 'quotaSpent', 'sameAddress'] as const
export type Refusal = (typeof REFUSALS)[number]

interface AnswerOf {
  readonly from: string
  readonly to: string
  /** That of the question. */
  readonly counter: number
}

export type BindAnswer = AnswerOf &
  (
    | { readonly type: 'challenge'; readonly cookie: Buffer }
    /** The pair has this port. The end binds by asking again, there. */
    | { readonly type: 'assigned'; readonly port: number }
    | {
        readonly type: 'bound'
        readonly port: number
        readonly seen: AddressPort
        /** Absent: it is not bound. */
        readonly far?: SeenFarEnd
        readonly lifeMs: number
        /** For the next question: the old one ends with the relay's secret. */
        readonly cookie: Buffer
      }
    /** `port`: the one that the pair has; 0 if it has none. */
    | { readonly type: 'refused'; readonly why: Refusal; readonly port: number; readonly newest: number }
  )

const TYPES = { question: 1, challenge: 2, assigned: 3, bound: 4, refused: 5 } as const

/** The name of an end in messages, in hexadecimal. Another clusterset has other names for the same identity. */
export function endId(clusterset: string, identity: string): string {
  const hash = createHash('sha256').update('sealane end 1\0').update(lengthPrefixed(clusterset, identity))
  return hash.digest('hex').slice(0, 2 * ID_BYTES)
}

export interface BindKeyInit {
  /** What the identities of this end and of the relay agree on (X25519). */
  readonly secret: Buffer
  readonly clusterset: string
  /** Identity of the relay. */
  readonly relay: string
  /** Identity of the end. */
  readonly end: string
}

/** This node as it proves itself to relays. */
export interface OwnEnd {
  readonly clusterset: string
  readonly identity: string
  readonly agree: Agreement
}

/** The key of an end and a relay for MACs. Both compute the same one. It serves for nothing else (RFC 5869). */
export function bindKey({ secret, clusterset, relay, end }: BindKeyInit): Buffer {
  const info = Buffer.concat([Buffer.from('sealane relay 1\0'), lengthPrefixed(relay, end)])
  return Buffer.from(hkdfSync('sha256', secret, clusterset, info, 32))
}

/** So that no two lists of texts have the same octets. */
export function lengthPrefixed(...texts: readonly string[]): Buffer {
  const parts = texts.flatMap((text) => {
    const bytes = Buffer.from(text)
    const length = Buffer.alloc(2)
    length.writeUInt16BE(bytes.length)
    return [length, bytes]
  })
  return Buffer.concat(parts)
}

export function encodeQuestion({ from, to, counter, cookie, mapping }: BindQuestion, key: Buffer): Buffer {
  const bytes = Buffer.alloc(QUESTION_BYTES)
  writeHead(bytes, TYPES.question, { from, to, counter })
  bytes.writeUInt8(MAPPINGS.indexOf(mapping), 5)
  cookie.copy(bytes, 32)
  return withMac(bytes, key)
}

/**
 * The ends that octets name, before anything is proven: the relay chooses the key by them. Undefined unless the octets
 * have the form of a question. Never throws.
 */
export function namedEnds(bytes: Buffer): Pick<BindQuestion, 'from' | 'to'> | undefined {
  return isOfType(bytes, QUESTION_BYTES, TYPES.question) ? endsOf(bytes) : undefined
}

/** Returns undefined unless the octets are a well-formed question with the MAC of this key. Never throws. */
export function decodeQuestion(bytes: Buffer, key: Buffer): BindQuestion | undefined {
  if (!isOfType(bytes, QUESTION_BYTES, TYPES.question) || !hasMac(bytes, key)) return undefined
  const counter = counterAt(bytes, 24)
  const mapping = MAPPINGS[bytes.readUInt8(5)]
  const isPadded = isZero(bytes, 6, 8) && isZero(bytes, 48, 72)
  if (counter === undefined || mapping === undefined || !isPadded) return undefined
  return { ...endsOf(bytes), counter, cookie: cookieAt(bytes), mapping }
}

export function encodeAnswer(answer: BindAnswer, key: Buffer): Buffer {
  const bytes = Buffer.alloc(ANSWER_BYTES)
  writeHead(bytes, TYPES[answer.type], answer)
  if ('port' in answer) bytes.writeUInt16BE(answer.port, 6)
  switch (answer.type) {
    case 'challenge':
      answer.cookie.copy(bytes, 32)
      break
    case 'assigned':
      break
    case 'bound':
      answer.cookie.copy(bytes, 32)
      writePlace(bytes, answer.seen, 48)
      bytes.writeUInt32BE(answer.lifeMs, 60)
      if (answer.far === undefined) break
      writePlace(bytes, answer.far.at, 54)
      bytes.writeUInt32BE(Math.min(answer.far.sharedMs ?? LONGEST_SHARED_MS, LONGEST_SHARED_MS), 64)
      bytes.writeUInt8(MAPPINGS.indexOf(answer.far.mapping), 68)
      break
    case 'refused':
      bytes.writeUInt8(REFUSALS.indexOf(answer.why), 5)
      bytes.writeBigUInt64BE(BigInt(answer.newest), 32)
  }
  return withMac(bytes, key)
}

/** The question that octets name as theirs, before anything is proven. Undefined unless they have an answer's form. */
export function namedQuestion(bytes: Buffer): AnswerOf | undefined {
  if (!isAnswer(bytes)) return undefined
  const counter = counterAt(bytes, 24)
  return counter === undefined ? undefined : { ...endsOf(bytes), counter }
}

/** Returns undefined unless the octets are a well-formed answer with the MAC of this key. Never throws. */
export function decodeAnswer(bytes: Buffer, key: Buffer): BindAnswer | undefined {
  if (!isAnswer(bytes) || !hasMac(bytes, key)) return undefined
  const counter = counterAt(bytes, 24)
  if (counter === undefined) return undefined
  const head = { ...endsOf(bytes), counter }
  const port = bytes.readUInt16BE(6)
  switch (bytes.readUInt8(4)) {
    case TYPES.challenge:
      return { ...head, type: 'challenge', cookie: cookieAt(bytes) }
    case TYPES.assigned:
      return port === 0 ? undefined : { ...head, type: 'assigned', port }
    case TYPES.bound: {
      const [seen, lifeMs] = [placeAt(bytes, 48), bytes.readUInt32BE(60)]
      const far = farEndAt(bytes)
      if (port === 0 || seen === undefined || lifeMs === 0) return undefined
      return { ...head, type: 'bound', port, seen, ...(far && { far }), lifeMs, cookie: cookieAt(bytes) }
    }
    case TYPES.refused: {
      const why = REFUSALS[bytes.readUInt8(5)]
      const newest = counterAt(bytes, 32)
      return why === undefined || newest === undefined ? undefined : { ...head, type: 'refused', why, port, newest }
    }
    default:
      return undefined
  }
}

/** Writes 6 octets. */
export function writePlace(bytes: Buffer, { address, port }: AddressPort, offset: number): void {
  bytes.writeUInt32BE((Number(address.value) ^ BIND_MAGIC) >>> 0, offset)
  bytes.writeUInt16BE(port ^ (BIND_MAGIC >>> 16), offset + 4)
}

/** Undefined for octets that are all zero, and for a port that nothing can have. */
export function placeAt(bytes: Buffer, offset: number): AddressPort | undefined {
  if (bytes.readUIntBE(offset, 6) === 0) return undefined
  const value = BigInt((bytes.readUInt32BE(offset) ^ BIND_MAGIC) >>> 0)
  const port = bytes.readUInt16BE(offset + 4) ^ (BIND_MAGIC >>> 16)
  return port === 0 ? undefined : { address: { family: 4, value }, port }
}

function farEndAt(bytes: Buffer): SeenFarEnd | undefined {
  const [at, mapping] = [placeAt(bytes, 54), MAPPINGS[bytes.readUInt8(68)]]
  if (at === undefined) return undefined
  const ms = bytes.readUInt32BE(64)
  return { at, mapping: mapping ?? 'unknown', sharedMs: ms === LONGEST_SHARED_MS ? undefined : ms }
}

/** Writes what all messages begin with. */
export function writeHead(bytes: Buffer, type: number, { from, to, counter }: AnswerOf, magic = BIND_MAGIC): void {
  bytes.writeUInt32BE(magic, 0)
  bytes.writeUInt8(type, 4)
  bytes.write(from, 8, ID_BYTES, 'hex')
  bytes.write(to, 16, ID_BYTES, 'hex')
  bytes.writeBigUInt64BE(BigInt(counter), 24)
}

/** Whether octets have the form of a question, before anything is proven. */
export function isOfType(bytes: Buffer, length: number, type: number): boolean {
  return bytes.length === length && bytes.readUInt32BE(0) === BIND_MAGIC && bytes.readUInt8(4) === type
}

/** The same for an answer of any type. */
export function isAnswer(bytes: Buffer): boolean {
  return bytes.length === ANSWER_BYTES && bytes.readUInt32BE(0) === BIND_MAGIC
}

/** The name of a message's type in this table. Undefined: it has none. */
export function typeAt<T extends string>(bytes: Buffer, types: Readonly<Record<T, number>>): T | undefined {
  return (Object.keys(types) as T[]).find((name) => types[name] === bytes.readUInt8(4))
}

/** Whether these octets, without the last one of the range, are zero. */
export function isZero(bytes: Buffer, from: number, to: number): boolean {
  return bytes.subarray(from, to).every((octet) => octet === 0)
}

/** The names of the two ends in octets that are long enough. */
export function endsOf(bytes: Buffer): Pick<BindQuestion, 'from' | 'to'> {
  return { from: bytes.toString('hex', 8, 16), to: bytes.toString('hex', 16, 24) }
}

/** A copy: the buffer of a received packet may be used again. All questions have it there. */
export function cookieAt(bytes: Buffer): Buffer {
  return Buffer.from(bytes.subarray(32, 32 + COOKIE_BYTES))
}

/** Undefined for a number that is not exact as a JavaScript number. */
export function counterAt(bytes: Buffer, offset: number): number | undefined {
  const value = bytes.readBigUInt64BE(offset)
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : undefined
}

/** Writes the MAC over all octets before it, and returns the same buffer. */
export function withMac(bytes: Buffer, key: Buffer): Buffer {
  macOf(bytes, key).copy(bytes, bytes.length - MAC_BYTES)
  return bytes
}

export function hasMac(bytes: Buffer, key: Buffer): boolean {
  return timingSafeEqual(macOf(bytes, key), bytes.subarray(bytes.length - MAC_BYTES))
}

function macOf(bytes: Buffer, key: Buffer): Buffer {
  const mac = createHmac('sha256', key).update(bytes.subarray(0, bytes.length - MAC_BYTES))
  return mac.digest().subarray(0, MAC_BYTES)
}
