/**
 * The notice, 32 bytes, sent beside the probes (probe-packet.ts) inside the tunnel, which says who sent it: a far end is
 * about to change its identity. Who does not know it takes it for no probe, and lets it be.
 *
 *  0 magic "SLP1" │ 4 type │ 5 lane │ 6 zero, 2 │ 8 mark, 4 │ 12 step, 4 │ 16 zero, 16
 *
 * Numbers are in network order. A notice has type 5; a receipt repeats it with type 6.
 */

const NOTICE_BYTES = 32
const NOTICE_MAGIC = 0x534c5031
/** 1 to 4 are probes. */
const NOTICE = 5
const RECEIPT = 6

/** known: do you know the identity? soon: are you ready to follow? now: this is the last that comes from the old one. */
export type NoticeStep = 'known' | 'soon' | 'now'
const STEPS: readonly NoticeStep[] = ['known', 'soon', 'now']

export interface Notice {
  readonly type: 'notice' | 'receipt'
  /** Of who sends the notice. */
  readonly lane: number
  /** Names the identity that is about to be taken. */
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

/** Undefined for anything but a whole, well-formed notice or receipt. Never throws. */
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
