/**
 * Probes between the two ends of a link, beside the packets of its cable and through the same mappings of every NAT:
 * they show which places of the far end can be called, before the cable calls there. Both messages have 64 octets:
 *
 *   0 magic "SLR1" │ 4 type │ 5 zero, 3 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8 │ 32 place, 6 │ 38 zero, 10 │ 48 MAC, 16
 *
 * `from` and `to` are endId() of the ends: `from` is the end that probes, also in the answer. In a probe the place is
 * that which is probed; in an answer, that from which the probe came. The MAC is made by probeKey(), which the two ends
 * alone can compute. First word, numbers, places and MAC are as in bind-frame.ts; the length tells the messages apart.
 */
import { hkdfSync } from 'node:crypto'
import type { AddressPort } from '../../../model/addresses/addresses.ts'
import {
  BIND_MAGIC,
  MAC_BYTES,
  counterAt,
  endsOf,
  hasMac,
  lengthPrefixed,
  placeAt,
  withMac,
  writePlace,
} from './bind-frame.ts'

export const PROBE_BYTES = 64
const TYPES = { probe: 6, answer: 7 } as const
const PADDING = { from: 38, to: PROBE_BYTES - MAC_BYTES }

export interface PunchMessage {
  readonly type: keyof typeof TYPES
  /** endId() of the end that probes. */
  readonly from: string
  readonly to: string
  /** Each probe has a greater one than all before. An answer has that of its probe. */
  readonly counter: number
  /** Where the probe goes; in an answer, where it came from. */
  readonly place: AddressPort
}

export interface ProbeKeyInit {
  /** What the identities of the two ends agree on (X25519). */
  readonly secret: Buffer
  readonly clusterset: string
  readonly identities: readonly [string, string]
}

/** The key of two ends for the MACs of their probes: the same at both, and another one than that of bindKey(). */
export function probeKey({ secret, clusterset, identities }: ProbeKeyInit): Buffer {
  const info = Buffer.concat([Buffer.from('sealane probe 1\0'), lengthPrefixed(...[...identities].sort())])
  return Buffer.from(hkdfSync('sha256', secret, clusterset, info, 32))
}

export function encodeProbe({ type, from, to, counter, place }: PunchMessage, key: Buffer): Buffer {
  const bytes = Buffer.alloc(PROBE_BYTES)
  bytes.writeUInt32BE(BIND_MAGIC, 0)
  bytes.writeUInt8(TYPES[type], 4)
  bytes.write(from, 8, 8, 'hex')
  bytes.write(to, 16, 8, 'hex')
  bytes.writeBigUInt64BE(BigInt(counter), 24)
  writePlace(bytes, place, 32)
  return withMac(bytes, key)
}

/** The ends that octets name, before anything is proven. Undefined unless they have the length of a probe. */
export function namedProbe(bytes: Buffer): Pick<PunchMessage, 'from' | 'to'> | undefined {
  return bytes.length === PROBE_BYTES && bytes.readUInt32BE(0) === BIND_MAGIC ? endsOf(bytes) : undefined
}

/** Returns undefined unless the octets are a well-formed message with the MAC of this key. Never throws. */
export function decodeProbe(bytes: Buffer, key: Buffer): PunchMessage | undefined {
  if (namedProbe(bytes) === undefined || !hasMac(bytes, key)) return undefined
  const code = bytes.readUInt8(4)
  const type = code === TYPES.probe ? 'probe' : code === TYPES.answer ? 'answer' : undefined
  const [counter, place] = [counterAt(bytes, 24), placeAt(bytes, 32)]
  const isPadded = bytes.readUIntBE(5, 3) === 0 && bytes.subarray(PADDING.from, PADDING.to).every((one) => one === 0)
  if (type === undefined || counter === undefined || place === undefined || !isPadded) return undefined
  return { type, ...endsOf(bytes), counter, place }
}
