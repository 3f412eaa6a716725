/** Large messages as several that fit the wire. Pure. */
import type { PublishReply, WatchMessage } from '../broker-api.ts'
import { MAX_BATCH_EVENTS } from '../limits.ts'

/** Well below MAX_MESSAGE_BYTES: framing and keys come on top. */
const PART_BYTES = 1024 * 1024
const NEED_KEYS = 5000
const MAX_SMALL = 256

/** Whether it goes out as it is: so many looks at each message of each stream are too many. */
export function fits(message: WatchMessage): boolean {
  return message.t !== 'batch' || (message.events.length <= MAX_SMALL && sizeOf(message.events) <= PART_BYTES)
}

function sizeOf(events: readonly Uint8Array[]): number {
  let bytes = 0
  for (const event of events) bytes += event.length
  return bytes
}

/**
 * A batch with too many events as several. Only the last may carry the batch's revision: a reader that stops in between
 * resumes from `previousRevision` and sees the rest again.
 */
export function splitBatch(message: WatchMessage, previousRevision: number): WatchMessage[] {
  if (message.t !== 'batch') return [message]
  const parts: Uint8Array[][] = [[]]
  let size = 0
  for (const event of message.events) {
    const current = parts.at(-1) as Uint8Array[]
    if (current.length > 0 && (size + event.length > PART_BYTES || current.length >= MAX_BATCH_EVENTS)) {
      parts.push([event])
      size = event.length
    } else {
      current.push(event)
      size += event.length
    }
  }
  return parts.map((events, i) => ({
    t: 'batch',
    events,
    revision: i === parts.length - 1 ? message.revision : previousRevision,
  }))
}

/** A long `need` as several: the member adds them up. */
export function splitNeed(reply: PublishReply): PublishReply[] {
  if (reply.t !== 'need' || reply.keys.length <= NEED_KEYS) return [reply]
  const parts: PublishReply[] = []
  for (let i = 0; i < reply.keys.length; i += NEED_KEYS) {
    parts.push({ t: 'need', keys: reply.keys.slice(i, i + NEED_KEYS) })
  }
  return parts
}
