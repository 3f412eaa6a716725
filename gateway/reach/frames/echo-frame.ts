/**
 * The messages that measure whom the NAT in front of a gateway lets in (RFC 4787 section 5), and whether it drops packets
 * that follow each other closely: an end asks a relay to answer at once, and once more from another port, or to another
 * port of the end's address.
 *
 *   question (176 octets):  0 magic "SLR1" │ 4 type │ 5 zero, 3 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8 │ 32 cookie, 16
 *                          48 way, 1 │ 49 zero │ 50 place, 6 │ 56 zero, 104 │ 160 MAC, 16
 *   answer (88 octets):     0 magic "SLR1" │ 4 type │ 5 zero, 3 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8
 *                          32 place at which the end is seen, 6 │ 38 zero, 34 │ 72 MAC, 16
 *
 * A question gets two answers at most, so it is as long as both: a relay never sends more than it receives. The second
 * one goes to the address from which the question came, and to no other one, whatever its place says. `from` is endId() of
 * the end, `to` that of the relay. A question without a valid cookie gets the challenge of bind-frame.ts. First word,
 * numbers, places, MAC and key are as there. Relays of earlier releases do not know the type of the question, and are
 * silent.
 */
import type { AddressPort } from '../../../model/addresses/addresses.ts'
import {
  ANSWER_BYTES,
  type BindQuestion,
  MAC_BYTES,
  cookieAt,
  counterAt,
  endsOf,
  hasMac,
  isAnswer,
  isOfType,
  isZero,
  placeAt,
  typeAt,
  withMac,
  writeHead,
  writePlace,
} from './bind-frame.ts'

export const ECHO_QUESTION_BYTES = 2 * ANSWER_BYTES
const QUESTION_TYPE = 13
const ANSWER_TYPES = { echo: 14, second: 15, single: 16 } as const
const [COOKIE_AT, WAY_AT, PLACE_AT] = [32, 48, 50]

/**
 * How the second answer is to come. None: there is to be no second one. Port: from another port of the relay. Place: from
 * the control port, to another port of the end. The order is that of the codes on the wire.
 */
export const ECHO_WAYS = ['none', 'port', 'place'] as const
export type EchoWay = (typeof ECHO_WAYS)[number]

export interface EchoQuestion extends Pick<BindQuestion, 'from' | 'to' | 'counter' | 'cookie'> {
  readonly way: EchoWay
  /** Where another port of the end is seen. Only with the way `place`. */
  readonly place?: AddressPort
}

/** Echo: the answer at once. Second: the other one. Single: the answer at once, and there is no second one. */
export interface EchoAnswer extends Pick<BindQuestion, 'from' | 'to' | 'counter'> {
  readonly type: keyof typeof ANSWER_TYPES
  /** Where the relay sees the end that has asked. */
  readonly seen: AddressPort
}

export function encodeEcho({ cookie, way, place, ...head }: EchoQuestion, key: Buffer): Buffer {
  const bytes = Buffer.alloc(ECHO_QUESTION_BYTES)
  writeHead(bytes, QUESTION_TYPE, head)
  cookie.copy(bytes, COOKIE_AT)
  bytes.writeUInt8(ECHO_WAYS.indexOf(way), WAY_AT)
  if (place !== undefined) writePlace(bytes, place, PLACE_AT)
  return withMac(bytes, key)
}

/** The ends that octets name, before anything is proven. Undefined unless they have the form of a question. */
export function namedEcho(bytes: Buffer): Pick<BindQuestion, 'from' | 'to'> | undefined {
  return isOfType(bytes, ECHO_QUESTION_BYTES, QUESTION_TYPE) ? endsOf(bytes) : undefined
}

/** Returns undefined unless the octets are a well-formed question with the MAC of this key. Never throws. */
export function decodeEcho(bytes: Buffer, key: Buffer): EchoQuestion | undefined {
  const ends = namedEcho(bytes)
  if (ends === undefined || !hasMac(bytes, key)) return undefined
  const [counter, way, place] = [counterAt(bytes, 24), ECHO_WAYS[bytes.readUInt8(WAY_AT)], placeAt(bytes, PLACE_AT)]
  const isPadded = isZero(bytes, 5, 8) && isZero(bytes, 49, PLACE_AT) && isZero(bytes, 56, 160)
  if (counter === undefined || way === undefined || !isPadded) return undefined
  // The octets of a place that is no place are not zero.
  if ((way === 'place') !== (place !== undefined) || (way !== 'place' && !isZero(bytes, PLACE_AT, 56))) return undefined
  return { ...ends, counter, cookie: cookieAt(bytes), way, ...(place === undefined ? {} : { place }) }
}

export function encodeEchoAnswer({ type, seen, ...head }: EchoAnswer, key: Buffer): Buffer {
  const bytes = Buffer.alloc(ANSWER_BYTES)
  writeHead(bytes, ANSWER_TYPES[type], head)
  writePlace(bytes, seen, 32)
  return withMac(bytes, key)
}

/** Returns undefined unless the octets are a well-formed answer with the MAC of this key. Never throws. */
export function decodeEchoAnswer(bytes: Buffer, key: Buffer): EchoAnswer | undefined {
  if (!isAnswer(bytes) || !hasMac(bytes, key)) return undefined
  const type = typeAt(bytes, ANSWER_TYPES)
  const [counter, seen] = [counterAt(bytes, 24), placeAt(bytes, 32)]
  const isPadded = isZero(bytes, 5, 8) && isZero(bytes, 38, ANSWER_BYTES - MAC_BYTES)
  if (type === undefined || counter === undefined || seen === undefined || !isPadded) return undefined
  return { type, ...endsOf(bytes), counter, seen }
}
