/**
 * Hashes service names as they appear in questions. One pass over the octets of a question nearly always tells whether
 * the service exists, and finds its answer (kept-answers.ts), without creating a string. NXDOMAIN in particular must be
 * cheap: clients try their search domains first, and the answers cannot be kept because the number of such names is
 * unlimited.
 */
import { CLUSTERSET_ZONE } from '../../model/model.ts'
import { HEADER_LENGTH, byte } from '../message/message.ts'

/**
 * Converts letters to lower case. Other octets that become equal cost an extra comparison, but cause no wrong answer.
 */
const FOLD = 0x20
/** FNV-1a, truncated to the range of V8's small integers. */
const HASH_START = 0x811c9dc5
const HASH_PRIME = 0x01000193
const HASH_BITS = 0x3fff_ffff
/** The result of labelsHash() for a name that is not at or below a service. */
export const NO_SERVICE = -1

/** The end of every service name: `svc`, the zone, the root. */
const ENDING = Buffer.from(
  `${['svc', ...CLUSTERSET_ZONE.split('.')].map((text) => label(text)).join('')}\0`,
  'latin1',
).map((octet) => octet | FOLD)

/**
 * Takes a query whose question has been parsed, and the offset after its name. Returns the hash of the two labels,
 * service and namespace, of the service that the name is at or below. Returns NO_SERVICE for every other name.
 */
export function labelsHash(query: Uint8Array, nameEnd: number): number {
  const end = nameEnd - ENDING.length
  // The length octets of the ending need no check of their own: in a parsed name, labels begin where the lengths say.
  for (let i = 0; i < ENDING.length; i += 1) if ((byte(query, end + i) | FOLD) !== ENDING[i]) return NO_SERVICE
  let start = NO_SERVICE
  let here = HEADER_LENGTH
  for (let next = here + byte(query, here) + 1; next < end; next = here + byte(query, here) + 1) {
    start = here
    here = next
  }
  // With a start, there are two labels before the ending, provided that the second one ends where the ending begins.
  return start < 0 || here + byte(query, here) + 1 !== end ? NO_SERVICE : hashOf(query, start, end)
}

/** Takes the octets of a whole name. True if it has the form of a service name, not of a name below it. */
export function isServiceName(octets: Uint8Array): boolean {
  const first = byte(octets, 0) + 1
  return first + byte(octets, first) + 1 + ENDING.length === octets.length && octets.length > ENDING.length + 2
}

function hashOf(octets: Uint8Array, start: number, end: number): number {
  let hash = HASH_START
  for (let at = start; at < end; at += 1) hash = Math.imul(hash ^ (byte(octets, at) | FOLD), HASH_PRIME)
  return hash & HASH_BITS
}

/** The hashes of the existing services. */
export class KnownLabels {
  /** Maps hash → number of services that have it. */
  readonly #hashes = new Map<number, number>()

  add(namespace: string, name: string): void {
    const hash = hashOfNames(namespace, name)
    this.#hashes.set(hash, (this.#hashes.get(hash) ?? 0) + 1)
  }

  /** Takes only services that were added. */
  delete(namespace: string, name: string): void {
    const hash = hashOfNames(namespace, name)
    const left = (this.#hashes.get(hash) ?? 1) - 1
    if (left === 0) this.#hashes.delete(hash)
    else this.#hashes.set(hash, left)
  }

  /** Returns false if certainly no service has the hash. */
  has(hash: number): boolean {
    return this.#hashes.has(hash)
  }
}

function hashOfNames(namespace: string, name: string): number {
  const octets = Buffer.from(label(name) + label(namespace), 'latin1')
  return hashOf(octets, 0, octets.length)
}

function label(text: string): string {
  return String.fromCharCode(text.length) + text
}
