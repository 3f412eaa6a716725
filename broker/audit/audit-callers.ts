/** Callers and outcomes as the audit log has them. */
import { BrokerUnreachableError, CertificateError, type Peer, RefusedError } from '../../protocol/protocol.ts'
import { CodecError } from '../../protocol/codec/codec.ts'
import { type FailedCall, reasonField } from '../../protocol/transport/transport.ts'
import { reasonOf } from '../../runtime/runtime.ts'
import { AUDIT_ACTS, type AuditActor, type AuditEvent, type AuditValue } from '../store/store.ts'
import type { Audit } from './audit-trail.ts'
import { memberSource, strangerSource } from './refusal-rate-limiter.ts'

/** For a broker without an audit log. */
export const NO_AUDIT: Audit = { isOn: false, keep: () => undefined, report: () => undefined, allows: () => false }

export function memberActor({ cluster, fingerprint, address }: Peer): AuditActor {
  return { kind: 'member', cluster, ...(fingerprint === undefined ? {} : { fingerprint }), address }
}

/** Members of which one line names no more than this. */
const MAX_RENUMBERED = 100

/** Other members that got global addresses by the act; empty where there are none. */
export function renumberedDetail(clusters: readonly string[]): Readonly<Record<string, AuditValue>> {
  return clusters.length === 0 ? {} : { renumbered: clusters.slice(0, MAX_RENUMBERED) }
}

/** What was thrown, as the end of an act. */
export function outcomeOf(error: unknown): Pick<AuditEvent, 'result' | 'reason'> {
  const refused = error instanceof RefusedError || error instanceof CertificateError || error instanceof CodecError
  const reason = reasonField(error).reason ?? reasonOf(error) ?? 'InternalError'
  return { result: refused ? 'refused' : 'failed', reason }
}

/**
 * A call that the transport has refused, or that failed. A join is audited where its token is known, and what ends
 * because this broker stops is no refusal.
 */
export function auditFailedCall(audit: Audit, { method, address, peer, fingerprint, error }: FailedCall): void {
  const act = AUDIT_ACTS.find((one) => one === method)
  const isAudited = method === 'join' && !(error instanceof CodecError)
  const isStopping = error instanceof BrokerUnreachableError && error.reason === undefined
  if (act === undefined || isAudited || isStopping) return
  if (!audit.allows(peer === undefined ? strangerSource(address) : memberSource(peer.cluster))) return
  const shown = fingerprint === undefined ? {} : { fingerprint }
  audit.report({
    act,
    ...outcomeOf(error),
    who: peer === undefined ? { kind: 'stranger', ...shown, address } : memberActor(peer),
    ...(peer === undefined ? {} : { subject: peer.cluster }),
    details: fieldOf(error),
  })
}

/** The field that a refusal names; empty where it names none. */
export function fieldOf(error: unknown): Readonly<Record<string, AuditValue>> {
  return error instanceof RefusedError || error instanceof CodecError ? { field: error.field } : {}
}
