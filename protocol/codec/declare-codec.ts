/** The first message of a Publish stream. */
import type { PublishMessage } from '../broker-api.ts'
import * as wire from '../gen/broker.ts'
import { HASH_BYTES } from '../limits.ts'
import * as check from './codec-checks.ts'

type Declare = Extract<PublishMessage, { t: 'declare' }>

export function declareToWire({
  setHash,
  count,
  tellsStatus = false,
  takesQuota = false,
  givesHeld = false,
}: Omit<Declare, 'tellsStatus' | 'takesQuota' | 'givesHeld'> & {
  readonly tellsStatus?: boolean
  readonly takesQuota?: boolean
  readonly givesHeld?: boolean
}): wire.PublishMessage_Declare {
  return { setHash: Buffer.from(setHash), count, tellsStatus, takesQuota, givesHeld }
}

/** Throws CodecError. */
export function declareFromWire(value: wire.PublishMessage_Declare): Declare {
  return {
    t: 'declare',
    setHash: check.bytes(value.setHash, 'setHash', HASH_BYTES, HASH_BYTES),
    count: check.count(value.count, 'count'),
    ...(value.tellsStatus ? { tellsStatus: true } : {}),
    ...(value.takesQuota ? { takesQuota: true } : {}),
    ...(value.givesHeld ? { givesHeld: true } : {}),
  }
}
