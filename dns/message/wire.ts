/** Definitions of the DNS message format that are shared by reading queries and writing answers: RFC 1035, RFC 6891. */

export const HEADER_LENGTH = 12
export const MAX_NAME_OCTETS = 255

/** RFC 1035, RFC 3596 and RFC 2782. */
export const TYPE_A = 1
export const TYPE_NS = 2
export const TYPE_SOA = 6
export const TYPE_TXT = 16
export const TYPE_AAAA = 28
export const TYPE_SRV = 33
export const TYPE_ANY = 255
/** RFC 6891. */
export const TYPE_OPT = 41

export const CLASS_IN = 1

/** RFC 1035 section 4.1.1 and RFC 6891 section 9. */
export const RCODE = {
  noError: 0,
  formErr: 1,
  servFail: 2,
  nxDomain: 3,
  notImp: 4,
  refused: 5,
  badVers: 16,
} as const

/** The size that every client accepts over UDP. RFC 1035 section 4.2.1. */
export const MIN_UDP_SIZE = 512
/**
 * Fits any path without fragments (DNS Flag Day 2020). Larger answers are not sent over UDP, and EDNS announces this
 * size.
 */
export const MAX_UDP_SIZE = 1232
export const MAX_TCP_SIZE = 65_535

export type Transport = 'udp' | 'tcp'

/** The part of an answer after the question, as bytes. */
export interface CompiledAnswer {
  readonly rcode: number
  /** Answer, authority and additional section in this order. */
  readonly body: Uint8Array
  /** End of each answer record in `body`. */
  readonly answerEnds: readonly number[]
  readonly authorityCount: number
  /** Start of the additional section in `body`. */
  readonly mainEnd: number
  readonly additionalCount: number
  /** Length of each answer record if their order may be rotated; else 0. */
  readonly stride: number
  /** True if records were left out because no answer has room for them. TC reports this, over TCP too. */
  readonly isCut: boolean
  /** Offset in `body` of the serial of the SOA record, which is set when the answer is sent; else -1. */
  readonly serialAt: number
}

/** Returns 0 past the end. Callers check lengths where it matters. */
export function byte(message: Uint8Array, at: number): number {
  return message[at] ?? 0
}

export function uint16(message: Uint8Array, at: number): number {
  return (byte(message, at) << 8) | byte(message, at + 1)
}
