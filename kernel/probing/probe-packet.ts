/**
 * The health probe: 32 octets, sent inside the tunnel, which authenticates and encrypts it.
 *
 *  0 magic "SLP1" │ 4 type │ 5 lane │ 6 zero, 2 │ 8 session, 4 │ 12 sequence, 4 │ 16 sender's clock, µs, 8 │ 24 zero, 8
 *
 * Numbers are in network order. An answer repeats the question with type 2.
 *
 * A padded question has type 3, and zeros up to the size that it tests. Its answer has 32 octets and type 4:
 *
 *  24 octets of the question's IP packet, 2 │ 26 octets of the largest packet that gets from the sender of this message
 *  to the other end, 2; zero if not known │ 28 zero, 4
 *
 * Releases up to 0.1 ignore packets of any other length or type. Releases that understand them announce
 * CAPABILITY_SIZED_PROBES.
 */

export const PROBE_BYTES = 32
/** Octets of the IPv4 and UDP headers: RFC 791, RFC 768. */
export const PROBE_HEADERS = 28

export interface Probe {
  readonly type: 'question' | 'answer'
  readonly lane: number
  /** Chosen when the sender starts, so that answers to an earlier run of the process are ignored. */
  readonly session: number
  readonly sequence: number
  /** Monotonic clock of the sender. */
  readonly sentMicros: bigint
}

/** A padded question or its answer. */
export interface SizedProbe extends Omit<Probe, 'type'> {
  readonly type: 'sizedQuestion' | 'sizedAnswer'
  /** Octets of the question as an IP packet. */
  readonly size: number
  /** Octets of the largest packet that gets from the sender of this message to the other end; 0 if not known. */
  readonly carries: number
}

const MAGIC = 0x534c5031
const TYPES = { question: 1, answer: 2, sizedQuestion: 3, sizedAnswer: 4 } as const

/** The length of a padded question is its size. */
export function encodeProbe(probe: Probe | SizedProbe): Buffer {
  const bytes = Buffer.alloc(probe.type === 'sizedQuestion' ? probe.size - PROBE_HEADERS : PROBE_BYTES)
  bytes.writeUInt32BE(MAGIC, 0)
  bytes.writeUInt8(TYPES[probe.type], 4)
  bytes.writeUInt8(probe.lane, 5)
  bytes.writeUInt32BE(probe.session, 8)
  bytes.writeUInt32BE(probe.sequence, 12)
  bytes.writeBigUInt64BE(probe.sentMicros, 16)
  if ('size' in probe) {
    bytes.writeUInt16BE(probe.size, 24)
    bytes.writeUInt16BE(probe.carries, 26)
  }
  return bytes
}

/** Returns undefined unless the bytes are a complete, well-formed probe. Never throws. */
export function decodeProbe(bytes: Buffer): Probe | SizedProbe | undefined {
  if (bytes.length < PROBE_BYTES || bytes.readUInt32BE(0) !== MAGIC || bytes.readUInt16BE(6) !== 0) return undefined
  const fields = {
    lane: bytes.readUInt8(5),
    session: bytes.readUInt32BE(8),
    sequence: bytes.readUInt32BE(12),
    sentMicros: bytes.readBigUInt64BE(16),
  }
  const sized = { size: bytes.readUInt16BE(24), carries: bytes.readUInt16BE(26) }
  const isShort = bytes.length === PROBE_BYTES
  switch (bytes.readUInt8(4)) {
    case TYPES.question:
      return isShort && bytes.readBigUInt64BE(24) === 0n ? { type: 'question', ...fields } : undefined
    case TYPES.answer:
      return isShort && bytes.readBigUInt64BE(24) === 0n ? { type: 'answer', ...fields } : undefined
    case TYPES.sizedQuestion:
      return bytes.length === sized.size - PROBE_HEADERS && bytes.readUInt32BE(28) === 0
        ? { type: 'sizedQuestion', ...fields, ...sized }
        : undefined
    case TYPES.sizedAnswer:
      return isShort && bytes.readUInt32BE(28) === 0 ? { type: 'sizedAnswer', ...fields, ...sized } : undefined
    default:
      return undefined
  }
}

/**
 * The notice that a far end is about to change its identity: 32 octets, sent beside the probes inside the tunnel, which
 * authenticates the sender. A far end that does not know notices ignores them, because they are not probes.
 *
 *  0 magic "SLP1" │ 4 type │ 5 lane │ 6 zero, 2 │ 8 mark, 4 │ 12 step, 4 │ 16 zero, 16
 *
 * Numbers are in network order. A notice has type 5; a receipt repeats it with type 6.
 */

const NOTICE_BYTES = 32
const NOTICE_MAGIC = 0x534c5031
/** Types 1 to 4 are probes. */
const NOTICE = 5
const RECEIPT = 6

/**
 * known: asks whether the receiver knows the identity. soon: asks whether it is ready to switch. now: the last message
 * from the old identity.
 */
export type NoticeStep = 'known' | 'soon' | 'now'
const STEPS: readonly NoticeStep[] = ['known', 'soon', 'now']

export interface Notice {
  readonly type: 'notice' | 'receipt'
  /** Lane number of the sender of the notice. */
  readonly lane: number
  /** Identifies the new identity. */
  readonly mark: number
  readonly step: NoticeStep
}

export function encodeNotice({ type, lane, mark, step }: Notice): Buffer {
  const bytes = Buffer.alloc(NOTICE_BYTES)
  bytes.writeUInt32BE(NOTICE_MAGIC, 0)
  bytes.writeUInt8(type === 'notice' ? NOTICE : RECEIPT, 4)
  bytes.writeUInt8(lane, 5)
  bytes.writeUInt32BE(mark, 8)
  bytes.writeUInt32BE(STEPS.indexOf(step), 12)
  return bytes
}

/** Returns undefined unless the bytes are a complete, well-formed notice or receipt. Never throws. */
export function decodeNotice(bytes: Buffer): Notice | undefined {
  if (bytes.length !== NOTICE_BYTES || bytes.readUInt32BE(0) !== NOTICE_MAGIC) return undefined
  const type = bytes.readUInt8(4)
  const step = STEPS[bytes.readUInt32BE(12)]
  if ((type !== NOTICE && type !== RECEIPT) || step === undefined || bytes.readUInt16BE(6) !== 0) return undefined
  if (bytes.readBigUInt64BE(16) !== 0n || bytes.readBigUInt64BE(24) !== 0n) return undefined
  return {
    type: type === NOTICE ? 'notice' : 'receipt',
    lane: bytes.readUInt8(5),
    mark: bytes.readUInt32BE(8),
    step,
  }
}
