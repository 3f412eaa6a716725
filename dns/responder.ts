/**
 * From the bytes of a query to the bytes of its answer. The hot path is one look-up by the question's own bytes; what
 * is not found there is worked out by answer.ts, compiled, and kept until its service changes.
 */
import { type ZoneName, parseDnsName } from '../model/dns-name.ts'
import { type ServiceKey, serviceKey } from '../model/ids.ts'
import { CLUSTERSET_ZONE } from '../model/spec-constants.ts'
import { TYPE_A, TYPE_AAAA, TYPE_NS, TYPE_SOA, TYPE_SRV, TYPE_TXT, answer } from './answer.ts'
import { type CompiledAnswer, compileAnswer } from './compile.ts'
import { CLASS_IN, HEADER_LENGTH, MAX_TCP_SIZE, MAX_UDP_SIZE, QueryReader, RCODE, questionName } from './query.ts'
import type { ServiceIndex } from './service-index.ts'
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
  readonly #keysOf = new Map<ServiceKey, string[]>()
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
      const compiled = this.#kept.get(query.toString('latin1', HEADER_LENGTH, questionEnd - 2))
      return compiled === undefined ? this.#respondSlowly(query, transport) : this.#send(query, compiled, transport)
    }
    if (outcome === 'ignored') return this.#ignore()
    if (outcome === 'formErr') return this.#code(query, RCODE.formErr)
    if (outcome === 'notImp') return this.#code(query, RCODE.notImp)
    return this.#code(query, reader.ednsVersion === 0 ? RCODE.refused : RCODE.badVers)
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
    if (type >= FIRST_TRANSFER_TYPE && type <= LAST_TRANSFER_TYPE) return this.#code(query, RCODE.refused)
    const result = answer(this.#index, { name, type }, 0)
    if (result.kind === 'servFail') return this.#code(query, RCODE.servFail)
    const compiled = compileAnswer(result, text, questionEnd)
    if (result.kind !== 'nxDomain' && KEPT_TYPES.has(type)) this.#keep(key, name, compiled)
    return this.#send(query, compiled, transport)
  }

  #send(query: Buffer, compiled: CompiledAnswer, transport: Transport): Buffer {
    const reader = this.#reader
    const maxSize = transport === 'tcp' ? MAX_TCP_SIZE : Math.min(reader.clientSize, MAX_UDP_SIZE)
    this.#rotation = (this.#rotation + 1) & 0xffff
    this.#count(reader.type, compiled.rcode)
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
    this.#count(this.#reader.type, rcode)
    return writeCode(query, this.#reader, rcode, this.#recursion)
  }

  #ignore(): Verdict {
    this.#count(0, undefined)
    return undefined
  }

  #keep(key: string, name: ZoneName, compiled: CompiledAnswer): void {
    const owner = ownerOf(name)
    if (owner === undefined) return
    if (this.#kept.size >= MAX_KEPT) {
      this.#kept.clear()
      this.#keysOf.clear()
    }
    this.#kept.set(key, compiled)
    const keys = this.#keysOf.get(owner)
    if (keys === undefined) this.#keysOf.set(owner, [key])
    else keys.push(key)
  }

  #forget(key: ServiceKey): void {
    const keys = this.#keysOf.get(key)
    if (keys === undefined) return
    for (const kept of keys) this.#kept.delete(kept)
    this.#keysOf.delete(key)
  }
}

/** The service whose change ends an answer; '/' for names that never change; undefined: not to be kept. */
function ownerOf(name: ZoneName): ServiceKey | undefined {
  if ('service' in name) return serviceKey(name.namespace, name.service)
  return name.kind === 'namespace' || name.kind === 'unknown' ? undefined : '/'
}
