/**
 * The messages by which a gateway asks the router in front of it for a port outside: PCP (RFC 6887), and NAT-PMP (RFC
 * 6886) for routers that know no other. Both are spoken at the same port. Only IPv4 and UDP.
 *
 *   PCP, MAP (60 octets)      0 version 2 │ 1 answer?, opcode 1 │ 2 zero │ 3 result │ 4 lifetime, 4
 *     question                8 address of the client, 16
 *     answer                  8 epoch, 4 │ 12 zero, 12
 *                             24 nonce, 12 │ 36 protocol 17 │ 37 zero, 3 │ 40 port inside, 2 │ 42 port outside, 2
 *                             44 address outside, 16
 *   NAT-PMP, address          0 version 0 │ 1 opcode 0            answer: 128 │ 2 result, 2 │ 4 epoch, 4 │ 8 address, 4
 *   NAT-PMP, mapping          0 version 0 │ 1 opcode 1 │ 2 zero, 2 │ 4 port inside, 2 │ 6 port outside, 2 │ 8 lifetime, 4
 *     answer                  1 129 │ 2 result, 2 │ 4 epoch, 4 │ 8 port inside, 2 │ 10 port outside, 2 │ 12 lifetime, 4
 *
 * Numbers are in network order, lifetimes in seconds. IPv4 addresses of PCP are IPv4-mapped IPv6 addresses.
 */
import { type Address, formatAddress, parseAddress } from '../../../model/addresses/addresses.ts'

/** UDP port of routers, for both protocols. */
export const ROUTER_PORT = 5351
export const NONCE_BYTES = 12
/** The longest message of PCP (RFC 6887 section 7). */
const LONGEST_BYTES = 1100
const PCP_BYTES = 60
const [PCP_VERSION, NATPMP_VERSION] = [2, 0]
const [IS_ANSWER, OPCODE_ADDRESS, OPCODE_MAP] = [0x80, 0, 1]
const UDP = 17
/** The result code of both protocols for a version that the router does not know. */
const UNSUPPORTED_VERSION = 1
const MAPPED_PREFIX = Buffer.from('00000000000000000000ffff', 'hex')

export type MappingProtocol = 'pcp' | 'natPmp'

export interface MapQuestion {
  /** Port of this node. */
  readonly inside: number
  /** The port outside that is wanted. The router may give another one. */
  readonly outside: number
  /** 0 ends the mapping. */
  readonly lifetimeSeconds: number
}

/** `result` 0 is success: RFC 6887 section 7.4, RFC 6886 section 3.5. `epoch`: seconds since the router forgot all. */
export type MappingAnswer =
  | {
      readonly is: 'pcp'
      readonly result: number
      readonly epoch: number
      readonly nonce: Buffer
      readonly inside: number
      readonly outside: number
      readonly address: Address
      readonly lifetimeSeconds: number
    }
  | { readonly is: 'natPmpAddress'; readonly result: number; readonly epoch: number; readonly address: Address }
  | {
      readonly is: 'natPmp'
      readonly result: number
      readonly epoch: number
      readonly inside: number
      readonly outside: number
      readonly lifetimeSeconds: number
    }
  /** The router does not know the protocol. */
  | { readonly is: 'unknownVersion'; readonly of: MappingProtocol }

/**
 * A mapping ends with port 0 outside (RFC 6887 section 15.1). `client`: the address from which this question is sent. `nonce`: NONCE_BYTES octets that name the mapping.
 */
export function encodePcpMap(
  { inside, outside, lifetimeSeconds }: MapQuestion,
  { client, nonce }: { readonly client: Address; readonly nonce: Buffer },
): Buffer {
  const bytes = Buffer.alloc(PCP_BYTES)
  bytes[0] = PCP_VERSION
  bytes[1] = OPCODE_MAP
  bytes.writeUInt32BE(lifetimeSeconds, 4)
  writeMapped(bytes, 8, formatAddress(client))
  nonce.copy(bytes, 24, 0, NONCE_BYTES)
  bytes[36] = UDP
  bytes.writeUInt16BE(inside, 40)
  bytes.writeUInt16BE(lifetimeSeconds === 0 ? 0 : outside, 42)
  writeMapped(bytes, 44, '0.0.0.0')
  return bytes
}

