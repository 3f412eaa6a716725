/** What one message of a Publish stream does to the log. Runs inside a transaction; gives a refusal or undefined. */
import type { ClusterId } from '../../model/ids.ts'
import { neededIn } from '../../model/addresses/needed-ranges.ts'
import type { EndpointBody, MemberRecord } from '../../model/records.ts'
import { type ClusterFacts, type MemberKey, type PublishMessage, RefusedError } from '../../protocol/broker-api.ts'
import { CodecError } from '../../protocol/codec/codec-checks.ts'
import { memberKey, memberKeyText } from '../../protocol/codec/content-hash.ts'
import { checkMemberRecord } from '../../protocol/codec/records-codec.ts'
import type { Refusal } from '../admission/admission-checks.ts'
import { candidateRanges, ipv4Ranges } from '../addresses/parsed-ranges.ts'
import { admitFacts, admitStatus } from '../admission/admission-facts.ts'
import { checkSize } from '../admission/admission-slice.ts'
import type { Transaction } from '../log/record-log.ts'
import { changeFacts } from '../members/membership.ts'
import { reviewAddresses } from '../members/member-addresses.ts'
import { type WriteContext, memberRecords, putRecord, removeRecord } from './record-writes.ts'
import { isLive } from '../state/state.ts'
import { writeStatusRecord } from './status-records.ts'

export type MemberChange = Extract<PublishMessage, { t: 'put' | 'remove' | 'facts' | 'status' }>

/** By memberKeyText; hashes in hex. */
export type DeclaredSet = ReadonlyMap<string, { readonly key: MemberKey; readonly hash: string }>

export interface ChangeContext extends WriteContext {
  /** False: a status is only validated here, and written later (status-pace.ts). */
  readonly writesStatus: boolean
  /** Called with facts that are not those of before. */
  readonly onFacts: (facts: ClusterFacts) => void
}

/** Applies a change, or gives the reason why not; then nothing was written. */
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

function put(tx: Transaction, record: MemberRecord, context: WriteContext): Refusal | undefined {
  const refused = putRecord(tx, record, context)
  if (refused === undefined && record.body.kind === 'Endpoint' && isInsidePods(tx, record.body, context.cluster))
    reviewAddresses(tx, context)
  return refused
}

/** Whether somebody's pods hold a gateway of this cluster: then they are translated. */
function isInsidePods(tx: Transaction, endpoint: EndpointBody, cluster: ClusterId): boolean {
  const called = candidateRanges(endpoint.spec.candidates)
  const others = tx.list('member').filter(({ key, value }) => key !== cluster && isLive(value) && !value.translated)
  return others.some(({ value: { facts } }) =>
    ipv4Ranges(facts.podCIDRs).some(({ prefix }) => neededIn(prefix, called)),
  )
}

function takeFacts(tx: Transaction, facts: ClusterFacts, context: ChangeContext): Refusal | undefined {
  return refusing(() => {
    if (changeFacts(tx, facts, context)) context.onFacts(facts)
  })
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
