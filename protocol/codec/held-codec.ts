/** What a member holds, and the answer to its declaration, in which it is asked for that. */
import type { PublishMessage, PublishReply } from '../broker-api.ts'
import * as wire from '../gen/broker.ts'
import { MAX_HELD_RECORDS } from '../limits.ts'
import * as check from './codec-checks.ts'
import { storedFromWire, storedToWire } from './records-codec.ts'

type Held = Extract<PublishMessage, { t: 'held' }>
type Answer = Omit<Extract<PublishReply, { t: 'inSync' }>, 't'>

export function heldToWire({ records, last }: Held): wire.PublishMessage_Held {
  return { records: records.map(storedToWire), last }
}

/** Throws CodecError. */
export function heldFromWire({ records, last }: wire.PublishMessage_Held): Held {
  return { t: 'held', records: check.list(records, 'records', MAX_HELD_RECORDS, storedFromWire), last }
}

export function answerToWire({ takesStatus, asksHeld = '' }: Answer): wire.PublishReply_InSync {
  return { takesStatus: takesStatus === true, asksHeld }
}

/** Throws CodecError. */
export function answerFromWire({ takesStatus, asksHeld }: wire.PublishReply_InSync): Answer {
  return {
    ...(takesStatus ? { takesStatus: true } : {}),
    ...(asksHeld === '' ? {} : { asksHeld: check.text(asksHeld, 'asksHeld') }),
  }
}
