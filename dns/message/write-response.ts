/** Writes answers: header and question of the client, then compiled bytes, then EDNS. RFC 1035, RFC 6891. */
import type { QueryReader } from './query.ts'
import { type CompiledAnswer, HEADER_LENGTH, MAX_UDP_SIZE, TYPE_OPT, byte } from './wire.ts'

const OPT_LENGTH = 11
const FLAG_QR = 0x80
const FLAG_AA = 0x04
const FLAG_TC = 0x02
const FLAG_RD = 0x01
const FLAG_RA = 0x80
const FLAG_CD = 0x10
const OPCODE = 0x78

export interface ResponseInit {
  /** Maximum size of the answer in octets. */
  readonly maxSize: number
  /** Selects the first address record; any whole number from 0. */
  readonly rotation: number
  /** Serial of the SOA record. */
  readonly serial: number
  /** True if names outside the zone are forwarded. */
  readonly recursion: boolean
}

/**
 * Returns the answer to a query that `reader` has parsed. If it is too large, it ends after a whole record with TC set.
 */
export function writeAnswer(query: Buffer, reader: QueryReader, compiled: CompiledAnswer, init: ResponseInit): Buffer {
  const { questionEnd } = reader
  const room = init.maxSize - questionEnd - (reader.hasEdns ? OPT_LENGTH : 0)
  const { body, answerEnds } = compiled
  let bodyEnd = body.length
  let answers = answerEnds.length
  let { authorityCount, additionalCount } = compiled
  let truncated = compiled.isCut ? FLAG_TC : 0
  if (bodyEnd > room && additionalCount > 0) {
    bodyEnd = compiled.mainEnd
    additionalCount = 0
  }
  if (bodyEnd > room) {
    while (answers > 0 && (answerEnds[answers - 1] ?? 0) > room) answers -= 1
    bodyEnd = answers === 0 ? 0 : (answerEnds[answers - 1] ?? 0)
    authorityCount = 0
    truncated = FLAG_TC
  }
  const size = questionEnd + bodyEnd + (reader.hasEdns ? OPT_LENGTH : 0)
  const response = Buffer.allocUnsafe(size)
  query.copy(response, 0, 0, questionEnd)
  response[2] = FLAG_QR | FLAG_AA | truncated | ((query[2] ?? 0) & FLAG_RD)
  response[3] = (init.recursion ? FLAG_RA : 0) | ((query[3] ?? 0) & FLAG_CD) | compiled.rcode
  put16(response, 6, answers)
  put16(response, 8, authorityCount)
  put16(response, 10, additionalCount + (reader.hasEdns ? 1 : 0))
  putBody(response, compiled, { at: questionEnd, end: bodyEnd, rotation: init.rotation })
  if (compiled.serialAt >= 0 && truncated === 0) response.writeUInt32BE(init.serial, questionEnd + compiled.serialAt)
  if (reader.hasEdns) putOpt(response, questionEnd + bodyEnd, reader.dnssecOk, 0)
  return response
}

interface BodyPlace {
  readonly at: number
  readonly end: number
  readonly rotation: number
}

function putBody(response: Buffer, compiled: CompiledAnswer, { at, end, rotation }: BodyPlace): void {
  const { body, stride, mainEnd } = compiled
  if (stride === 0 || mainEnd === stride) {
    for (let i = 0; i < end; i += 1) response[at + i] = body[i] ?? 0
    return
  }
  let from = (rotation * stride) % mainEnd
  for (let i = 0; i < end; i += 1) {
    response[at + i] = body[from] ?? 0
    from += 1
    if (from === mainEnd) from = 0
  }
}

/**
 * Returns an answer with only a response code, and the question if one was parsed. Codes above 15, and `why` (see
 * extendedError()), require a client with EDNS. The answer is never authoritative.
 */
export function writeCode(
  query: Buffer,
  reader: QueryReader,
  { rcode, recursion, why }: { readonly rcode: number; readonly recursion: boolean; readonly why?: Buffer },
): Buffer {
  const { questionEnd, hasEdns } = reader
  const optionsLength = why?.length ?? 0
  const response = Buffer.allocUnsafe(questionEnd + (hasEdns ? OPT_LENGTH + optionsLength : 0))
  query.copy(response, 0, 0, questionEnd)
  // The flags of an unknown operation are unknown too, so only its opcode is returned.
  const isQuery = ((query[2] ?? 0) & OPCODE) === 0
  response[2] = FLAG_QR | ((query[2] ?? 0) & (isQuery ? FLAG_RD : OPCODE))
  response[3] = (isQuery ? (recursion ? FLAG_RA : 0) | ((query[3] ?? 0) & FLAG_CD) : 0) | (rcode & 0x0f)
  put16(response, 4, questionEnd > HEADER_LENGTH ? 1 : 0)
  put16(response, 6, 0)
  put16(response, 8, 0)
  put16(response, 10, hasEdns ? 1 : 0)
  if (hasEdns) {
    putOpt(response, questionEnd, reader.dnssecOk, rcode >> 4)
    if (why !== undefined) {
      put16(response, questionEnd + OPT_LENGTH - 2, why.length)
      why.copy(response, questionEnd + OPT_LENGTH)
    }
  }
  return response
}

/** RFC 8914. */
const OPTION_EXTENDED_ERROR = 15

/** Returns an EDNS option that explains the response code: a code of RFC 8914 section 4, and an ASCII text. */
export function extendedError(code: number, text: string): Buffer {
  const option = Buffer.alloc(6)
  option.writeUInt16BE(OPTION_EXTENDED_ERROR, 0)
  option.writeUInt16BE(2 + text.length, 2)
  option.writeUInt16BE(code, 4)
  return Buffer.concat([option, Buffer.from(text, 'latin1')])
}

/**
 * Returns an answer that makes the client retry over TCP: header and question with TC, and EDNS if the client used it
 * (RFC 6891 section 7).
 */
export function cutAnswer(
  answer: Buffer,
  { questionEnd, hasEdns, dnssecOk }: Pick<QueryReader, 'questionEnd' | 'hasEdns' | 'dnssecOk'>,
): Buffer {
  const cut = Buffer.alloc(questionEnd + (hasEdns ? OPT_LENGTH : 0))
  answer.copy(cut, 0, 0, questionEnd)
  cut[2] = byte(answer, 2) | FLAG_TC
  cut.fill(0, 6, HEADER_LENGTH)
  if (!hasEdns) return cut
  put16(cut, 10, 1)
  putOpt(cut, questionEnd, dnssecOk, 0)
  return cut
}

/** Writes our own EDNS record: version 0, without options. */
function putOpt(response: Buffer, at: number, dnssecOk: boolean, extendedCode: number): void {
  response[at] = 0
  put16(response, at + 1, TYPE_OPT)
  put16(response, at + 3, MAX_UDP_SIZE)
  response[at + 5] = extendedCode
  response[at + 6] = 0
  put16(response, at + 7, dnssecOk ? 0x8000 : 0)
  put16(response, at + 9, 0)
}

function put16(message: Buffer, at: number, value: number): void {
  message[at] = value >> 8
  message[at + 1] = value & 0xff
}