/** Asks for the router's address outside. */
export function encodeNatPmpAddress(): Buffer {
  return Buffer.from([NATPMP_VERSION, OPCODE_ADDRESS])
}

/** A mapping ends with port 0 outside (RFC 6886 section 3.4). */
export function encodeNatPmpMap({ inside, outside, lifetimeSeconds }: MapQuestion): Buffer {
  const bytes = Buffer.alloc(12)
  bytes[0] = NATPMP_VERSION
  bytes[1] = OPCODE_MAP
  bytes.writeUInt16BE(inside, 4)
  bytes.writeUInt16BE(lifetimeSeconds === 0 ? 0 : outside, 6)
  bytes.writeUInt32BE(lifetimeSeconds, 8)
  return bytes
}

/** Undefined for octets that are no answer. */
export function decodeMapping(bytes: Buffer): MappingAnswer | undefined {
  if (bytes.length < 4 || bytes.length > LONGEST_BYTES || ((bytes[1] ?? 0) & IS_ANSWER) === 0) return undefined
  const opcode = (bytes[1] ?? 0) & ~IS_ANSWER
  if (bytes[0] === PCP_VERSION) return decodePcp(bytes, opcode)
  return bytes[0] === NATPMP_VERSION ? decodeNatPmp(bytes, opcode) : undefined
}

function decodePcp(bytes: Buffer, opcode: number): MappingAnswer | undefined {
  const result = bytes[3] ?? 0
  if (result === UNSUPPORTED_VERSION) return { is: 'unknownVersion', of: 'natPmp' }
  if (opcode !== OPCODE_MAP || bytes.length < PCP_BYTES || bytes.length % 4 !== 0 || bytes[36] !== UDP) return undefined
  const isIpv4 = bytes.subarray(44, 56).equals(MAPPED_PREFIX)
  if (result === 0 && !isIpv4) return undefined
  return {
    ...{ is: 'pcp', result, lifetimeSeconds: bytes.readUInt32BE(4), epoch: bytes.readUInt32BE(8) },
    nonce: Buffer.from(bytes.subarray(24, 36)),
    ...{ inside: bytes.readUInt16BE(40), outside: bytes.readUInt16BE(42), address: addressAt(bytes, 56) },
  }
}

function decodeNatPmp(bytes: Buffer, opcode: number): MappingAnswer | undefined {
  const result = bytes.readUInt16BE(2)
  if (result === UNSUPPORTED_VERSION) return { is: 'unknownVersion', of: 'pcp' }
  if (bytes.length < 8) return undefined
  const epoch = bytes.readUInt32BE(4)
  if (opcode === OPCODE_ADDRESS && (bytes.length === 12 || (bytes.length === 8 && result !== 0))) {
    return { is: 'natPmpAddress', result, epoch, address: addressAt(bytes, bytes.length === 12 ? 8 : undefined) }
  }
  if (opcode !== OPCODE_MAP || bytes.length !== 16) return undefined
  const [inside, outside, lifetimeSeconds] = [bytes.readUInt16BE(8), bytes.readUInt16BE(10), bytes.readUInt32BE(12)]
  return { is: 'natPmp', result, epoch, inside, outside, lifetimeSeconds }
}

function addressAt(bytes: Buffer, at: number | undefined): Address {
  return parseAddress(at === undefined ? '0.0.0.0' : [...bytes.subarray(at, at + 4)].join('.'))
}

function writeMapped(bytes: Buffer, at: number, address: string): void {
  MAPPED_PREFIX.copy(bytes, at)
  address.split('.').forEach((octet, i) => {
    bytes[at + MAPPED_PREFIX.length + i] = Number(octet)
  })
}
