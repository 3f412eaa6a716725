/** Encodes and decodes requests and stream messages of broker-api.ts. Decoders throw only CodecError. */
import { toUSVString } from 'node:util'
import { MAX_NEEDED } from '../../model/addresses/addresses.ts'
import { type QuotaReport, openConnectionsProblem } from '../../model/model.ts'
import { MAX_ADDRESS_TEXT, RECORD_FORMS } from '../../model/grammar/grammar.ts'
import { knownRefusal } from '../../model/reasons/reasons.ts'
import {
  type ClusterFacts,
  type DeclareAnswer,
  HASH_BYTES,
  type JoinLook,
  type JoinRequest,
  type JoinResponse,
  MAX_BATCH_EVENTS,
  MAX_HELD_RECORDS,
  type PublishMessage,
  type PublishReply,
  type RenewResponse,
  type Renumbered,
  type WatchMessage,
} from '../protocol.ts'
import * as wire from '../gen/broker.ts'
import * as limits from '../protocol.ts'
import * as check from './codec-checks.ts'
import { CodecError, buffer, count, limited } from './codec-checks.ts'
import { copied, statusFromWire, statusToWire } from './record-bodies.ts'
import {
  checkSize,
  memberKeyFromWire,
  memberRecordFromWire,
  memberRecordToWire,
  storedFromWire,
  storedToWire,
} from './records-codec.ts'

export * from './watch-codec.ts'

const FACTS = RECORD_FORMS.Cluster.fields.spec.fields

export function encodeJoinRequest(request: JoinRequest): Uint8Array {
  const { secret, cluster, csr, facts, nowMs, look = false, waits, withdraw = false } = request
  // The `csr` of a withdrawal is in a field of its own, because an older broker would take it for a join.
  const [joining, withdrawCsr] = withdraw ? [new Uint8Array(), buffer(csr)] : [csr, undefined]
  const stated = { secret, cluster, csr: buffer(joining), facts: factsToWire(facts), nowMs, look }
  return wire.JoinRequest.encode({ ...stated, waits, withdrawCsr }).finish()
}

export function decodeJoinRequest(bytes: Uint8Array): JoinRequest {
  const request = check.parseWire('join request', bytes, limits.MAX_JOIN_BYTES, (b) => wire.JoinRequest.decode(b))
  return {
    secret: check.text(request.secret, 'secret', limits.MAX_SECRET),
    cluster: check.text(request.cluster, 'cluster', limits.MAX_NAME),
    csr: check.bytes(request.withdrawCsr ?? request.csr, 'csr', limits.MAX_CSR_BYTES),
    facts: factsFromWire(request.facts, 'facts'),
    nowMs: check.count(request.nowMs, 'nowMs'),
    look: request.look === true,
    ...(request.waits === true ? { waits: true } : {}),
    ...(request.withdrawCsr === undefined ? {} : { withdraw: true }),
  }
}

/** Encodes a preview as a JoinResponse in which only these fields are set. */
export function encodeJoinLook({ globalCIDRs, renumbered }: JoinLook): Uint8Array {
  return wire.JoinResponse.encode({
    certificate: Buffer.alloc(0),
    caBundle: [],
    clusterset: '',
    clusterIndex: 0,
    podCidrs: [],
    serviceCidrs: [],
    globalCidrs: [...globalCIDRs],
    globalRange: '',
    clustersetIpRange: '',
    observedAddress: '',
    observedCounts: false,
    notes: [],
    renumbered: renumbered.map(renumberedToWire),
  }).finish()
}

export function decodeJoinLook(bytes: Uint8Array): JoinLook {
  const look = check.parseWire('join look', bytes, limits.MAX_MESSAGE_BYTES, (b) => wire.JoinResponse.decode(b))
  return {
    globalCIDRs: check.textsOf(FACTS.globalCIDRs, look.globalCidrs, 'globalCIDRs'),
    renumbered: renumberedFromWire(look.renumbered),
  }
}

