/** Lines of the audit log about what a member publishes. */
import type { MemberRecord } from '../../model/model.ts'
import type { ClusterFacts, Peer } from '../../protocol/protocol.ts'
import { keyFingerprint } from '../../protocol/identity/identity.ts'
import type { Refusal } from '../records/records.ts'
import { labelsText, rangesHash } from '../addresses/addresses.ts'
import { type Audit, accepted, memberActor, memberSource, renumberedDetail } from '../audit/audit.ts'
import type { Transaction } from '../store/store.ts'
import type { StatedFacts } from '../members/members.ts'
import { type MemberChange, keyOf } from './member-changes.ts'

export class PublishAudit {
  readonly #audit: Audit
  readonly #peer: Peer

  constructor(audit: Audit, peer: Peer) {
    this.#audit = audit
    this.#peer = peer
  }

  /** Whether a line about facts of this member may be written now. Each call counts as a line. */
  allowsFacts(): boolean {
    return this.#audit.allows(accepted(memberSource(this.#peer.cluster)))
  }

  /** Facts that were taken: other members rely on the addresses. */
  facts(tx: Transaction, { podCIDRs, serviceCIDRs, version }: ClusterFacts, renumbered: readonly string[]): void {
    const { cluster: subject } = this.#peer
    const details = { podCIDRs, serviceCIDRs, version, ...renumberedDetail(renumbered) }
    this.#audit.keep(tx, { act: 'facts', result: 'ok', who: memberActor(this.#peer), subject, details })
  }

  /** A gateway address that gives other members global addresses. */
  renumbered(tx: Transaction, { name }: MemberRecord, clusters: readonly string[]): void {
    const details = renumberedDetail(clusters)
    const subject = `Endpoint//${name}`
    this.#audit.keep(tx, { act: 'record', result: 'ok', who: memberActor(this.#peer), subject, details })
  }

  /** Ranges that wait for the decision of an operator. */
  waits(tx: Transaction, { ranges, renumbers }: NonNullable<StatedFacts['waits']>): void {
    if (!this.allowsFacts()) return
    const { cluster: subject } = this.#peer
    const { podCIDRs, serviceCIDRs, neededCIDRs = [] } = ranges
    const labels = ranges.labels === undefined ? {} : { labels: labelsText(ranges.labels) }
    const fingerprint = keyFingerprint(rangesHash(ranges))
    const details = { podCIDRs, serviceCIDRs, neededCIDRs, fingerprint, renumbers, ...labels }
    this.#audit.keep(tx, { act: 'facts.waiting', result: 'ok', who: memberActor(this.#peer), subject, details })
  }

  refused(change: MemberChange, { field, reason }: Refusal): void {
    const { cluster } = this.#peer
    if (!this.#audit.allows(memberSource(cluster))) return
    const isOwn = change.t === 'facts' || change.t === 'status'
    const { kind, namespace, name } = keyOf(change)
    this.#audit.report({
      act: change.t === 'facts' ? 'facts' : 'record',
      result: 'refused',
      reason,
      who: memberActor(this.#peer),
      subject: isOwn ? cluster : `${kind}/${namespace}/${name}`,
      details: { field },
    })
  }
}
