/**
 * Compiles an answer to the bytes that follow the question. They are made once for each name and type and sent many
 * times. Address and SOA records are written here, all others by dns2, which no other file uses.
 *
 * The question is at octet 12 of every answer, so its name is the pointer 0xc00c, whatever its letter case. Names
 * inside SRV records are not compressed (RFC 2782), so dns2 encodes one record at a time.
 */
import { Packet } from 'dns2'
import { parseAddress } from '../../model/addresses/addresses.ts'
import { CLUSTERSET_ZONE } from '../../model/model.ts'
import type { DnsAnswer, DnsRecord, SoaData } from './answer.ts'
import { type CompiledAnswer, HEADER_LENGTH, MAX_TCP_SIZE, RCODE, TYPE_A, TYPE_AAAA } from '../message/message.ts'

/** Highest offset that a compression pointer can express. */
const MAX_POINTER = 0x3fff
/** Octets of a record between its owner and its data, and of the data of an SRV record before the target. */
const FIXED_LENGTH = 10
const SRV_FIXED_LENGTH = 6
/** The last five numbers of an SOA record. */
const SOA_TIMERS_LENGTH = 20
/** Type and class after the name of the question, and the name of the zone with its length octets and final zero. */
const QUESTION_TAIL = 4
const ZONE = `${CLUSTERSET_ZONE}.`
const ZONE_OCTETS = CLUSTERSET_ZONE.length + 2
/** Room in a TCP answer after the longest question and our EDNS record. */
const MAX_BODY = MAX_TCP_SIZE - HEADER_LENGTH - 255 - 4 - 11

/**
 * Takes an answer (not SERVFAIL, which has no body), the name of the question, absolute and in lower case, and the
 * offset after the question. Leaves out records that do not fit in any answer, and sets isCut then.
 */
export function compileAnswer(
  answer: Exclude<DnsAnswer, { kind: 'servFail' }>,
  questionName: string,
  questionEnd: number,
): CompiledAnswer {
  const writer = new SectionWriter(questionName, questionEnd)
  if (answer.kind !== 'answer') {
    writer.add(answer.soa)
    const body = writer.bytes()
    return {
      rcode: answer.kind === 'noData' ? RCODE.noError : RCODE.nxDomain,
      body,
      answerEnds: [],
      authorityCount: 1,
      mainEnd: body.length,
      additionalCount: 0,
      stride: 0,
      isCut: false,
      serialAt: writer.serialAt,
    }
  }
  const answerEnds: number[] = []
  for (const record of answer.records) {
    if (!writer.add(record)) break
    answerEnds.push(writer.length)
  }
  const mainEnd = writer.length
  let additionalCount = 0
  // The limit is what fits in an answer over UDP: a larger additional section is not useful.
  for (const record of answer.additional) {
    if (additionalCount === MAX_ADDITIONAL || !writer.add(record)) break
    additionalCount += 1
  }
  const first = answer.records[0]
  return {
    rcode: RCODE.noError,
    body: writer.bytes(),
    answerEnds,
    authorityCount: 0,
    mainEnd,
    additionalCount,
    stride: first?.type === 'A' || first?.type === 'AAAA' ? (answerEnds[0] ?? 0) : 0,
    isCut: answerEnds.length < answer.records.length,
    serialAt: writer.serialAt,
  }
}

const MAX_ADDITIONAL = 50

class SectionWriter {
  readonly #chunks: Uint8Array[] = []
  readonly #names: Map<string, number>
  readonly #start: number
  length = 0
  serialAt = -1