export function encodeJoinResponse(response: JoinResponse): Uint8Array {
  return wire.JoinResponse.encode({
    certificate: buffer(response.certificate),
    caBundle: response.caBundle.map(buffer),
    clusterset: response.clusterset,
    clusterIndex: response.clusterIndex,
    podCidrs: [...response.podCIDRs],
    serviceCidrs: [...response.serviceCIDRs],
    globalCidrs: [...response.globalCIDRs],
    globalRange: response.globalRange,
    clustersetIpRange: response.clustersetIpRange,
    observedAddress: response.observedAddress,
    observedCounts: response.observedCounts,
    notes: (response.notes ?? []).slice(0, limits.MAX_NOTES).map(short),
    renumbered: (response.renumbered ?? []).map(renumberedToWire),
  }).finish()
}

export function decodeJoinResponse(bytes: Uint8Array): JoinResponse {
  const response = check.parseWire('join response', bytes, limits.MAX_MESSAGE_BYTES, (b) => wire.JoinResponse.decode(b))
  const notes = check.texts(response.notes, 'notes', limits.MAX_NOTES, limits.MAX_TEXT)
  return {
    ...certificates(response),
    clusterset: check.text(response.clusterset, 'clusterset', limits.MAX_NAME, 1),
    clusterIndex: check.numberOf(FACTS.index, response.clusterIndex, 'clusterIndex'),
    podCIDRs: check.textsOf(FACTS.podCIDRs, response.podCidrs, 'podCIDRs'),
    serviceCIDRs: check.textsOf(FACTS.serviceCIDRs, response.serviceCidrs, 'serviceCIDRs'),
    globalCIDRs: check.textsOf(FACTS.globalCIDRs, response.globalCidrs, 'globalCIDRs'),
    globalRange: check.text(response.globalRange, 'globalRange', MAX_ADDRESS_TEXT),
    clustersetIpRange: check.text(response.clustersetIpRange, 'clustersetIpRange', MAX_ADDRESS_TEXT),
    observedAddress: check.text(response.observedAddress, 'observedAddress', MAX_ADDRESS_TEXT),
    observedCounts: response.observedCounts,
    ...(notes.length === 0 ? {} : { notes }),
    renumbered: renumberedFromWire(response.renumbered),
  }
}

function renumberedToWire({ cluster, globalCIDRs, openConnections }: Renumbered): wire.Renumbered {
  return { cluster, globalCidrs: [...globalCIDRs], openConnections: copied(openConnections) }
}

function renumberedFromWire(members: readonly wire.Renumbered[]): readonly Renumbered[] {
  return check.list(members, 'renumbered', limits.MAX_RENUMBERED, (one, field) => ({
    cluster: check.text(one.cluster, `${field}.cluster`, limits.MAX_NAME, 1),
    globalCIDRs: check.textsOf(FACTS.globalCIDRs, one.globalCidrs, `${field}.globalCIDRs`),
    ...check.optional('openConnections', openFromWire(one.openConnections, `${field}.openConnections`)),
  }))
}

function openFromWire(one: wire.OpenConnections | undefined, field: string): wire.OpenConnections | undefined {
  const wrong = one === undefined ? undefined : openConnectionsProblem(one)
  if (wrong !== undefined) throw new CodecError(field, wrong)
  return copied(one)
}

export function encodeRenewRequest(csr: Uint8Array): Uint8Array {
  return wire.RenewRequest.encode({ csr: buffer(csr) }).finish()
}

export function decodeRenewRequest(bytes: Uint8Array): Uint8Array {
  const { csr } = check.parseWire('renew request', bytes, limits.MAX_JOIN_BYTES, (b) => wire.RenewRequest.decode(b))
  return check.bytes(csr, 'csr', limits.MAX_CSR_BYTES)
}

