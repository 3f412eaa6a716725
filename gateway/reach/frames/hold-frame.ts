/**
 * The messages that measure for how long the NAT in front of a gateway keeps a mapping without packets: an end asks a
 * relay to answer once more, later, and sends nothing meanwhile. Each travels between a port of the end that has no
 * other use and the control port of the relay.
 *
 *   question (176 octets):  0 magic "SLR1" │ 4 type │ 5 zero, 3 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8 │ 32 cookie, 16
 *                          48 wait in ms, 4 │ 52 zero, 108 │ 160 MAC, 16
 *   answer (88 octets):     0 magic "SLR1" │ 4 type │ 5 zero, 3 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8
 *                          32 wait in ms, 4 │ 36 place at which the end is seen, 6 │ 42 zero, 6
 *                          48 greatest counter, 8 (zero unless stale) │ 56 zero, 16 │ 72 MAC, 16
 *
 * A question gets two answers at most, `held` at once and `late` after the wait, so it is as long as both: a relay never
 * sends more than it receives. `from` is endId() of the end, `to` that of the relay. A question without a valid cookie
 * gets the challenge of bind-frame.ts. First word, numbers, places, MAC and key are as there. Relays of earlier releases
 * do not know the type of the question, and are silent.
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

export const HOLD_QUESTION_BYTES = 2 * ANSWER_BYTES
/** The waits that a relay accepts, in milliseconds. */
export const HOLD_WAITS_MS = { least: 1000, most: 125_000 } as const
const QUESTION_TYPE = 8
const ANSWER_TYPES = { held: 9, late: 10, full: 11, stale: 12 } as const
const NEWEST_AT = 48
const [COOKIE_AT, WAIT_AT, PADDED_AT] = [32, 48, 52]

/** Asks for one answer at once, and one after the wait. */
export interface HoldQuestion {
  /** endId() of the end that asks. */
  readonly from: string
  /** endId() of the relay. */
  readonly to: string
  /** Each question has a greater one than all before, also after a restart of the process. */
  readonly counter: number
  /** From the last challenge of this relay to this port; NO_COOKIE before the first. */
  readonly cookie: Buffer
  /** One of HOLD_WAITS_MS. */
  readonly waitMs: number
}

/**
 * Held: there will be an answer after the wait. Late: that answer. Full: there will be none. Stale: nor here, because the
 * relay has had a greater counter, as after the clock of the end went back.
 */
export interface HoldAnswer extends Pick<HoldQuestion, 'from' | 'to' | 'counter' | 'waitMs'> {
  readonly type: keyof typeof ANSWER_TYPES
  /** Where the relay sees the end. */
  readonly seen: AddressPort
  /** The greatest counter that the relay has had. Only with `stale`. */
  readonly newest?: number
}

export function encodeHold({ from, to, counter, cookie, waitMs }: HoldQuestion, key: Buffer): Buffer {
  const bytes = Buffer.alloc(HOLD_QUESTION_BYTES)
  writeHead(bytes, QUESTION_TYPE, { from, to, counter })
  cookie.copy(bytes, COOKIE_AT)
  bytes.writeUInt32BE(waitMs, WAIT_AT)
  return withMac(bytes, key)
}

/** The ends that octets name, before anything is proven. Undefined unless they have the form of a question. */
export function namedHold(bytes: Buffer): Pick<BindQuestion, 'from' | 'to'> | undefined {
  return isOfType(bytes, HOLD_QUESTION_BYTES, QUESTION_TYPE) ? endsOf(bytes) : undefined
}

/** Returns undefined unless the octets are a well-formed question with the MAC of this key. Never throws. */
export function decodeHold(bytes: Buffer, key: Buffer): HoldQuestion | undefined {
  const ends = namedHold(bytes)
  if (ends === undefined || !hasMac(bytes, key)) return undefined
  const [counter, waitMs] = [counterAt(bytes, 24), bytes.readUInt32BE(WAIT_AT)]
  const isWait = waitMs >= HOLD_WAITS_MS.least && waitMs <= HOLD_WAITS_MS.most
  const isPadded = isZero(bytes, 5, 8) && isZero(bytes, PADDED_AT, HOLD_QUESTION_BYTES - MAC_BYTES)
  if (counter === undefined || !isWait || !isPadded) return undefined
  return { ...ends, counter, cookie: cookieAt(bytes), waitMs }
}

export function encodeHoldAnswer({ type, seen, waitMs, newest = 0, ...head }: HoldAnswer, key: Buffer): Buffer {
  const bytes = Buffer.alloc(ANSWER_BYTES)
  writeHead(bytes, ANSWER_TYPES[type], head)
  bytes.writeUInt32BE(waitMs, 32)
  writePlace(bytes, seen, 36)
  bytes.writeBigUInt64BE(BigInt(newest), NEWEST_AT)
  return withMac(bytes, key)
}

/** Returns undefined unless the octets are a well-formed answer with the MAC of this key. Never throws. */
export function decodeHoldAnswer(bytes: Buffer, key: Buffer): HoldAnswer | undefined {
  if (!isAnswer(bytes) || !hasMac(bytes, key)) return undefined
  const type = typeAt(bytes, ANSWER_TYPES)
  const [counter, newest, seen] = [counterAt(bytes, 24), counterAt(bytes, NEWEST_AT), placeAt(bytes, 36)]
  const isPadded = isZero(bytes, 5, 8) && isZero(bytes, 42, NEWEST_AT) && isZero(bytes, 56, ANSWER_BYTES - MAC_BYTES)
  if (type === undefined || counter === undefined || newest === undefined || seen === undefined) return undefined
  if (!isPadded || (type !== 'stale' && newest !== 0)) return undefined
  const answer = { type, ...endsOf(bytes), counter, waitMs: bytes.readUInt32BE(32), seen }
  return type === 'stale' ? { ...answer, newest } : answer
}
