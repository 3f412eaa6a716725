/**
 * Keeps answers as bytes. Each is kept until its service changes. For names that do not exist, one answer is kept for
 * each length of question, so that random names take no memory.
 */
import { type ServiceKey, type ZoneName, serviceKey } from '../../model/model.ts'
import {
  type CompiledAnswer,
  HEADER_LENGTH,
  TYPE_A,
  TYPE_AAAA,
  TYPE_NS,
  TYPE_SOA,
  TYPE_SRV,
  TYPE_TXT,
  byte,
} from '../message/message.ts'
import { isTransfer, soaRecord } from './answer.ts'
import { compileAnswer } from './compile.ts'
import { NO_SERVICE, type ServiceIndex, isServiceName, labelsHash } from './service-index.ts'

interface Quick {
  /** Name in lower case and type, one character for each octet. */
  readonly asked: string
  readonly compiled: CompiledAnswer
}

const TYPE_LENGTH = 2

/** Answers for service names, found by the hash of the question and verified by its octets. */
class QuickAnswers {
  /** If two names share a hash, only the last one is here. */
  readonly #answers = new Map<number, Quick>()

  /** `hash` is labelsHash() of the query. `typeAt` is the offset after the name of the question. */
  find(query: Uint8Array, hash: number, typeAt: number): CompiledAnswer | undefined {
    const quick = this.#answers.get(withType(hash, byte(query, typeAt + 1)))
    return quick !== undefined && asks(query, typeAt, quick.asked) ? quick.compiled : undefined
  }

  /** `asked` is the name in lower case and the type. Names below a service are ignored. */
  keep(asked: string, compiled: CompiledAnswer): void {
    const octets = Buffer.from(asked, 'latin1')
    const place = placeOf(octets)
    // A flat string: a concatenated string is slower to read.
    if (place !== undefined) this.#answers.set(place, { asked: octets.toString('latin1'), compiled })
  }

  forget(asked: string): void {
    const place = placeOf(Buffer.from(asked, 'latin1'))
    if (place !== undefined) this.#answers.delete(place)
  }

  clear(): void {
    this.#answers.clear()
  }
}

function placeOf(octets: Buffer): number | undefined {
  const nameLength = octets.length - TYPE_LENGTH
  if (!isServiceName(octets.subarray(0, nameLength))) return undefined
  const hash = labelsHash(Buffer.concat([Buffer.alloc(HEADER_LENGTH), octets]), HEADER_LENGTH + nameLength)
  return withType(hash, byte(octets, nameLength + 1))
}

/** Types that are kept have one octet. A collision does no harm. */
function withType(hash: number, type: number): number {
  return hash ^ (type << 8)
}

/** True if the question is `asked`, ignoring the case of letters in the name. */
function asks(query: Uint8Array, typeAt: number, asked: string): boolean {
  const nameLength = asked.length - TYPE_LENGTH
  if (typeAt - HEADER_LENGTH !== nameLength) return false
  for (let i = 0; i < nameLength; i += 1) {
    const octet = byte(query, HEADER_LENGTH + i)
    const wanted = asked.charCodeAt(i)
    if (octet !== wanted && (octet < 0x41 || octet > 0x5a || octet + 0x20 !== wanted)) return false
  }
  return query[typeAt] === asked.charCodeAt(nameLength) && query[typeAt + 1] === asked.charCodeAt(nameLength + 1)
}

/** The position of a parsed question in its query. */
export interface QuestionPlace {
  readonly type: number
  /** Offset after the question. */
  readonly questionEnd: number
}

/** HTTPS (RFC 9460): browsers and curl query it beside A, and get NODATA. */
const TYPE_HTTPS = 65
const KEPT_TYPES: ReadonlySet<number> = new Set([TYPE_A, TYPE_AAAA, TYPE_SRV, TYPE_HTTPS, TYPE_TXT, TYPE_NS, TYPE_SOA])
/** Only names that exist are kept, so the size of the zone limits them. This limit is for a very large zone. */
const MAX_KEPT = 200_000
const CLASS_LENGTH = 2
const CLASS_AND_TYPE_LENGTH = 4

