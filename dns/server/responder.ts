/**
 * From the bytes of a query to the bytes of its answer. The hot path is one look-up by the question's own bytes; what
 * is not found there is worked out by answer.ts, compiled, and kept until its service changes.
 */
import { type ZoneName, parseDnsName } from '../../model/dns/dns-name.ts'
import { type ServiceKey, serviceKey } from '../../model/ids.ts'
import { CLUSTERSET_ZONE } from '../../model/spec-constants.ts'
import { TYPE_A, TYPE_AAAA, TYPE_NS, TYPE_SOA, TYPE_SRV, TYPE_TXT, answer, soaRecord } from '../zone/answer.ts'
import { type CompiledAnswer, compileAnswer } from '../zone/compile.ts'
import { NO_SERVICE, labelsHash } from '../zone/known-labels.ts'
import { CLASS_IN, HEADER_LENGTH, MAX_TCP_SIZE, MAX_UDP_SIZE, QueryReader, RCODE, questionName } from './query.ts'
import { QuickAnswers } from '../zone/quick-answers.ts'
import type { ServiceIndex } from '../zone/service-index.ts'
import { writeAnswer, writeCode } from './write-response.ts'

/** Not of our zone: ask the upstreams. */
export const FORWARD = Symbol('forward')
/** Bytes to send back, FORWARD, or undefined: say nothing. */
export type Verdict = Buffer | typeof FORWARD | undefined

export type Transport = 'udp' | 'tcp'

export interface ResponderDeps {
  readonly index: ServiceIndex
  /** Called once for each query; `rcode` is undefined when it was ignored or forwarded. */
  readonly count: (type: number, rcode: number | undefined) => void
}

/** SVCB and HTTPS (RFC 9460): browsers and curl ask them beside A, and get NODATA. */
const TYPE_HTTPS = 65
/** Zone transfers and mail agents of old, RFC 1035 section 3.2.3 and RFC 1995. */
const FIRST_TRANSFER_TYPE = 251
const LAST_TRANSFER_TYPE = 254
const KEPT_TYPES: ReadonlySet<number> = new Set([TYPE_A, TYPE_AAAA, TYPE_SRV, TYPE_HTTPS, TYPE_TXT, TYPE_NS, TYPE_SOA])
/** Only names that exist are kept, so the zone itself bounds this; the limit is for a very large zone. */
const MAX_KEPT = 200_000
const CLASS_AND_TYPE_LENGTH = 4
/**
 * A name of ours with a search domain behind it, such as `web.shop.svc.clusterset.local.shop.svc.cluster.local.`: no
 * such name, at once. Clients with musl wait for seconds on any other refusal, and an upstream may be slow or have a
 * wildcard.
 */
const INSIDE_ANOTHER_NAME = `.${CLUSTERSET_ZONE}.`

export class Responder {
  readonly #index: ServiceIndex
  readonly #count: ResponderDeps['count']
  readonly #recursion: boolean
  readonly #reader = new QueryReader()
  readonly #kept = new Map<string, CompiledAnswer>()
  /** The same for the names of services, found at less cost. */
  readonly #quick = new QuickAnswers()
  readonly #keysOf = new Map<ServiceKey, string[]>()
  /** "No such name", by the octet after the question: nothing else of the question decides about its bytes. */
  readonly #absences: (CompiledAnswer | undefined)[] = []
  #isRehearsing = false
  #rotation = 0

