/**
 * Classifies clients as far as an answer depends on it: whether a client belongs to this site, and which limits it
 * shares. Every packet is looked up here, so results are cached by the words of the address, in a table of fixed size.
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
   * True for clients of this site: its pods, nodes and the networks of this machine. Names outside the zone are
   * forwarded for them, and their answers are not limited.
   */
  readonly isOwn: boolean
  /** Clients with equal keys share limits: an IPv4 address, or an IPv6 /64, since one machine can use all of that. */
  readonly key: string
  /** Hash of the /24 or /56, which is what the sender of forged packets targets. */
  readonly network: number
}

/** This process itself. */
export const OWN_PROCESS: Client = { isOwn: true, key: 'own', network: 0 }
/** A connection that has closed, and so has no address. */
const NOBODY: Client = { isOwn: false, key: '', network: 0 }

/** The networks of the site besides this machine. ServiceIndex implements it. */
export interface SiteNetworks {
  /** Changes each time one of the other two changes. */
  readonly networksVersion: number
  /** Addresses of the nodes of this cluster. */
  readonly nodeAddresses: readonly string[]
  /** Prefixes of the other clusters, as seen here. Their packets arrive through lanes. */
  readonly lanePrefixes: readonly Prefix[]
}

export interface ClientsInit {
  readonly site: SiteNetworks
  /** CIDRs that the site file lists as its own. */
  readonly networks: readonly string[]
  /** Returns the CIDRs of the interfaces of this machine. Called each time the networks are combined. */
  readonly interfaces: () => readonly string[]
}

const ALWAYS_OWN = ['127.0.0.0/8', '::1/128', 'fe80::/10']
/** A power of two. */
const PLACES = 4096
const WORDS = 4
/** Third word of an IPv4-mapped IPv6 address. RFC 4291 section 2.5.5.2. */
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

  /** `words` are four numbers of 32 bits, with an IPv4 address as ::ffff:a.b.c.d. */
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

  /** `address` has the form of Node's sockets, with or without a zone. */
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

  /** Checks whether the networks of this machine have changed. Called at an interval. */
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
        // Of equal prefixes the last one counts: lane prefixes come first, then nodes, which no lane leads to.
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

/** Returns an address as four numbers of 32 bits. */
export function wordsOf({ family, value }: Address): Uint32Array {
  if (family === 4) return Uint32Array.of(0, 0, MAPPED, Number(value))
  return Uint32Array.from([3n, 2n, 1n, 0n], (word) => Number((value >> (word * WORD_BITS)) & WORD_MASK))
}

function valueOf(words: Uint32Array): bigint {
  return words.reduce((value, word) => (value << WORD_BITS) | BigInt(word), 0n)
}

/** Interfaces are listed with their own address: `10.0.0.7/24`. */
function networkOf(cidr: string): Prefix {
  const [address = '', length = ''] = cidr.split('/')
  return prefixOf(parseAddress(address), Number(length))
}

function hostPrefix(text: string): Prefix {
  const address = parseAddress(text)
  return prefixOf(address, addressBits(address.family))
}

/** A range of addresses of one family, both ends included. */
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

/**
 * Uses binary search: packets with forged sources must not cause a linear search through the networks of all members.
 */
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

/** Equal answers per second. A caching resolver asks for a name once in 5 s, our TTL. */
const ALIKE_PER_SECOND = 100
/** All answers per second to one network. */
const ALL_PER_SECOND = 2000
/** About 130 KiB for each table. */
const COUNTED_PLACES = 8192

/**
 * Response rate limiting for clients of other sites over UDP, as in BIND, Knot and NSD. Equal answers to one /24 or /56
 * are counted together, since an attacker with forged sources repeats one query. Of the answers above the limit, every
 * second one is reduced to its header and question: a real client then retries over TCP, and nothing is amplified.
 */
export class ResponseLimit {
  readonly #alike = new TokenBuckets({ places: COUNTED_PLACES, perSecond: ALIKE_PER_SECOND, burst: ALIKE_PER_SECOND })
  readonly #all = new TokenBuckets({ places: COUNTED_PLACES, perSecond: ALL_PER_SECOND, burst: ALL_PER_SECOND })
  #held = 0

  /**
   * Decides whether the answer may be sent to the client. `questionEnd` is the octet after the question. All NXDOMAIN
   * answers and errors of one code count as equal, since their names may be random.
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

/** Hashes name, type and class, ignoring the case of letters. */
function questionHash(message: Uint8Array, questionEnd: number): number {
  let hash = 0
  for (let at = HEADER_LENGTH; at < questionEnd; at += 1) {
    const octet = byte(message, at)
    hash = (Math.imul(hash, 31) + (octet >= 0x41 && octet <= 0x5a ? octet + 0x20 : octet)) | 0
  }
  return hash
}