export function encodeRenewResponse(response: RenewResponse): Uint8Array {
  const { certificate, caBundle } = response
  return wire.RenewResponse.encode({ certificate: buffer(certificate), caBundle: caBundle.map(buffer) }).finish()
}

export function decodeRenewResponse(bytes: Uint8Array): RenewResponse {
  return certificates(
    check.parseWire('renew response', bytes, limits.MAX_MESSAGE_BYTES, (b) => wire.RenewResponse.decode(b)),
  )
}

export function encodePublishMessage(message: PublishMessage): Uint8Array {
  return limited(wire.PublishMessage.encode({ message: publishToWire(message) }).finish())
}

function publishToWire(message: PublishMessage): wire.PublishMessage['message'] {
  switch (message.t) {
    case 'declare':
      return { $case: 'declare', value: declareToWire(message) }
    case 'held':
      return { $case: 'held', value: heldToWire(message) }
    case 'digest': {
      const entries = message.entries.map(({ key, hash }) => ({ key: { ...key }, hash: buffer(hash) }))
      return { $case: 'digest', value: { entries, last: message.last } }
    }
    case 'put':
      return { $case: 'put', value: { sequence: message.sequence, record: memberRecordToWire(message.record) } }
    case 'remove':
      return { $case: 'remove', value: { sequence: message.sequence, key: { ...message.key } } }
    case 'facts':
      return { $case: 'facts', value: { sequence: message.sequence, facts: factsToWire(message.facts) } }
    case 'status':
      return { $case: 'status', value: { sequence: message.sequence, status: statusToWire(message.status) } }
  }
}

export function decodePublishMessage(bytes: Uint8Array): PublishMessage {
  const { message } = check.parseWire('publish message', bytes, limits.MAX_MESSAGE_BYTES, (b) =>
    wire.PublishMessage.decode(b),
  )
  const known = check.present(message, 'publish message')
  switch (known.$case) {
    case 'declare':
      return declareFromWire(known.value)
    case 'held':
      return heldFromWire(known.value)
    case 'digest':
      return {
        t: 'digest',
        entries: check.list(known.value.entries, 'entries', limits.MAX_DIGEST_ENTRIES, (entry, path) => ({
          key: memberKeyFromWire(entry.key, `${path}.key`),
          hash: check.bytes(entry.hash, `${path}.hash`, limits.HASH_BYTES, limits.HASH_BYTES),
        })),
        last: known.value.last,
      }
    case 'put':
      // The envelope takes only a few bytes, so the size of the message limits that of the record.
      checkSize(bytes.length - 32)
      return { t: 'put', sequence: sequence(known.value), record: memberRecordFromWire(known.value.record, 'record') }
    case 'remove':
      return { t: 'remove', sequence: sequence(known.value), key: memberKeyFromWire(known.value.key, 'key') }
    case 'facts':
      return { t: 'facts', sequence: sequence(known.value), facts: factsFromWire(known.value.facts, 'facts') }
    case 'status':
      if (bytes.length > limits.MAX_STATUS_BYTES) {
        throw new CodecError('status', `${bytes.length} bytes: expected at most ${limits.MAX_STATUS_BYTES}`)
      }
      return { t: 'status', sequence: sequence(known.value), status: statusFromWire(known.value.status, 'status') }
  }
}

export function encodePublishReply(reply: PublishReply): Uint8Array {
  return limited(wire.PublishReply.encode({ message: replyToWire(reply) }).finish())
}

function replyToWire(reply: PublishReply): wire.PublishReply['message'] {
  switch (reply.t) {
    case 'inSync':
      return { $case: 'inSync', value: answerToWire(reply) }
    case 'sendDigest':
      return { $case: 'sendDigest', value: answerToWire(reply) }
    case 'need':
      return { $case: 'need', value: { keys: reply.keys.map((key) => ({ ...key })) } }
    case 'ack':
      return { $case: 'ack', value: { sequence: reply.sequence } }
    case 'refused': {
      const { sequence: number, key, field, reason, message, kept = false } = reply
      const value = { sequence: number, key: { ...key }, field, reason, message: short(message), kept }
      return { $case: 'refused', value }
    }
    case 'quota':
      return { $case: 'quota', value: quotaToWire(reply) }
  }
}

