/**
 * The health probe, 32 bytes, sent inside the tunnel, which authenticates and encrypts it.
 *
 *  0 magic "SLP1" │ 4 type │ 5 lane │ 6 zero, 2 │ 8 session, 4 │ 12 sequence, 4 │ 16 sender's clock, µs, 8 │ 24 zero, 8
 *
 * Numbers are in network order. An answer repeats the question with type 2.
 */

export const PROBE_BYTES = 32

export interface Probe {
  readonly type: 'question' | 'answer'
  readonly lane: number
  /** Chosen when the sender starts: an answer to an earlier run of the process is not taken for one to this. */
  readonly session: number
  readonly sequence: number
  /** The sender's monotonic clock. */
  readonly sentMicros: bigint
}

const MAGIC = 0x534c5031
const QUESTION = 1
const ANSWER = 2

export function encodeProbe(probe: Probe): Buffer {
  const bytes = Buffer.alloc(PROBE_BYTES)
  bytes.writeUInt32BE(MAGIC, 0)
  bytes.writeUInt8(probe.type === 'question' ? QUESTION : ANSWER, 4)
  bytes.writeUInt8(probe.lane, 5)
  bytes.writeUInt32BE(probe.session, 8)
  bytes.writeUInt32BE(probe.sequence, 12)
  bytes.writeBigUInt64BE(probe.sentMicros, 16)
  return bytes
}

/** Undefined for anything but a whole, well-formed probe. Never throws. */
export function decodeProbe(bytes: Buffer): Probe | undefined {
  if (bytes.length !== PROBE_BYTES || bytes.readUInt32BE(0) !== MAGIC) return undefined
  const type = bytes.readUInt8(4)
  if (type !== QUESTION && type !== ANSWER) return undefined
  if (bytes.readUInt16BE(6) !== 0 || bytes.readBigUInt64BE(24) !== 0n) return undefined
  return {
    type: type === QUESTION ? 'question' : 'answer',
    lane: bytes.readUInt8(5),
    session: bytes.readUInt32BE(8),
    sequence: bytes.readUInt32BE(12),
    sentMicros: bytes.readBigUInt64BE(16),
  }
}