  constructor(questionName: string, questionEnd: number) {
    this.#start = questionEnd
    // Every question that is answered here ends with the zone.
    this.#names = new Map([
      [ZONE, questionEnd - QUESTION_TAIL - ZONE_OCTETS],
      [questionName, HEADER_LENGTH],
    ])
  }

  /** Returns false and adds nothing if the record does not fit in any answer. */
  add(record: DnsRecord): boolean {
    const owner = this.#owner(record.owner)
    const data = record.type === 'SOA' ? this.#soaData(record) : recordData(record)
    const length = owner.length + data.length
    if (this.length + length > MAX_BODY) return false
    const dataAt = this.#start + this.length + owner.length + FIXED_LENGTH
    if (record.type === 'SRV') this.#remember(record.target, dataAt + SRV_FIXED_LENGTH)
    if (record.type === 'NS') this.#remember(record.target, dataAt)
    if (record.type === 'SOA') this.serialAt = this.length + length - SOA_TIMERS_LENGTH
    this.#chunks.push(owner, data)
    this.length += length
    return true
  }

  bytes(): Uint8Array {
    return Buffer.concat(this.#chunks, this.length)
  }

  #owner(name: string): Uint8Array {
    const at = this.#names.get(name)
    return at === undefined ? Packet.Name.encode(name) : pointerTo(at)
  }

  #soaData(record: Extract<DnsRecord, SoaData>): Uint8Array {
    const names = [record.primary, record.admin].map((name) => this.#compressed(name))
    const { serial, refresh, retry, expire, minimum } = record
    const numbers = Buffer.alloc(SOA_TIMERS_LENGTH)
    for (const [i, number] of [serial, refresh, retry, expire, minimum].entries()) numbers.writeUInt32BE(number, 4 * i)
    const data = Buffer.concat([...names, numbers])
    return Buffer.concat([fixedPart(Packet.TYPE.SOA, record.ttl, data.length), data])
  }

  /** Encodes only the labels before the zone for a name in the zone; the zone itself is in the question. */
  #compressed(name: string): Uint8Array {
    const at = this.#names.get(ZONE)
    if (at === undefined || !name.endsWith(`.${ZONE}`)) return Packet.Name.encode(name)
    const labels = Packet.Name.encode(name.slice(0, -ZONE.length)).subarray(0, -1)
    return Buffer.concat([labels, pointerTo(at)])
  }

  #remember(name: string, at: number): void {
    if (at <= MAX_POINTER && !this.#names.has(name)) this.#names.set(name, at)
  }
}

function pointerTo(at: number): Uint8Array {
  return Uint8Array.of(0xc0 | (at >> 8), at & 0xff)
}

/** Returns type, class, TTL and length of the data. */
function fixedPart(type: number, ttl: number, length: number): Buffer {
  const fixed = Buffer.alloc(FIXED_LENGTH)
  fixed.writeUInt16BE(type, 0)
  fixed.writeUInt16BE(Packet.CLASS.IN, 2)
  fixed.writeUInt32BE(ttl, 4)
  fixed.writeUInt16BE(length, 8)
  return fixed
}

type PlainRecord = Exclude<DnsRecord, SoaData>

/** Returns type, class, TTL, length and data: all of a record but its owner. */
function recordData(record: PlainRecord): Uint8Array {
  return isAddress(record) ? addressData(record) : encodedData(record)
}

function encodedData(record: Exclude<PlainRecord, AddressRecord>): Uint8Array {
  // The empty owner is one octet, which is removed again. Without a table of names, dns2 compresses nothing.
  const writer = new Packet.Writer()
  Packet.Resource.encode(dns2Record(record), writer)
  return writer.toBuffer().subarray(1)
}

type AddressRecord = Extract<DnsRecord, { type: 'A' | 'AAAA' }>

function isAddress(record: PlainRecord): record is AddressRecord {
  return record.type === 'A' || record.type === 'AAAA'
}

function addressData({ type, ttl, address }: AddressRecord): Uint8Array {
  const size = type === 'A' ? 4 : 16
  const data = Buffer.concat([fixedPart(type === 'A' ? TYPE_A : TYPE_AAAA, ttl, size), Buffer.alloc(size)])
  const { value } = parseAddress(address)
  for (let i = 0; i < size; i += 1) data[FIXED_LENGTH + size - 1 - i] = Number((value >> BigInt(8 * i)) & 0xffn)
  return data
}

function dns2Record(record: Exclude<PlainRecord, AddressRecord>): InstanceType<typeof Packet.Resource> {
  const base = { name: '', class: Packet.CLASS.IN, ttl: record.ttl }
  switch (record.type) {
    case 'SRV': {
      const { priority, weight, port, target } = record
      return new Packet.Resource({ ...base, type: Packet.TYPE.SRV, priority, weight, port, target })
    }
    case 'TXT':
      return new Packet.Resource({ ...base, type: Packet.TYPE.TXT, data: record.text })
    case 'NS':
      return new Packet.Resource({ ...base, type: Packet.TYPE.NS, ns: record.target })
  }
}
