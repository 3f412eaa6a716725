/** What one message of a Publish stream does to the log. Runs inside a transaction; gives a refusal or undefined. */
import { type Prefix, formatPrefix, isInside, overlaps, parsePrefix } from '../../model/addresses/addresses.ts'
import type { ClusterId, EndpointBody, MemberRecord } from '../../model/model.ts'
import { type ClusterFacts, type MemberKey, type PublishMessage, RefusedError } from '../../protocol/protocol.ts'
import { CodecError, checkMemberRecord, memberKey, memberKeyText } from '../../protocol/codec/codec.ts'
import { candidateRanges, ipv4Ranges, isAskedAbout } from '../addresses/addresses.ts'
import { type StatedFacts, reviewAddresses, stateFacts } from '../members/members.ts'
import {
  MAX_CANDIDATES,
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

/** By memberKeyText; hashes in hex. */
export type DeclaredSet = ReadonlyMap<string, { readonly key: MemberKey; readonly hash: string }>

export interface ChangeContext extends WriteContext {
  /** False: a status is only validated here, and written later (records/status-records.ts). */
  readonly writesStatus: boolean
  /** Called with what became of facts that were stated. */
  readonly onFacts: (stated: StatedFacts) => void
  /** Called when a record gives other members global addresses. */
  readonly onRenumbered: (record: MemberRecord, renumbered: readonly ClusterId[]) => void
}

/**
 * Applies a change, or gives the reason why not; then nothing was written. Of facts whose ranges wait for an operator,
 * the rest was.
 */
export function applyChange(tx: Transaction, change: MemberChange, context: ChangeContext): Refusal | undefined {
  switch (change.t) {
    case 'put':
      // Bounds of the wire: what is stored must be fit to be sent.
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

interface PodsAround {
  /** Id of the member whose pods they are. */
  readonly id: string
  readonly gateway: Prefix
}

/** Members whose pods hold a gateway of this cluster: they are translated then. */
function podsAround(tx: Transaction, endpoint: EndpointBody, cluster: ClusterId): readonly PodsAround[] {
  // It is not admitted yet.
  const called = candidateRanges(endpoint.spec.candidates.slice(0, MAX_CANDIDATES))
  const others = tx.list('member').filter(({ key, value }) => key !== cluster && isLive(value) && !value.translated)
  return others.flatMap(({ key: id, value: { facts } }) =>
    ipv4Ranges(facts.podCIDRs).flatMap(({ prefix }) =>
      called.filter((one) => overlaps(one.prefix, prefix)).map((one) => ({ id, gateway: one.prefix })),
    ),
  )
}

/** A gateway's address takes others' pods as node networks do: it has to lie in some that an operator has accepted. */
function awaitsApproval(tx: Transaction, hit: readonly PodsAround[], context: ChangeContext): Refusal | undefined {
  const row = tx.get('member', context.cluster)
  if (hit.length === 0 || !isLive(row) || !isAskedAbout(row, context.rules)) return undefined
  const accepted = (row.facts.neededCIDRs ?? []).map((text) => parsePrefix(text))
  const [first] = hit.filter(({ gateway }) => !isInside(gateway, accepted))
  if (first === undefined) return undefined
  return refusal(
    'spec.candidates',
    `${formatPrefix(first.gateway)} lies in pods of cluster ${quote(first.id)}, which would get global addresses: ` +
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

/** The record that the change is about; for facts and status a key that no record has. */
export function keyOf(change: MemberChange): MemberKey {
  if (change.t === 'put') return memberKey(change.record)
  if (change.t === 'remove') return change.key
  return { kind: 'Endpoint', namespace: '', name: '' }
}

/** Removes what the member no longer has and gives what it must send. */
export function compareSets(tx: Transaction, declared: DeclaredSet, context: WriteContext): MemberKey[] {
  const stored = new Map<string, string | undefined>()
  for (const { key, row } of memberRecords(tx, context.cluster)) {
    if (declared.has(memberKeyText(key))) stored.set(memberKeyText(key), row.hash)
    else removeRecord(tx, key, context)
  }
  return [...declared].filter(([text, { hash }]) => stored.get(text) !== hash).map(([, { key }]) => key)
}

/** A refusal's message reads on after its field, which the text of an error repeats. */
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

/** Changes that may wait for the disk, and their bytes on the wire; more, and the member is made to wait. */
const MAX_WAITING = 1024
const MAX_WAITING_BYTES = 2 * 1024 * 1024
/** Changes written in one transaction, and their bytes: keeps the steps short, so that members take turns. */
const MAX_GROUP = 64
const MAX_GROUP_BYTES = 64 * 1024

export interface ChangeGroup {
  readonly changes: readonly MemberChange[]
  /** On the wire. */
  readonly bytes: number
}

interface Waiting {
  readonly change: MemberChange
  readonly bytes: number
}

/** Changes of one Publish stream that wait to be written, in groups small enough for members to take turns. */
export class WaitingChanges {
  #waiting: Waiting[] = []
  #bytes = 0

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** The member has to wait. */
  get isFull(): boolean {
    return this.#waiting.length >= MAX_WAITING || this.#bytes >= MAX_WAITING_BYTES
  }

  /** `bytes`: on the wire. */
  add(change: MemberChange, bytes: number): void {
    this.#waiting.push({ change, bytes })
    this.#bytes += bytes
  }

  /** The first of those that wait, at most `most` and at least one of any. They wait until done() says otherwise. */
  nextGroup(most = MAX_GROUP): ChangeGroup {
    let bytes = 0
    const size = Math.min(most, MAX_GROUP)
    const end = this.#waiting.findIndex((one, i) => i >= size || (bytes += one.bytes) > MAX_GROUP_BYTES)
    const group = this.#waiting.slice(0, end < 0 ? this.#waiting.length : Math.max(1, end))
    return { changes: group.map(({ change }) => change), bytes: group.reduce((sum, one) => sum + one.bytes, 0) }
  }

  /** Takes the group that nextGroup() gave. */
  done({ changes, bytes }: ChangeGroup): void {
    this.#waiting.splice(0, changes.length)
    this.#bytes -= bytes
  }

  clear(): void {
    this.#waiting = []
    this.#bytes = 0
  }
}

/** Pod CIDRs of one member that are carried, while its Publish stream lasts. */

export class CarriedAddresses {
  /** Were carried during this stream and are not now: what the member published in them is gone. */
  readonly #lost = new Set<string>()
  #carried: readonly string[]

  constructor(podCIDRs: readonly string[]) {
    this.#carried = podCIDRs
  }

  /** Takes those that are carried now. Gives those among them that were not for some time. */
  regained(now: readonly string[]): readonly string[] {
    for (const cidr of this.#carried) if (!now.includes(cidr)) this.#lost.add(cidr)
    this.#carried = now
    return now.filter((cidr) => this.#lost.has(cidr))
  }
}