/** Returns undefined for a reply of a later version. */
export function decodePublishReply(bytes: Uint8Array): PublishReply | undefined {
  const { message: known } = check.parseWire('publish reply', bytes, limits.MAX_MESSAGE_BYTES, (b) =>
    wire.PublishReply.decode(b),
  )
  switch (known?.$case) {
    case undefined:
      return undefined
    case 'inSync':
      return { t: 'inSync', ...answerFromWire(known.value) }
    case 'sendDigest':
      return { t: 'sendDigest', ...answerFromWire(known.value) }
    case 'need':
      return {
        t: 'need',
        keys: check.list(known.value.keys, 'keys', limits.MAX_NEED_KEYS, (k, p) => memberKeyFromWire(k, p)),
      }
    case 'ack':
      return { t: 'ack', sequence: sequence(known.value) }
    case 'refused':
      return {
        t: 'refused',
        sequence: sequence(known.value),
        key: memberKeyFromWire(known.value.key, 'key', 0),
        field: check.text(known.value.field, 'field'),
        message: check.text(known.value.message, 'message'),
        reason: knownRefusal(check.text(known.value.reason, 'reason')) ?? 'RefusedByBroker',
        ...(known.value.kept ? { kept: true } : {}),
      }
    case 'quota':
      return { t: 'quota', ...quotaFromWire(known.value) }
  }
}

function factsToWire(facts: ClusterFacts): wire.ClusterFacts {
  return {
    podCidrs: [...facts.podCIDRs],
    serviceCidrs: [...facts.serviceCIDRs],
    labels: check.recordToPairs(facts.labels),
    version: facts.version,
    neededCidrs: [...(facts.neededCIDRs ?? [])],
    properties: facts.properties && { pairs: check.recordToPairs(facts.properties) },
  }
}

function factsFromWire(facts: wire.ClusterFacts | undefined, field: string): ClusterFacts {
  const { podCidrs, serviceCidrs, labels, version, neededCidrs, properties } = check.present(facts, field)
  const needed = check.texts(neededCidrs, `${field}.neededCIDRs`, MAX_NEEDED, MAX_ADDRESS_TEXT)
  return {
    podCIDRs: check.textsOf(FACTS.podCIDRs, podCidrs, `${field}.podCIDRs`),
    serviceCIDRs: check.textsOf(FACTS.serviceCIDRs, serviceCidrs, `${field}.serviceCIDRs`),
    labels: check.pairsToRecord(FACTS.labels, labels, `${field}.labels`),
    version: check.text(version, `${field}.version`, limits.MAX_NAME),
    ...(needed.length === 0 ? {} : { neededCIDRs: needed }),
    ...check.optional(
      'properties',
      properties && check.pairsToRecord(FACTS.properties, properties.pairs, `${field}.properties`),
    ),
  }
}

function certificates(response: wire.RenewResponse): RenewResponse {
  return {
    certificate: check.bytes(response.certificate, 'certificate', limits.MAX_CERTIFICATE_BYTES, 1),
    caBundle: check.list(response.caBundle, 'caBundle', limits.MAX_CA_BUNDLE, (ca, path) =>
      check.bytes(ca, path, limits.MAX_CERTIFICATE_BYTES, 1),
    ),
  }
}

function sequence(value: { readonly sequence: number }): number {
  return check.count(value.sequence, 'sequence')
}

/** Cuts a text for users to the length that the peer accepts. */
function short(message: string): string {
  return toUSVString(message.slice(0, limits.MAX_TEXT))
}

// Splits large messages so that they fit the limits of the protocol.

