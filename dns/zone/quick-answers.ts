/** Answers for the names of services, found by the hash of the question and made sure of by its octets. */
import { isServiceName, labelsHash } from './known-labels.ts'
import { type CompiledAnswer, HEADER_LENGTH, byte } from '../wire.ts'

interface Quick {
  /** Name in lower case and type, one character for each octet. */
  readonly asked: string
  readonly compiled: CompiledAnswer
}

const TYPE_LENGTH = 2

export class QuickAnswers {
  /** Of two with one hash the last is here. */
  readonly #answers = new Map<number, Quick>()

  /** `hash`: labelsHash() of the query; `typeAt`: the octet after the question's name. */
  find(query: Uint8Array, hash: number, typeAt: number): CompiledAnswer | undefined {
    const quick = this.#answers.get(withType(hash, byte(query, typeAt + 1)))
    return quick !== undefined && asks(query, typeAt, quick.asked) ? quick.compiled : undefined
  }

  /** `asked`: name in lower case and type. Names that are not of a service itself are passed over. */
  keep(asked: string, compiled: CompiledAnswer): void {
    const octets = Buffer.from(asked, 'latin1')
    const place = placeOf(octets)
    // A string of its own: one that was put together is read more slowly.
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

/** Types that are kept have one octet; that two share a place does no harm. */
function withType(hash: number, type: number): number {
  return hash ^ (type << 8)
}

/** Whether the question is `asked`, whatever the case of its name's letters. */
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
