/**
 * Response rate limiting for strangers over UDP, as BIND, Knot and NSD have it: answers that are alike, to one /24 or
 * /56, are counted together, since who forges senders asks the same again and again. Of those above the limit every
 * second is cut to its header and question: a client that is there comes back over TCP, and nothing is amplified.
 */
import type { Client } from './clients.ts'
import { TokenBuckets, mixed } from './token-buckets.ts'
import { HEADER_LENGTH, RCODE, byte } from '../wire.ts'

/** Equal answers a second: a caching resolver asks for a name once in 5 s, our time to live. */
const ALIKE_PER_SECOND = 100
/** All answers a second to one network, whatever they are. */
const ALL_PER_SECOND = 2000
/** About 130 KiB each. */
const COUNTED_PLACES = 8192

export class ResponseLimit {
  readonly #alike = new TokenBuckets({ places: COUNTED_PLACES, perSecond: ALIKE_PER_SECOND, burst: ALIKE_PER_SECOND })
  readonly #all = new TokenBuckets({ places: COUNTED_PLACES, perSecond: ALL_PER_SECOND, burst: ALL_PER_SECOND })
  #held = 0

  /**
   * Whether the answer may go to the client. `questionEnd`: octet after the question; `code`: the response code.
   * Names that are not there, and errors, are alike whatever the name: it may be made up.
   */
  admit(answer: Uint8Array, questionEnd: number, client: Client, nowMs: number): 'send' | 'cut' | 'drop' {
    const code = byte(answer, 3) & 0x0f
    const asked = code === RCODE.noError ? questionHash(answer, questionEnd) : 0
    const isFree = this.#alike.take(mixed(client.network, code, asked, 0), nowMs)
    if (this.#all.take(client.network, nowMs) && isFree) return 'send'
    this.#held += 1
    return this.#held % 2 === 0 ? 'cut' : 'drop'
  }
}

/** Of name, type and class; letters count alike in either case. */
function questionHash(message: Uint8Array, questionEnd: number): number {
  let hash = 0
  for (let at = HEADER_LENGTH; at < questionEnd; at += 1) {
    const octet = byte(message, at)
    hash = (Math.imul(hash, 31) + (octet >= 0x41 && octet <= 0x5a ? octet + 0x20 : octet)) | 0
  }
  return hash
}