export class KeptAnswers {
  readonly #index: Pick<ServiceIndex, 'mayHave' | 'synced' | 'serial'>
  /** By name in lower case and type, one character for each octet. */
  readonly #answers = new Map<string, CompiledAnswer>()
  /** The same for service names, found faster. */
  readonly #quick = new QuickAnswers()
  readonly #keysOf = new Map<ServiceKey, string[]>()
  /** NXDOMAIN answers by the offset after the question: nothing else of the question affects their bytes. */
  readonly #absences: (CompiledAnswer | undefined)[] = []

  constructor(index: Pick<ServiceIndex, 'mayHave' | 'synced' | 'serial' | 'onServiceChange'>) {
    this.#index = index
    index.onServiceChange((key) => this.#forget(key))
  }

  /** Number of answers kept. */
  get size(): number {
    return this.#answers.size
  }

  /** Takes a query whose question has been parsed. Returns undefined if the answer must be computed. */
  find(query: Buffer, { type, questionEnd }: QuestionPlace): CompiledAnswer | undefined {
    const typeAt = questionEnd - CLASS_AND_TYPE_LENGTH
    const hash = labelsHash(query, typeAt)
    if (hash !== NO_SERVICE) {
      const quick = this.#index.mayHave(hash)
        ? this.#quick.find(query, hash, typeAt)
        : this.#absenceOf(type, questionEnd)
      if (quick !== undefined) return quick
    }
    return (
      this.#answers.get(query.toString('latin1', HEADER_LENGTH, questionEnd - CLASS_LENGTH)) ??
      this.#answers.get(keyOf(query, questionEnd))
    )
  }

  /** Returns NXDOMAIN for any question that ends there. */
  absence(questionEnd: number): CompiledAnswer {
    const known = this.#absences[questionEnd]
    if (known !== undefined) return known
    const compiled = compileAnswer({ kind: 'nxDomain', soa: soaRecord(this.#index.serial) }, '', questionEnd)
    this.#absences[questionEnd] = compiled
    return compiled
  }

  /** Keeps the answer to a query about `name`. Rare types are ignored. */
  keep(query: Buffer, { type, questionEnd }: QuestionPlace, name: ZoneName, compiled: CompiledAnswer): void {
    const owner = ownerOf(name)
    if (owner === undefined || !KEPT_TYPES.has(type)) return
    if (this.#answers.size >= MAX_KEPT) {
      this.#answers.clear()
      this.#quick.clear()
      this.#keysOf.clear()
    }
    const key = keyOf(query, questionEnd)
    this.#answers.set(key, compiled)
    this.#quick.keep(key, compiled)
    const keys = this.#keysOf.get(owner)
    if (keys === undefined) this.#keysOf.set(owner, [key])
    else keys.push(key)
  }

  /** Returns the answer for a name at or below a service that certainly does not exist. */
  #absenceOf(type: number, questionEnd: number): CompiledAnswer | undefined {
    return this.#index.synced && !isTransfer(type) ? this.absence(questionEnd) : undefined
  }

  #forget(owner: ServiceKey): void {
    const keys = this.#keysOf.get(owner)
    if (keys === undefined) return
    for (const key of keys) {
      this.#answers.delete(key)
      this.#quick.forget(key)
    }
    this.#keysOf.delete(owner)
  }
}

/** Octets of the type stay unchanged, because they may look like letters. */
function keyOf(query: Buffer, questionEnd: number): string {
  const typeAt = questionEnd - CLASS_AND_TYPE_LENGTH
  const type = query.toString('latin1', typeAt, questionEnd - CLASS_LENGTH)
  return query.toString('latin1', HEADER_LENGTH, typeAt).toLowerCase() + type
}

/**
 * Returns the service whose change invalidates an answer, '/' for names that never change, or undefined if the answer
 * must not be kept.
 */
function ownerOf(name: ZoneName): ServiceKey | undefined {
  if ('service' in name) return serviceKey(name.namespace, name.service)
  return name.kind === 'namespace' || name.kind === 'unknown' ? undefined : '/'
}
