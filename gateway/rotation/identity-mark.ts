/** An identity as one number, to name it in a notice (kernel/probing/notice-packet.ts). */
import { createHash } from 'node:crypto'

export function identityMark(identity: string): number {
  return createHash('sha256').update(identity).digest().readUInt32BE(0)
}