  /** `recursion`: whether FORWARD is acted upon; else names outside the zone are REFUSED. */
  constructor(deps: ResponderDeps, init: { readonly recursion: boolean }) {
    this.#index = deps.index
    this.#count = deps.count
    this.#recursion = init.recursion
    deps.index.onServiceChange((key) => this.#forget(key))
  }

  /** Number of answers kept ready. */
  get kept(): number {
    return this.#kept.size
  }

  /** Never throws. The answer is no larger than the transport and the client allow. */
  respond(query: Buffer, transport: Transport): Verdict {
    const reader = this.#reader
    const outcome = reader.read(query)
    if (outcome === 'ok' && reader.class === CLASS_IN && reader.ednsVersion === 0) {
      const { questionEnd } = reader
      const hash = labelsHash(query, questionEnd - CLASS_AND_TYPE_LENGTH)
      const compiled =
        (hash === NO_SERVICE ? undefined : this.#quickly(query, hash)) ??
        this.#kept.get(query.toString('latin1', HEADER_LENGTH, questionEnd - 2))
      return compiled === undefined ? this.#respondSlowly(query, transport) : this.#send(query, compiled, transport)
    }
    if (outcome === 'ignored') return this.#ignore()
    if (outcome === 'formErr') return this.#code(query, RCODE.formErr)
    if (outcome === 'notImp') return this.#code(query, RCODE.notImp)
    return this.#code(query, reader.ednsVersion === 0 ? RCODE.refused : RCODE.badVers)
  }

  /** As respond(), over UDP, for nobody: what can be kept is kept, and nothing is counted. */
  rehearse(query: Buffer): void {
    this.#isRehearsing = true
    try {
      this.respond(query, 'udp')
    } finally {
      this.#isRehearsing = false
    }
  }

  /** For a name at or below a service. Undefined where that takes a closer look. */
  #quickly(query: Buffer, hash: number): CompiledAnswer | undefined {
    const { type, questionEnd } = this.#reader
    if (this.#index.mayHave(hash)) return this.#quick.find(query, hash, questionEnd - CLASS_AND_TYPE_LENGTH)
    return this.#index.synced && !isTransfer(type) ? this.#absenceAt(questionEnd) : undefined
  }

  #absenceAt(questionEnd: number): CompiledAnswer {
    const known = this.#absences[questionEnd]
    if (known !== undefined) return known
    const compiled = compileAnswer({ kind: 'nxDomain', soa: soaRecord(this.#index.serial) }, '', questionEnd)
    this.#absences[questionEnd] = compiled
    return compiled
  }

  #respondSlowly(query: Buffer, transport: Transport): Verdict {
    const { type, questionEnd } = this.#reader
    const typeAt = questionEnd - CLASS_AND_TYPE_LENGTH
    const key =
      query.toString('latin1', HEADER_LENGTH, typeAt).toLowerCase() + query.toString('latin1', typeAt, typeAt + 2)
    const kept = this.#kept.get(key)
    if (kept !== undefined) return this.#send(query, kept, transport)
    const text = questionName(query)
    const name = parseDnsName(text)
    if (name.kind === 'malformed') return this.#code(query, RCODE.formErr)
    if (name.kind === 'notOurs') {
      return text.includes(INSIDE_ANOTHER_NAME) ? this.#code(query, RCODE.nxDomain) : this.#forward(query)
    }
    if (isTransfer(type)) return this.#code(query, RCODE.refused)
    const result = answer(this.#index, { name, type }, 0)
    if (result.kind === 'servFail') return this.#code(query, RCODE.servFail)
    if (result.kind === 'nxDomain') return this.#send(query, this.#absenceAt(questionEnd), transport)
    const compiled = compileAnswer(result, text, questionEnd)
    if (KEPT_TYPES.has(type)) this.#keep(key, name, compiled)
    return this.#send(query, compiled, transport)
  }

  #send(query: Buffer, compiled: CompiledAnswer, transport: Transport): Buffer {
    const reader = this.#reader
    const maxSize = transport === 'tcp' ? MAX_TCP_SIZE : Math.min(reader.clientSize, MAX_UDP_SIZE)
    this.#rotation = (this.#rotation + 1) & 0xffff
    if (!this.#isRehearsing) this.#count(reader.type, compiled.rcode)
    return writeAnswer(query, reader, compiled, {
      maxSize,
      rotation: this.#rotation,
      serial: this.#index.serial,
      recursion: this.#recursion,
    })
  }

  /** An answer of a code alone, to a query that respond() gave FORWARD for. */
  code(query: Buffer, rcode: number): Buffer | undefined {
    return this.#reader.read(query) === 'ok' ? this.#code(query, rcode) : undefined
  }

  #forward(query: Buffer): Verdict {
    // Bit 7 of the third octet is RD: only who asks for recursion is forwarded. RFC 1035 section 4.1.1.
    if (!this.#recursion || ((query[2] ?? 0) & 1) === 0) return this.#code(query, RCODE.refused)
    return FORWARD
  }

  #code(query: Buffer, rcode: number): Buffer {
    if (!this.#isRehearsing) this.#count(this.#reader.type, rcode)
    return writeCode(query, this.#reader, rcode, this.#recursion)
  }

  #ignore(): Verdict {
    if (!this.#isRehearsing) this.#count(0, undefined)
    return undefined
  }

  #keep(key: string, name: ZoneName, compiled: CompiledAnswer): void {
    const owner = ownerOf(name)
    if (owner === undefined) return
    if (this.#kept.size >= MAX_KEPT) {
      this.#kept.clear()
      this.#quick.clear()
      this.#keysOf.clear()
    }
    this.#kept.set(key, compiled)
    this.#quick.keep(key, compiled)
    const keys = this.#keysOf.get(owner)
    if (keys === undefined) this.#keysOf.set(owner, [key])
    else keys.push(key)
  }

  #forget(key: ServiceKey): void {
    const keys = this.#keysOf.get(key)
    if (keys === undefined) return
    for (const kept of keys) {
      this.#kept.delete(kept)
      this.#quick.forget(kept)
    }
    this.#keysOf.delete(key)
  }
}

function isTransfer(type: number): boolean {
  return type >= FIRST_TRANSFER_TYPE && type <= LAST_TRANSFER_TYPE
}

/** The service whose change ends an answer; '/' for names that never change; undefined: not to be kept. */
function ownerOf(name: ZoneName): ServiceKey | undefined {
  if ('service' in name) return serviceKey(name.namespace, name.service)
  return name.kind === 'namespace' || name.kind === 'unknown' ? undefined : '/'
}
