/**
 * Who asks, as far as an answer depends on it: whether it is of this site, and what it is counted with. Every packet is
 * looked up here, so what was found is kept by the numbers of the address, in a table that does not grow.
 */
import {
  type Address,
  type LabelledPrefix,
  type Prefix,
  addressBits,
  meantPrefixes,
  parseAddress,
  parsePrefix,
  prefixOf,
  prefixSize,
} from '../../model/addresses/addresses.ts'
import { LANE_ADDRESS_RANGE } from '../../model/model.ts'
import { HEADER_LENGTH, RCODE, byte } from '../message/message.ts'
import { TokenBuckets, mixed } from './client-limits.ts'

export { Places, TokenBuckets, textHash } from './client-limits.ts'

export interface Client {
  /**
   * Of this site: its pods, nodes and the networks of this machine. Names outside the zone are forwarded for it, and
   * its answers are not limited.
   */
  readonly isOwn: boolean
  /** What is counted together: an IPv4 address, or an IPv6 /64, since one machine has all of that. */
  readonly key: string
  /** Number of its /24 or /56: what one sender of forged packets aims at. */
  readonly network: number
}

/** This process itself. */
export const OWN_PROCESS: Client = { isOwn: true, key: 'own', network: 0 }
/** Without an address: a connection that has gone. */
const NOBODY: Client = { isOwn: false, key: '', network: 0 }

/** What the site is made of besides this machine. service-index.ts is one. */
export interface SiteNetworks {
  /** Another number each time that the other two have changed. */
  readonly networksVersion: number
  /** Addresses of this cluster's nodes. */
  readonly nodeAddresses: readonly string[]
  /** What comes by the lanes: prefixes of the other clusters, as they are seen here. */
  readonly lanePrefixes: readonly Prefix[]
}

export interface ClientsInit {
  readonly site: SiteNetworks
  /** CIDRs that the site file names as its own. */
  readonly networks: readonly string[]
  /** CIDRs of this machine's interfaces; read each time that the networks are put together. */
  readonly interfaces: () => readonly string[]
}

const ALWAYS_OWN = ['127.0.0.0/8', '::1/128', 'fe80::/10']
/** A power of two. */
const PLACES = 4096
const WORDS = 4
/** An IPv4 address among the numbers of an IPv6 one. RFC 4291 section 2.5.5.2. */
const MAPPED = 0xffff
const WORD_BITS = 32n
const WORD_MASK = 0xffff_ffffn

export class Clients {
  readonly #init: ClientsInit
  readonly #words = new Uint32Array(PLACES * WORDS)
  readonly #found: (Client | undefined)[] = Array.from({ length: PLACES })
  readonly #byText = new Map<string, Client>()
  #own: readonly Span[] = []
  #version: number | undefined
  #interfaces = ''

  constructor(init: ClientsInit) {
    this.#init = init
  }

