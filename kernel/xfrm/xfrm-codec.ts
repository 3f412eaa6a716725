/** Encodes and decodes messages of XFRM policies (linux/xfrm.h). Pure. */
import {
  type Address,
  type Family,
  addressBits,
  formatPrefix,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../model/addresses/addresses.ts'
import { XFRM_PRIORITY_ADMITTED, XFRM_PRIORITY_REFUSED } from '../../model/model.ts'
import {
  AF_INET,
  AF_INET6,
  type Attribute,
  addressBytes,
  attributes,
  body,
  readAddress,
  readU16,
  readU32,
  u16,
  u32,
  u64,
} from '../route/route.ts'
import {
  type EarlierPolicy,
  type ForwardPolicy,
  type ListedPolicy,
  lifetimeSeconds,
  priorityOf,
} from './forward-policies.ts'

export const NEW_POLICY = 0x13
export const DELETE_POLICY = 0x14
export const GET_POLICY = 0x15
export const UPDATE_POLICY = 0x19

// struct xfrm_selector: daddr, saddr, four ports, family, prefix lengths, protocol, ifindex, user.
const SELECTOR_BYTES = 56
const [SOURCE_AT, PORTS_AT, FAMILY_AT, LENGTHS_AT, PROTOCOL_AT, DEVICE_AT, USER_AT] = [
  16, 32, 40, 42, 44, 48, 52,
] as const
// struct xfrm_userpolicy_info: the selector, limits, use, priority, index, direction, action, flags, share.
const LIMITS_BYTES = 64
const USE_BYTES = 32
const PRIORITY_AT = SELECTOR_BYTES + LIMITS_BYTES + USE_BYTES
const [INDEX_AT, DIRECTION_AT, ACTION_AT] = [PRIORITY_AT + 4, PRIORITY_AT + 8, PRIORITY_AT + 9] as const
const INFO_BYTES = 168
// struct xfrm_userpolicy_id: the selector, index, direction.
const ID_BYTES = 64

const XFRMA_TMPL = 5
const XFRMA_SEC_CTX = 8
const XFRMA_POLICY_TYPE = 16
const XFRMA_MARK = 21
const XFRMA_IF_ID = 31

const DIRECTION_FORWARD = 2
const [ALLOW, BLOCK] = [0, 1] as const
/** The first four limits count bytes and packets; all bits mean none. The other ones are times; 0 means none. */
const COUNTED_BYTES = 32
/** struct xfrm_lifetime_cfg: hard_add_expires_seconds. The times are those since adding, then since use; soft, then hard. */
const HARD_ADD_AT = 40

/** The body of a request for all policies. */
export function encodeList(): Uint8Array[] {
  return [Buffer.alloc(ID_BYTES)]
}

export function encodeNew(policy: ForwardPolicy): Uint8Array[] {
  const limits = Buffer.alloc(LIMITS_BYTES).fill(0xff, 0, COUNTED_BYTES)
  limits.set(u64(lifetimeSeconds(policy)), HARD_ADD_AT)
  const end = Buffer.alloc(INFO_BYTES - DIRECTION_AT)
  end[0] = DIRECTION_FORWARD
  end[1] = policy.action === 'allow' ? ALLOW : BLOCK
  const head = [selector(policy), limits, Buffer.alloc(USE_BYTES), u32(priorityOf(policy)), u32(0), end]
  return body(Buffer.concat(head), markAttribute(policy))
}

export function encodeDelete(policy: ListedPolicy): Uint8Array[] {
  const head = [selector(policy), u32(policy.index), Buffer.from([DIRECTION_FORWARD, 0, 0, 0])]
  return body(Buffer.concat(head), markAttribute(policy))
}

/** Undefined if the policy is not of a form that we add, or has another priority. */
export function decodePolicy(data: Buffer): ListedPolicy | undefined {
  if (data.length < INFO_BYTES || data[DIRECTION_AT] !== DIRECTION_FORWARD) return undefined
  const priority = readU32(data, PRIORITY_AT)
  const [allows, blocks] = [priority === XFRM_PRIORITY_ADMITTED, priority === XFRM_PRIORITY_REFUSED]
  if ((!allows && !blocks) || data[ACTION_AT] !== (allows ? ALLOW : BLOCK)) return undefined
  const prefixes = decodeSelector(data)
  const found = attributes(data, INFO_BYTES)
  if (prefixes === undefined || !isPlain(found)) return undefined
  const bits = found.get(XFRMA_MARK)
  const [value, mask] = bits === undefined || bits.length < 8 ? [0, 0] : [readU32(bits, 0), readU32(bits, 4)]
  if (value !== mask) return undefined
  const index = readU32(data, INDEX_AT)
  return { ...prefixes, action: allows ? 'allow' : 'block', ...(mask === 0 ? {} : { mark: mask }), index } as const
}

/** Undefined if the kernel prefers ours, or if it does not concern all marks and XFRM devices. */
export function decodeEarlier(data: Buffer): EarlierPolicy | undefined {
  if (data.length < INFO_BYTES || data[DIRECTION_AT] !== DIRECTION_FORWARD) return undefined
  const priority = readU32(data, PRIORITY_AT)
  const found = attributes(data, INFO_BYTES)
  const mask = found.get(XFRMA_MARK)?.subarray(4, 8) ?? []
  if (priority >= XFRM_PRIORITY_ADMITTED || !isOfAllDevices(found) || mask.some((byte) => byte !== 0)) return undefined
  const decoded = decodePrefixes(data)
  return decoded === undefined ? undefined : { ...decoded.prefixes, priority }
}

/** Not for IPsec, not of an XFRM device, and of the main kind. */
function isPlain(found: ReadonlyMap<number, Buffer>): boolean {
  return !found.has(XFRMA_TMPL) && !found.has(XFRMA_SEC_CTX) && isOfAllDevices(found)
}

/** Not of one XFRM device, and of the main kind. */
function isOfAllDevices(found: ReadonlyMap<number, Buffer>): boolean {
  const device = found.get(XFRMA_IF_ID) ?? []
  return device.every((byte) => byte === 0) && (found.get(XFRMA_POLICY_TYPE)?.[0] ?? 0) === 0
}

function selector({ source, destination, outputIndex = 0 }: ForwardPolicy): Buffer {
  const [from, to] = [parsePrefix(source), parsePrefix(destination)]
  const lengths = Buffer.from([to.length, from.length])
  return Buffer.concat([
    ...[destination, source].map(wideAddress),
    Buffer.alloc(FAMILY_AT - PORTS_AT),
    u16(to.family === 4 ? AF_INET : AF_INET6),
    lengths,
    Buffer.alloc(DEVICE_AT - PROTOCOL_AT),
    u32(outputIndex),
    Buffer.alloc(SELECTOR_BYTES - USER_AT),
  ])
}

function decodeSelector(data: Buffer): Pick<ForwardPolicy, 'source' | 'destination' | 'outputIndex'> | undefined {
  const isUnset = (from: number, to: number): boolean => data.subarray(from, to).every((byte) => byte === 0)
  if (!isUnset(PORTS_AT, FAMILY_AT) || data[PROTOCOL_AT] !== 0) return undefined
  if (readU32(data, USER_AT) !== 0) return undefined
  const decoded = decodePrefixes(data)
  if (decoded?.isCanonical !== true) return undefined
  const outputIndex = readU32(data, DEVICE_AT)
  return { ...decoded.prefixes, ...(outputIndex === 0 ? {} : { outputIndex }) }
}

interface DecodedPrefixes {
  readonly prefixes: Pick<ForwardPolicy, 'source' | 'destination'>
  /** False if host bits are set, as only other software does: the kernel keeps them, and does not compare them. */
  readonly isCanonical: boolean
}

function decodePrefixes(data: Buffer): DecodedPrefixes | undefined {
  const kind = readU16(data, FAMILY_AT)
  if (kind !== AF_INET && kind !== AF_INET6) return undefined
  const family: Family = kind === AF_INET ? 4 : 6
  const bits = addressBits(family)
  const [toLength, fromLength] = [data[LENGTHS_AT] ?? 0, data[LENGTHS_AT + 1] ?? 0]
  if (toLength > bits || fromLength > bits) return undefined
  const addressAt = (at: number): Address => parseAddress(readAddress(data.subarray(at, at + bits / 8)))
  const [to, from] = [addressAt(0), addressAt(SOURCE_AT)]
  const [destination, source] = [prefixOf(to, toLength), prefixOf(from, fromLength)]
  return {
    prefixes: { source: formatPrefix(source), destination: formatPrefix(destination) },
    isCanonical: source.value === from.value && destination.value === to.value,
  }
}

/** xfrm_address_t has room for IPv6. */
function wideAddress(prefix: string): Buffer {
  const bytes = addressBytes(prefix.slice(0, prefix.indexOf('/')))
  return Buffer.concat([bytes, Buffer.alloc(SOURCE_AT - bytes.length)])
}

function markAttribute({ mark }: ForwardPolicy): Attribute[] {
  return mark === undefined ? [] : [[XFRMA_MARK, Buffer.concat([u32(mark), u32(mark)])]]
}
