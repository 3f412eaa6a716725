/**
 * A machine for the few nft expressions that icmp-errors.ts writes, with the kernel's semantics (nft_payload.c): a
 * write by raw offset leaves the checksum alone, a write by name changes it by the difference (RFC 1624).
 */
import { type Address, formatAddress } from '../../../model/values/ip.ts'

export interface IcmpErrorInit {
  readonly type: number
  readonly code: number
  readonly source: Address
  readonly destination: Address
  readonly mtu: number
  readonly pointer: number
  readonly payload: Uint8Array
}

/** An ICMP error with a correct checksum: header, inner IPv4 header, payload. */
export function icmpError(init: IcmpErrorInit): Buffer {
  const packet = Buffer.alloc(28 + init.payload.length)
  packet.writeUInt8(init.type, 0)
  packet.writeUInt8(init.code, 1)
  if (init.type === 3 && init.code === 4) packet.writeUInt16BE(init.mtu, 6)
  if (init.type === 12) packet.writeUInt8(init.pointer, 4)
  packet.writeUInt8(0x45, 8)
  packet.writeUInt16BE(20 + init.payload.length, 10)
  packet.writeUInt8(63, 16)
  packet.writeUInt8(17, 17)
  packet.writeUInt32BE(Number(init.source.value), 20)
  packet.writeUInt32BE(Number(init.destination.value), 24)
  packet.writeUInt16BE(~sum(packet.subarray(8, 28)) & 0xffff, 18)
  packet.set(init.payload, 28)
  packet.writeUInt16BE(~sum(packet) & 0xffff, 2)
  return packet
}

export function checksumIsRight(packet: Buffer): boolean {
  return sum(packet) === 0xffff
}

/** The inner address at a bit offset, as text. */
export function innerAddress(packet: Buffer, offset: number): string {
  return formatAddress({ family: 4, value: BigInt(packet.readUInt32BE(offset / 8)) })
}

/** The packet with the checksum and the inner address blanked. */
export function withoutAddress(packet: Buffer, offset: number): Buffer {
  const copy = Buffer.from(packet)
  copy.writeUInt16BE(0, 2)
  copy.writeUInt32BE(0, offset / 8)
  return copy
}

/** Applies the first rule whose matches hold, and returns whether there was one. */
export function applyRules(rules: readonly string[], packet: Buffer): boolean {
  return rules.some((rule) => applyRule(rule, packet))
}

type Step = readonly [pattern: RegExp, action: (match: RegExpExecArray, packet: Buffer) => boolean]

const NAMED: Readonly<Record<string, readonly [offset: number, bytes: number]>> = {
  type: [0, 1],
  code: [1, 1],
  mtu: [6, 2],
}

const STEPS: readonly Step[] = [
  [/^icmp (type|code|mtu) set (\d+) ?/, (m, p) => writeNamed(p, m[1]!, Number(m[2]))],
  [
    /^icmp (type|code) (!= )?(\d+) ?/,
    (m, p) => (p.readUInt8(m[1] === 'type' ? 0 : 1) === Number(m[3])) === (m[2] === undefined),
  ],
  [
    /^@th,(\d+),32 set @th,(\d+),32 & (0x\w+) \| (0x\w+) ?/,
    (m, p) => {
      const value = BigInt(p.readUInt32BE(Number(m[2]) / 8))
      p.writeUInt32BE(Number((value & BigInt(m[3]!)) | BigInt(m[4]!)), Number(m[1]) / 8)
      return true
    },
  ],
  [/^@th,(\d+),16 set (0x\w+) ?/, (m, p) => p.writeUInt16BE(Number(m[2]), Number(m[1]) / 8) > 0],
  [/^@th,(\d+),16 (\d+) ?/, (m, p) => p.readUInt16BE(Number(m[1]) / 8) === Number(m[2])],
  [/^return$/, () => true],
]

function applyRule(rule: string, packet: Buffer): boolean {
  let rest = rule
  while (rest !== '') {
    const step = STEPS.map(([pattern, action]) => ({ match: pattern.exec(rest), action })).find(
      ({ match }) => match !== null,
    )
    if (step?.match == null) throw new Error(`the machine does not know: ${rest}`)
    if (!step.action(step.match, packet)) return false
    rest = rest.slice(step.match[0].length)
  }
  return true
}

// nft reads, changes and writes 16 bits even if the field is smaller, and the checksum covers those 16 bits.
function writeNamed(packet: Buffer, field: string, value: number): boolean {
  const [offset, bytes] = NAMED[field]!
  const word = offset & ~1
  const before = packet.readUInt16BE(word)
  if (bytes === 1) packet.writeUInt8(value, offset)
  else packet.writeUInt16BE(value, offset)
  const change = fold((~before & 0xffff) + packet.readUInt16BE(word))
  packet.writeUInt16BE(~fold((~packet.readUInt16BE(2) & 0xffff) + change) & 0xffff, 2)
  return true
}

function sum(bytes: Buffer): number {
  let total = 0
  for (let i = 0; i < bytes.length; i += 2) total += (bytes[i]! << 8) | (bytes[i + 1] ?? 0)
  return fold(total)
}

function fold(total: number): number {
  let folded = total
  while (folded > 0xffff) folded = (folded & 0xffff) + (folded >>> 16)
  return folded
}
