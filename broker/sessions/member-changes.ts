/** What a message of a Publish stream changes in the log. Runs inside a transaction. Returns a refusal or undefined. */
import { type Prefix, formatPrefix, isInside, overlaps, parsePrefix } from '../../model/addresses/addresses.ts'
import { RECORD_FORMS } from '../../model/grammar/grammar.ts'
import type { ClusterId, EndpointBody, MemberRecord } from '../../model/model.ts'
import { type ClusterFacts, type MemberKey, type PublishMessage, RefusedError } from '../../protocol/protocol.ts'
import { CodecError, checkMemberRecord, memberKey, memberKeyText } from '../../protocol/codec/codec.ts'
import { candidateRanges, ipv4Ranges, isAskedAbout } from '../addresses/addresses.ts'
import { type StatedFacts, reviewAddresses, stateFacts } from '../members/members.ts'
import {
  type Refusal,
  type WriteContext,
  admitFacts,
  admitStatus,
  checkSize,
  memberRecords,
  putRecord,
  quote,
  refusal,
  removeRecord,
  writeStatusRecord,
} from '../records/records.ts'
import { type Transaction, isLive } from '../store/store.ts'

export type MemberChange = Extract<PublishMessage, { t: 'put' | 'remove' | 'facts' | 'status' }>

/** By memberKeyText. Hashes in hex. */
export type DeclaredSet = ReadonlyMap<string, { readonly key: MemberKey; readonly hash: string }>

export interface ChangeContext extends WriteContext {
  /** If false, a status is only validated here, and written later (records/status-records.ts). */
  readonly writesStatus: boolean
  /** Called with the result of stating facts. */
  readonly onFacts: (stated: StatedFacts) => void
  /** Called when a record gives other members global addresses. */
  readonly onRenumbered: (record: MemberRecord, renumbered: readonly ClusterId[]) => void
}

/**
 * Applies a change, or returns the reason for a refusal, in which case nothing was written. If the ranges of facts wait
 * for an operator, the other facts are written.
 */
export function applyChange(tx: Transaction, change: MemberChange, context: ChangeContext): Refusal | undefined {
  switch (change.t) {
    case 'put':
      // Limits of the wire format: a stored record must be fit to be sent.
      return (
        tooLarge(change.record.body) ??
        refusing(() => checkMemberRecord(change.record)) ??
        put(tx, change.record, context)
      )
    case 'remove':
      removeRecord(tx, change.key, context)
      return undefined
    case 'facts':
      return admitFacts(change.facts, context.rules) ?? takeFacts(tx, change.facts, context)
    case 'status': {
      const refused = admitStatus(change.status)
      if (refused === undefined && context.writesStatus)
        writeStatusRecord(tx, context.cluster, change.status, context.nowMs)
      return refused
    }
  }
}

function put(tx: Transaction, record: MemberRecord, context: ChangeContext): Refusal | undefined {
  const hit = record.body.kind === 'Endpoint' ? podsAround(tx, record.body, context.cluster) : []
  const refused = awaitsApproval(tx, hit, context) ?? putRecord(tx, record, context)
  if (refused !== undefined || hit.length === 0) return refused
  const renumbered = reviewAddresses(tx, context)
  if (renumbered.length > 0) context.onRenumbered(record, renumbered)
  return undefined
}

const CANDIDATES = RECORD_FORMS.Endpoint.fields.spec.fields.candidates

interface PodsAround {
  /** Id of the member that has the pods. */
  readonly id: string
  readonly gateway: Prefix
}

/** Members whose pod CIDRs contain a gateway address of this cluster: they are translated then. */
function podsAround(tx: Transaction, endpoint: EndpointBody, cluster: ClusterId): readonly PodsAround[] {
  // The record is not validated yet, so the number of candidates is limited here.
  const called = candidateRanges(endpoint.spec.candidates.slice(0, CANDIDATES.most))
  const others = tx.list('member').filter(({ key, value }) => key !== cluster && isLive(value) && !value.translated)
  return others.flatMap(({ key: id, value: { facts } }) =>
    ipv4Ranges(facts.podCIDRs).flatMap(({ prefix }) =>
      called.filter((one) => overlaps(one.prefix, prefix)).map((one) => ({ id, gateway: one.prefix })),
    ),
  )
}

/**
 * Like required ranges, a gateway's address makes pods of other members translated. So it must lie in required ranges
 * that an operator has accepted.
 */
function awaitsApproval(tx: Transaction, hit: readonly PodsAround[], context: ChangeContext): Refusal | undefined {
  const row = tx.get('member', context.cluster)
  if (hit.length === 0 || !isLive(row) || !isAskedAbout(row, context.rules)) return undefined
  const accepted = (row.facts.neededCIDRs ?? []).map((text) => parsePrefix(text))
  const [first] = hit.filter(({ gateway }) => !isInside(gateway, accepted))
  if (first === undefined) return undefined
  return refusal(
    'spec.candidates',
    `${formatPrefix(first.gateway)} is a pod address of cluster ${quote(first.id)}, which would get global addresses: ` +
      'an operator of the broker has to accept the node networks of this cluster first, see "sealane cluster waiting"',
    'RangesAwaitApproval',
  )
}

