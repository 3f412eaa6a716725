/** A small reader and writer of DNS messages for tests, independent of the code under test (RFC 1035, RFC 6891). */

export const TYPE = { A: 1, NS: 2, SOA: 6, PTR: 12, TXT: 16, AAAA: 28, SRV: 33, OPT: 41, HTTPS: 65, AXFR: 252 } as const

export interface QueryInit {
  readonly id?: number
  readonly type?: number
  readonly class?: number
  readonly recursionDesired?: boolean
  readonly edns?: {
    readonly size: number
    readonly version?: number
    readonly dnssecOk?: boolean
    readonly options?: Buffer
  }
}

/** Returns the bytes of a query, with the letter case of the name. */
export function query(name: string, init: QueryInit = {}): Buffer {
  const { id = 0x1234, type = TYPE.A, class: dnsClass = 1, edns } = init
  const header = uint16s(id, init.recursionDesired === false ? 0 : 0x0100, 1, 0, 0, edns === undefined ? 0 : 1)
  const parts = [header, nameBytes(name), uint16s(type, dnsClass)]
  if (edns !== undefined) {
    const { size, version = 0, dnssecOk = false, options = Buffer.alloc(0) } = edns
    parts.push(Buffer.from([0]), uint16s(TYPE.OPT, size, version, dnssecOk ? 0x8000 : 0, options.length), options)
  }
  return Buffer.concat(parts)
}

export function nameBytes(name: string): Buffer {
  const labels = name.split('.').filter((label) => label !== '')
  return Buffer.concat([
    ...labels.map((label) => Buffer.from([label.length, ...Buffer.from(label, 'latin1')])),
    Buffer.from([0]),
  ])
}

export function uint16s(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 2)
  for (const [i, value] of values.entries()) bytes.writeUInt16BE(value, i * 2)
  return bytes
}

export interface WireRecord {
  readonly name: string
  readonly type: number
  readonly class: number
  readonly ttl: number
  /** The data as an address, as `priority weight port target`, as text or in hexadecimal. */
  readonly data: string
}

export interface WireMessage {
  readonly id: number
  /** The names of the flags that are set, with the code last: `qr aa rd NOERROR`. */
  readonly flags: string
  readonly rcode: number
  readonly question: string
  readonly answers: readonly WireRecord[]
  readonly authorities: readonly WireRecord[]
  readonly additionals: readonly WireRecord[]
}

const FLAGS: readonly (readonly [number, string])[] = [
  [0x8000, 'qr'],
  [0x0400, 'aa'],
  [0x0200, 'tc'],
  [0x0100, 'rd'],
  [0x0080, 'ra'],
  [0x0010, 'cd'],
]
const RCODES = ['NOERROR', 'FORMERR', 'SERVFAIL', 'NXDOMAIN', 'NOTIMP', 'REFUSED']

/** Throws when the message is not valid, or when octets follow it. */
export function decode(message: Buffer): WireMessage {
  let at = 12
  const count = (i: number): number => message.readUInt16BE(4 + 2 * i)
  let question = ''
  for (let i = 0; i < count(0); i += 1) {
    const name = readName(message, at)
    question = name.text
    at = name.end + 4
  }
  const section = (n: number): WireRecord[] =>
    Array.from({ length: n }, () => {
      const { record, end } = readRecord(message, at)
      at = end
      return record
    })
  const answers = section(count(1))
  const authorities = section(count(2))
  const additionals = section(count(3))
  if (at !== message.length) throw new Error(`${message.length - at} octets after the message`)
  const bits = message.readUInt16BE(2)
  const rcode = bits & 15
  const flags = [...FLAGS.flatMap(([bit, name]) => ((bits & bit) === 0 ? [] : [name])), RCODES[rcode]].join(' ')
  return { id: message.readUInt16BE(0), flags, rcode, question, answers, authorities, additionals }
}

function readRecord(message: Buffer, start: number): { record: WireRecord; end: number } {
  const { text: name, end: at } = readName(message, start)
  const type = message.readUInt16BE(at)
  const dataAt = at + 10
  const end = dataAt + message.readUInt16BE(at + 8)
  if (end > message.length) throw new Error('record runs past the message')
  const record = {
    name,
    type,
    class: message.readUInt16BE(at + 2),
    ttl: message.readUInt32BE(at + 4),
    data: dataText(message, type, dataAt, end),
  }
  return { record, end }
}

function dataText(message: Buffer, type: number, at: number, end: number): string {
  const data = message.subarray(at, end)
  switch (type) {
    case TYPE.A:
      return data.join('.')
    case TYPE.AAAA:
      return (
        data
          .toString('hex')
          .match(/.{4}/g)
          ?.map((group) => group.replace(/^0+(?=.)/, ''))
          .join(':') ?? ''
      )
    case TYPE.SRV: {
      const target = readName(message, at + 6)
      if (target.end !== end) throw new Error('SRV target is compressed or too short')
      return `${data.readUInt16BE(0)} ${data.readUInt16BE(2)} ${data.readUInt16BE(4)} ${target.text}`
    }
    case TYPE.TXT:
      return data.toString('latin1', 1, 1 + (data[0] ?? 0))
    case TYPE.NS:
      return readName(message, at).text
    case TYPE.SOA: {
      const primary = readName(message, at)
      const admin = readName(message, primary.end)
      const numbers = Array.from({ length: 5 }, (_, i) => message.readUInt32BE(admin.end + 4 * i))
      return [primary.text, admin.text, ...numbers].join(' ')
    }
    default:
      return data.toString('hex')
  }
}

function readName(message: Buffer, start: number): { text: string; end: number } {
  let text = ''
  let at = start
  let end = -1
  for (let steps = 0; steps < 128; steps += 1) {
    const length = message.readUInt8(at)
    if (length === 0) return { text: text === '' ? '.' : text, end: end < 0 ? at + 1 : end }
    if (length >= 0xc0) {
      if (end < 0) end = at + 2
      at = message.readUInt16BE(at) & 0x3fff
      continue
    }
    text += `${message.toString('latin1', at + 1, at + 1 + length)}.`
    at += length + 1
  }
  throw new Error('name does not end')
}