/** Size of a part, well below MAX_MESSAGE_BYTES, because framing and keys add to it. */
const PART_BYTES = 1024 * 1024
const NEED_KEYS = 5000
const MAX_SMALL = 256

/**
 * Returns whether the message can be sent unsplit. It does not add up the sizes of more than MAX_SMALL events, because
 * it runs for each message of each stream.
 */
export function fits(message: WatchMessage): boolean {
  return message.t !== 'batch' || (message.events.length <= MAX_SMALL && sizeOf(message.events) <= PART_BYTES)
}

function sizeOf(events: readonly Uint8Array[]): number {
  let bytes = 0
  for (const event of events) bytes += event.length
  return bytes
}

/**
 * Splits a batch with too many events. Only the last part has the batch's revision, so that a reader that stops in
 * between resumes from `previousRevision` and receives the rest again.
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

/** Splits a long `need`. The member combines the parts. */
export function splitNeed(reply: PublishReply): PublishReply[] {
  if (reply.t !== 'need' || reply.keys.length <= NEED_KEYS) return [reply]
  const parts: PublishReply[] = []
  for (let i = 0; i < reply.keys.length; i += NEED_KEYS) {
    parts.push({ t: 'need', keys: reply.keys.slice(i, i + NEED_KEYS) })
  }
  return parts
}

// The first message of a Publish stream.

type Declare = Extract<PublishMessage, { t: 'declare' }>

function declareToWire({
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
function declareFromWire(value: wire.PublishMessage_Declare): Declare {
  return {
    t: 'declare',
    setHash: check.bytes(value.setHash, 'setHash', HASH_BYTES, HASH_BYTES),
    count: check.count(value.count, 'count'),
    ...(value.tellsStatus ? { tellsStatus: true } : {}),
    ...(value.takesQuota ? { takesQuota: true } : {}),
    ...(value.givesHeld ? { givesHeld: true } : {}),
  }
}

// The records that a member holds, and the reply to its declaration, which may request them.

type Held = Extract<PublishMessage, { t: 'held' }>

function heldToWire({ records, last }: Held): wire.PublishMessage_Held {
  return { records: records.map(storedToWire), last }
}

/** Throws CodecError. */
function heldFromWire({ records, last }: wire.PublishMessage_Held): Held {
  return { t: 'held', records: check.list(records, 'records', MAX_HELD_RECORDS, storedFromWire), last }
}

function answerToWire({ takesStatus, asksHeld = '', keepsToOffers }: DeclareAnswer): wire.PublishReply_InSync {
  return { takesStatus: takesStatus === true, asksHeld, keepsToOffers }
}

/** Throws CodecError. */
function answerFromWire({ takesStatus, asksHeld, keepsToOffers }: wire.PublishReply_InSync): DeclareAnswer {
  return {
    ...(takesStatus ? { takesStatus: true } : {}),
    ...(asksHeld === '' ? {} : { asksHeld: check.text(asksHeld, 'asksHeld') }),
    ...(keepsToOffers === true ? { keepsToOffers: true } : {}),
  }
}

// The quota of a member. Throws only CodecError.

function quotaToWire({ limit, used, isSlowed: slowed }: QuotaReport): wire.PublishReply_Quota {
  const { records, bytes, changes, streams } = limit
  return { records, bytes, changes, streams, usedRecords: used.records, usedBytes: used.bytes, slowed }
}

function quotaFromWire(value: wire.PublishReply_Quota): QuotaReport {
  const limit = {
    records: count(value.records, 'quota.records'),
    bytes: count(value.bytes, 'quota.bytes'),
    changes: count(value.changes, 'quota.changes'),
    streams: count(value.streams, 'quota.streams'),
  }
  const used = {
    records: count(value.usedRecords, 'quota.usedRecords'),
    bytes: count(value.usedBytes, 'quota.usedBytes'),
  }
  return { limit, used, isSlowed: value.slowed }
}