  /** `words`: four numbers of 32 bits, an IPv4 address as ::ffff:a.b.c.d. */
  ofWords(words: Uint32Array): Client {
    if (this.#version !== this.#init.site.networksVersion) this.#putTogether()
    const place = mixed(words[0] ?? 0, words[1] ?? 0, words[2] ?? 0, words[3] ?? 0) & (PLACES - 1)
    const at = place * WORDS
    const kept = this.#found[place]
    const known = this.#words
    if (
      kept !== undefined &&
      known[at] === words[0] &&
      known[at + 1] === words[1] &&
      known[at + 2] === words[2] &&
      known[at + 3] === words[3]
    ) {
      return kept
    }
    const client = this.#look(words)
    known.set(words, at)
    this.#found[place] = client
    return client
  }

  /** `address` as Node's sockets write it, with or without the interface of a link. */
  ofText(address: string): Client {
    if (this.#version !== this.#init.site.networksVersion) this.#putTogether()
    const known = this.#byText.get(address)
    if (known !== undefined) return known
    const [bare = ''] = address.split('%')
    if (bare === '') return NOBODY
    const client = this.#look(wordsOf(parseAddress(bare)))
    if (this.#byText.size >= PLACES) this.#byText.clear()
    this.#byText.set(address, client)
    return client
  }

  /** Looks whether this machine has other networks than before. Called at an interval. */
  lookAgain(): void {
    if (this.#init.interfaces().join() !== this.#interfaces) this.#version = undefined
  }

  #putTogether(): void {
    const { site, networks, interfaces } = this.#init
    const machine = interfaces()
    const lane = (prefix: Prefix): LabelledPrefix => ({ prefix, meant: false })
    const own = (prefix: Prefix): LabelledPrefix => ({ prefix, meant: true })
    this.#own = spansOf(
      meantPrefixes([
        ...[...[...ALWAYS_OWN, ...networks].map((text) => parsePrefix(text)), ...machine.map(networkOf)].map(own),
        // Of two that are equal the last counts: what the lanes carry, then the nodes, which no lane leads to.
        ...[...site.lanePrefixes, parsePrefix(LANE_ADDRESS_RANGE)].map(lane),
        ...site.nodeAddresses.map((address) => own(hostPrefix(address))),
      ]),
    )
    this.#interfaces = machine.join()
    this.#version = site.networksVersion
    this.#found.fill(undefined)
    this.#byText.clear()
  }

  #look(words: Uint32Array): Client {
    const [a = 0, b = 0, c = 0, d = 0] = words
    const isIpv4 = a === 0 && b === 0 && c === MAPPED
    const isOwn = isWithin(this.#own, isIpv4 ? BigInt(d) : valueOf(words), isIpv4 ? 4 : 6)
    if (isIpv4) return { isOwn, key: String(d), network: mixed(0, 0, MAPPED, d & 0xffff_ff00) }
    return { isOwn, key: `${a.toString(16)}:${b.toString(16)}`, network: mixed(a, b & 0xffff_ff00, 0, 0) }
  }
}

/** Four numbers of 32 bits. */
export function wordsOf({ family, value }: Address): Uint32Array {
  if (family === 4) return Uint32Array.of(0, 0, MAPPED, Number(value))
  return Uint32Array.from([3n, 2n, 1n, 0n], (word) => Number((value >> (word * WORD_BITS)) & WORD_MASK))
}

function valueOf(words: Uint32Array): bigint {
  return words.reduce((value, word) => (value << WORD_BITS) | BigInt(word), 0n)
}

/** Interfaces are written with their own address: `10.0.0.7/24`. */
function networkOf(cidr: string): Prefix {
  const [address = '', length = ''] = cidr.split('/')
  return prefixOf(parseAddress(address), Number(length))
}

function hostPrefix(text: string): Prefix {
  const address = parseAddress(text)
  return prefixOf(address, addressBits(address.family))
}

/** Addresses of one family, from the first to the last. */
interface Span {
  readonly family: 4 | 6
  readonly from: bigint
  readonly to: bigint
}

/** Takes disjoint prefixes, IPv4 first, each family sorted. */
function spansOf(prefixes: readonly Prefix[]): Span[] {
  return prefixes.map((prefix) => ({
    family: prefix.family,
    from: prefix.value,
    to: prefix.value + prefixSize(prefix) - 1n,
  }))
}

/** By halves: a forged sender for each packet must not make us walk the networks of all members each time. */
function isWithin(spans: readonly Span[], value: bigint, family: 4 | 6): boolean {
  let low = 0
  let high = spans.length - 1
  while (low <= high) {
    const middle = (low + high) >> 1
    const span = spans[middle]
    if (span === undefined) return false
    if (span.family > family || (span.family === family && span.from > value)) high = middle - 1
    else if (span.family < family || span.to < value) low = middle + 1
    else return true
  }
  return false
}

/** Equal answers a second: a caching resolver asks for a name once in 5 s, our time to live. */
const ALIKE_PER_SECOND = 100
/** All answers a second to one network, whatever they are. */
const ALL_PER_SECOND = 2000
/** About 130 KiB each. */
const COUNTED_PLACES = 8192

/**
 * Response rate limiting for strangers over UDP, as BIND, Knot and NSD have it: answers that are alike, to one /24 or
 * /56, are counted together, since who forges senders asks the same again and again. Of those above the limit every
 * second is cut to its header and question: a client that is there comes back over TCP, and nothing is amplified.
 */
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