function takeFacts(tx: Transaction, facts: ClusterFacts, context: ChangeContext): Refusal | undefined {
  let refused: Refusal | undefined
  const thrown = refusing(() => {
    const stated = stateFacts(tx, facts, context)
    context.onFacts(stated)
    refused = stated.refused
  })
  return thrown ?? refused
}

function tooLarge(body: MemberRecord['body']): Refusal | undefined {
  return body.kind === 'EndpointSlice' ? checkSize(body) : undefined
}

/** The key of the record that the change is about. For facts and status, a key that no record has. */
export function keyOf(change: MemberChange): MemberKey {
  if (change.t === 'put') return memberKey(change.record)
  if (change.t === 'remove') return change.key
  return { kind: 'Endpoint', namespace: '', name: '' }
}

/** Removes the records that the member no longer has, and returns the keys of those that it must send. */
export function compareSets(tx: Transaction, declared: DeclaredSet, context: WriteContext): MemberKey[] {
  const stored = new Map<string, string | undefined>()
  for (const { key, row } of memberRecords(tx, context.cluster)) {
    if (declared.has(memberKeyText(key))) stored.set(memberKeyText(key), row.hash)
    else removeRecord(tx, key, context)
  }
  return [...declared].filter(([text, { hash }]) => stored.get(text) !== hash).map(([, { key }]) => key)
}

/**
 * Returns what was thrown as a refusal. The message of a refusal continues after its field, so the field is cut from
 * the text of the error.
 */
function refusing(work: () => void): Refusal | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    if (!(error instanceof RefusedError || error instanceof CodecError)) throw error
    const { field, message } = error
    const reason = error instanceof RefusedError ? error.reason : 'InvalidValue'
    return { field, reason, message: message.startsWith(`${field}: `) ? message.slice(field.length + 2) : message }
  }
}

/** Limits of changes that may wait for the disk, and of their bytes on the wire. Beyond them the member must wait. */
const MAX_WAITING = 1024
const MAX_WAITING_BYTES = 2 * 1024 * 1024
/** Limits of changes per transaction, and of their bytes: short steps let members take turns. */
const MAX_GROUP = 64
const MAX_GROUP_BYTES = 64 * 1024

export interface ChangeGroup {
  readonly changes: readonly MemberChange[]
  /** Size of the changes on the wire. */
  readonly bytes: number
}

interface Waiting {
  readonly change: MemberChange
  readonly bytes: number
}

/** Changes of a Publish stream that wait to be written, in groups that are small enough for members to take turns. */
export class WaitingChanges {
  #waiting: Waiting[] = []
  #bytes = 0

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** Whether the member must wait. */
  get isFull(): boolean {
    return this.#waiting.length >= MAX_WAITING || this.#bytes >= MAX_WAITING_BYTES
  }

  /** `bytes`: on the wire. */
  add(change: MemberChange, bytes: number): void {
    this.#waiting.push({ change, bytes })
    this.#bytes += bytes
  }

  /** The first waiting changes: at most `most`, at least one. They stay until done() is called. */
  nextGroup(most = MAX_GROUP): ChangeGroup {
    let bytes = 0
    const size = Math.min(most, MAX_GROUP)
    const end = this.#waiting.findIndex((one, i) => i >= size || (bytes += one.bytes) > MAX_GROUP_BYTES)
    const group = this.#waiting.slice(0, end < 0 ? this.#waiting.length : Math.max(1, end))
    return { changes: group.map(({ change }) => change), bytes: group.reduce((sum, one) => sum + one.bytes, 0) }
  }

  /** Removes the group that nextGroup() returned. */
  done({ changes, bytes }: ChangeGroup): void {
    this.#waiting.splice(0, changes.length)
    this.#bytes -= bytes
  }

  clear(): void {
    this.#waiting = []
    this.#bytes = 0
  }
}

/** Pod CIDRs of a member that are carried, observed during its Publish stream. */

export class CarriedAddresses {
  /**
   * CIDRs that were carried during this stream and no longer are: records of the member in them have been withdrawn.
   */
  readonly #lost = new Set<string>()
  #carried: readonly string[]

  constructor(podCIDRs: readonly string[]) {
    this.#carried = podCIDRs
  }

  /** Takes the CIDRs that are carried now, and returns those among them that had been lost. */
  regained(now: readonly string[]): readonly string[] {
    for (const cidr of this.#carried) if (!now.includes(cidr)) this.#lost.add(cidr)
    this.#carried = now
    return now.filter((cidr) => this.#lost.has(cidr))
  }
}
