/**
 * Probes between the two ends of a link, beside the packets of its cable and through the same mappings of every NAT:
 * they show which places of the far end can be called, before the cable calls there. Both messages have 64 octets:
 *
 *   0 magic "SLR1" │ 4 type │ 5 zero, 3 │ 8 from, 8 │ 16 to, 8 │ 24 counter, 8 │ 32 place, 6 │ 38 zero, 10 │ 48 MAC, 16
 *
 * `from` and `to` are endId() of the ends: `from` is the end that probes, also in the answer. In a probe the place is
 * that which is probed; in an answer, that from which the probe came. The MAC is made by probeKey(), which the two ends
 * alone can compute. First word, numbers, places and MAC are as in bind-frame.ts; the length tells the messages apart.
 *
 * A request and its reply (port-tries.ts) have the same form, and go through a relay: by their own magic, "SLR2", it takes
 * them for packets of the link. There `from` is the end that requests, and the place is that at which the relay sees the
 * sender.
 */
import { hkdfSync } from 'node:crypto'
import type { AddressPort } from '../../../model/addresses/addresses.ts'
import {
  BIND_MAGIC,
  MAC_BYTES,
  counterAt,
  endsOf,
  hasMac,
  isZero,
  lengthPrefixed,
  placeAt,
  typeAt,
  withMac,
  writeHead,
  writePlace,
} from './bind-frame.ts'

export const PROBE_BYTES = 64
/** The first word of a message that relays forward. */
export const RELAYED_MAGIC = 0x534c5232
const TYPES = { probe: 6, answer: 7, request: 8, reply: 9 } as const
const MAGICS = { probe: BIND_MAGIC, answer: BIND_MAGIC, request: RELAYED_MAGIC, reply: RELAYED_MAGIC } as const
type MessageType = keyof typeof TYPES
const PADDING = { from: 38, to: PROBE_BYTES - MAC_BYTES }

export interface PunchMessage {
  readonly type: MessageType
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

export function encodeProbe({ type, place, ...head }: PunchMessage, key: Buffer): Buffer {
  const bytes = Buffer.alloc(PROBE_BYTES)
  writeHead(bytes, TYPES[type], head, MAGICS[type])
  writePlace(bytes, place, 32)
  return withMac(bytes, key)
}

/** What octets say before anything is proven: the ends, and whether a relay forwards them. */
export interface NamedMessage extends Pick<PunchMessage, 'from' | 'to'> {
  readonly isRelayed: boolean
}

/** Undefined unless the octets have the length and the first word of a message between two ends. */
export function namedProbe(bytes: Buffer): NamedMessage | undefined {
  if (bytes.length !== PROBE_BYTES) return undefined
  const magic = bytes.readUInt32BE(0)
  if (magic !== BIND_MAGIC && magic !== RELAYED_MAGIC) return undefined
  return { ...endsOf(bytes), isRelayed: magic === RELAYED_MAGIC }
}

/** Returns undefined unless the octets are a well-formed message with the MAC of this key. Never throws. */
export function decodeProbe(bytes: Buffer, key: Buffer): PunchMessage | undefined {
  if (namedProbe(bytes) === undefined || !hasMac(bytes, key)) return undefined
  const type = typeOf(bytes)
  const [counter, place] = [counterAt(bytes, 24), placeAt(bytes, 32)]
  const isPadded = isZero(bytes, 5, 8) && isZero(bytes, PADDING.from, PADDING.to)
  if (type === undefined || counter === undefined || place === undefined || !isPadded) return undefined
  return { type, ...endsOf(bytes), counter, place }
}

function typeOf(bytes: Buffer): MessageType | undefined {
  const type = typeAt(bytes, TYPES)
  return type !== undefined && MAGICS[type] === bytes.readUInt32BE(0) ? type : undefined
}
