/**
 * Hashes of the names of services as they are in questions: one pass over a question's octets finds out nearly always
 * whether there is such a service, and finds its answer (kept-answers.ts), without a string being made. "No such name"
 * in particular must be cheap: clients try their search domains first, and it cannot be kept, since such names have no
 * end.
 */
import { CLUSTERSET_ZONE } from '../../model/model.ts'
import { HEADER_LENGTH, byte } from '../message/message.ts'

/** Makes small letters of capital ones. What else it makes equal costs a closer look, and no wrong answer. */
const FOLD = 0x20
/** FNV-1a, cut to what V8 holds without a box. */
const HASH_START = 0x811c9dc5
const HASH_PRIME = 0x01000193
const HASH_BITS = 0x3fff_ffff
/** What labelsHash() gives for names that are of no service. */
export const NO_SERVICE = -1

/** What every name of a service ends with: `svc`, the zone, the root. */
const ENDING = Buffer.from(
  `${['svc', ...CLUSTERSET_ZONE.split('.')].map((text) => label(text)).join('')}\0`,
  'latin1',
).map((octet) => octet | FOLD)

/**
 * Takes a query whose question has been read and the octet after its name. Gives the hash of the two labels, service
 * and namespace, of the service that the name is, or is below; NO_SERVICE for every other name.
 */
export function labelsHash(query: Uint8Array, nameEnd: number): number {
  const end = nameEnd - ENDING.length
  // The lengths in the ending need no other care: a name that has been read has its labels where the lengths say.
  for (let i = 0; i < ENDING.length; i += 1) if ((byte(query, end + i) | FOLD) !== ENDING[i]) return NO_SERVICE
  let start = NO_SERVICE
  let here = HEADER_LENGTH
  for (let next = here + byte(query, here) + 1; next < end; next = here + byte(query, here) + 1) {
    start = here
    here = next
  }
  // With a start there are two labels before the ending, if the second ends where the ending starts.
  return start < 0 || here + byte(query, here) + 1 !== end ? NO_SERVICE : hashOf(query, start, end)
}

/** Takes a whole name's octets. Whether it has the form of a service's own name; names below it have not. */
export function isServiceName(octets: Uint8Array): boolean {
  const first = byte(octets, 0) + 1
  return first + byte(octets, first) + 1 + ENDING.length === octets.length && octets.length > ENDING.length + 2
}

function hashOf(octets: Uint8Array, start: number, end: number): number {
  let hash = HASH_START
  for (let at = start; at < end; at += 1) hash = Math.imul(hash ^ (byte(octets, at) | FOLD), HASH_PRIME)
  return hash & HASH_BITS
}

/** The services that are there. */
export class KnownLabels {
  /** Hash → number of services that have it. */
  readonly #hashes = new Map<number, number>()

  add(namespace: string, name: string): void {
    const hash = hashOfNames(namespace, name)
    this.#hashes.set(hash, (this.#hashes.get(hash) ?? 0) + 1)
  }

  /** Of what was added. */
  delete(namespace: string, name: string): void {
    const hash = hashOfNames(namespace, name)
    const left = (this.#hashes.get(hash) ?? 1) - 1
    if (left === 0) this.#hashes.delete(hash)
    else this.#hashes.set(hash, left)
  }

  /** False: surely no service has it. */
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
