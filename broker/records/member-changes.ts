/** What one message of a Publish stream does to the log. Runs inside a transaction; gives a refusal or undefined. */
import type { ClusterId } from '../../model/ids.ts'
import { type Prefix, formatPrefix, overlaps, parsePrefix } from '../../model/addresses/ip.ts'
import { isInside } from '../../model/addresses/prefix-set.ts'
import type { EndpointBody, MemberRecord } from '../../model/records.ts'
import { type ClusterFacts, type MemberKey, type PublishMessage, RefusedError } from '../../protocol/broker-api.ts'
import { CodecError } from '../../protocol/codec/codec-checks.ts'
import { memberKey, memberKeyText } from '../../protocol/codec/content-hash.ts'
import { checkMemberRecord } from '../../protocol/codec/records-codec.ts'
import { type Refusal, quote, refusal } from '../admission/admission-checks.ts'
import { candidateRanges, ipv4Ranges } from '../addresses/parsed-ranges.ts'
import { MAX_CANDIDATES } from '../admission/admission.ts'
import { admitFacts, admitStatus } from '../admission/admission-facts.ts'
import { checkSize } from '../admission/admission-slice.ts'
import type { Transaction } from '../log/record-log.ts'
import { isAskedAbout } from '../approval/changed-ranges.ts'
import { type StatedFacts, stateFacts } from '../members/changed-facts.ts'
import { reviewAddresses } from '../members/member-addresses.ts'
import { type WriteContext, memberRecords, putRecord, removeRecord } from './record-writes.ts'
import { isLive } from '../state/state.ts'
import { writeStatusRecord } from './status-records.ts'

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
