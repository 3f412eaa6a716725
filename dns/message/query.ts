/**
 * Parses a DNS query: header, one question, EDNS. It is written for the hot path: it reuses one object for every
 * packet, copies nothing and never throws, whatever the bytes are. RFC 1035, RFC 6891.
 */
import { CLASS_IN, HEADER_LENGTH, MAX_NAME_OCTETS, MIN_UDP_SIZE, TYPE_A, TYPE_OPT, byte, uint16 } from './wire.ts'

/** RFC 8945. */
const TYPE_TSIG = 250
const MAX_ADDITIONAL_RECORDS = 16

/**
 * `ignored`: not a query, or too short to answer. `ok`: a question of class IN, and the fields of QueryReader are
 * valid. Otherwise: answer with that code.
 */
export type QueryOutcome = 'ok' | 'ignored' | 'formErr' | 'notImp' | 'badVers' | 'refused'

export class QueryReader {
  /** Offset after the question. The end of the header until a whole question has been read. */
  questionEnd = HEADER_LENGTH
  type = TYPE_A
  hasEdns = false
  /** DNSSEC OK flag, copied to the answer, RFC 3225. */
  dnssecOk = false
  /** UDP payload size that the client accepts: at least 512, and 512 without EDNS. */
  clientSize = MIN_UDP_SIZE
  /** Offset of that size; 0 without EDNS. */
  sizeAt = 0
  #class = CLASS_IN
  #ednsVersion = 0

  read(query: Uint8Array): QueryOutcome {
    this.questionEnd = HEADER_LENGTH
    this.hasEdns = false
    this.#ednsVersion = 0
    this.dnssecOk = false
    this.clientSize = MIN_UDP_SIZE
    this.sizeAt = 0
    this.type = 0
    if (query.length < HEADER_LENGTH) return 'ignored'
    const flags = byte(query, 2)
    // Responses are never answered: two servers could otherwise answer each other for ever.
    if ((flags & 0x80) !== 0) return 'ignored'
    if ((flags & 0x78) !== 0) return 'notImp'
    if (uint16(query, 4) !== 1 || uint16(query, 6) !== 0 || uint16(query, 8) !== 0) return 'formErr'
    if (!this.#readQuestion(query) || !this.#readAdditional(query, uint16(query, 10))) return 'formErr'
    if (this.#ednsVersion !== 0) return 'badVers'
    return this.#class === CLASS_IN ? 'ok' : 'refused'
  }

  #readQuestion(query: Uint8Array): boolean {
    let at = HEADER_LENGTH
    for (;;) {
      const length = byte(query, at)
      if (length === 0) break
      // Also refuses compression, since the first name has nothing to point to.
      if (length > 63) return false
      at += length + 1
      if (at >= query.length) return false
    }
    if (at + 5 > query.length || at + 1 - HEADER_LENGTH > MAX_NAME_OCTETS) return false
    this.type = uint16(query, at + 1)
    this.#class = uint16(query, at + 3)
    this.questionEnd = at + 5
    return this.type !== TYPE_OPT
  }

  #readAdditional(query: Uint8Array, count: number): boolean {
    if (count > MAX_ADDITIONAL_RECORDS) return false
    let at = this.questionEnd
    for (let i = 0; i < count; i += 1) {
      const name = skipName(query, at)
      if (name < 0 || name + 10 > query.length) return false
      const next = name + 10 + uint16(query, name + 8)
      if (next > query.length) return false
      const type = uint16(query, name)
      // RFC 8945: no client shares a key with this server, so no signature can be valid.
      if (type === TYPE_TSIG) return false
      if (type === TYPE_OPT) {
        if (this.hasEdns || name !== at + 1 || !areOptions(query, name + 10, next)) return false
        this.hasEdns = true
        this.sizeAt = name + 2
        this.clientSize = Math.max(MIN_UDP_SIZE, uint16(query, name + 2))
        this.#ednsVersion = byte(query, name + 5)
        this.dnssecOk = (byte(query, name + 6) & 0x80) !== 0
      }
      at = next
    }
    return at === query.length
  }
}

/** RFC 6891 section 6.1.2: options, each a code, a length and that many octets, must fill the record exactly. */
function areOptions(query: Uint8Array, start: number, end: number): boolean {
  let at = start
  while (at + 4 <= end) at += 4 + uint16(query, at + 2)
  return at === end
}

/** Returns the offset after the name at `at`, or -1. Skips pointers without following them. */
function skipName(message: Uint8Array, at: number): number {
  for (let here = at; here < message.length;) {
    const length = byte(message, here)
    if (length === 0) return here + 1
    if (length >= 0xc0) return here + 2
    if (length > 63) return -1
    here += length + 1
  }
  return -1
}

/**
 * Returns the name of a parsed question as text: lower case, absolute, with each octet that is not a letter, a digit,
 * '-' or '_' as `\ddd`.
 */
export function questionName(query: Uint8Array): string {
  let text = ''
  let at = HEADER_LENGTH
  for (let length = byte(query, at); length !== 0; length = byte(query, at)) {
    for (let i = at + 1; i <= at + length; i += 1) text += characterText(byte(query, i))
    text += '.'
    at += length + 1
  }
  return text === '' ? '.' : text
}

function characterText(octet: number): string {
  if (octet >= 0x41 && octet <= 0x5a) return String.fromCharCode(octet + 0x20)
  const plain = (octet >= 0x61 && octet <= 0x7a) || (octet >= 0x30 && octet <= 0x39) || octet === 0x2d || octet === 0x5f
  return plain ? String.fromCharCode(octet) : `\\${String(octet).padStart(3, '0')}`
}

/** True if two messages, whose questions have the same length, have the same question, ignoring letter case. */
export function sameQuestion(a: Uint8Array, b: Uint8Array, questionEnd: number): boolean {
  if (b.length < questionEnd || uint16(b, 4) !== 1) return false
  const nameEnd = questionEnd - 4
  for (let i = HEADER_LENGTH; i < nameEnd; i += 1) if (lower(byte(a, i)) !== lower(byte(b, i))) return false
  return uint16(a, nameEnd) === uint16(b, nameEnd) && uint16(a, nameEnd + 2) === uint16(b, nameEnd + 2)
}

function lower(octet: number): number {
  return octet >= 0x41 && octet <= 0x5a ? octet + 0x20 : octet
}
