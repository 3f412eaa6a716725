/** What both who reads a query and who makes an answer know of DNS messages: RFC 1035, RFC 6891. */

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

/** RFC 1035 section 4.2.1: what every client takes over UDP. */
export const MIN_UDP_SIZE = 512
/** What fits any path without fragments (DNS Flag Day 2020); we answer no larger over UDP and say so in EDNS. */
export const MAX_UDP_SIZE = 1232
export const MAX_TCP_SIZE = 65_535

export type Transport = 'udp' | 'tcp'

/** What follows the question of an answer, as bytes. */
export interface CompiledAnswer {
  readonly rcode: number
  /** Answer, authority and additional section in this order. */
  readonly body: Uint8Array
  /** End of each answer record in `body`. */
  readonly answerEnds: readonly number[]
  readonly authorityCount: number
  /** Where the additional section starts in `body`. */
  readonly mainEnd: number
  readonly additionalCount: number
  /** Length of every answer record where they may be turned round; else 0. */
  readonly stride: number
  /** Records were left out that no answer has room for: TC says so, over TCP too. */
  readonly isCut: boolean
  /** Where in `body` the SOA's serial is, patched when sent; else -1. */
  readonly serialAt: number
}

/** 0 past the end: callers check lengths where it matters. */
export function byte(message: Uint8Array, at: number): number {
  return message[at] ?? 0
}

export function uint16(message: Uint8Array, at: number): number {
  return (byte(message, at) << 8) | byte(message, at + 1)
}
