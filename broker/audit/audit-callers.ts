/** Callers and outcomes in the form of the audit log. */
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

/** Limit of members that one line names. */
const MAX_RENUMBERED = 100

/** The other members that got global addresses by the act. Empty if there are none. */
export function renumberedDetail(clusters: readonly string[]): Readonly<Record<string, AuditValue>> {
  return clusters.length === 0 ? {} : { renumbered: clusters.slice(0, MAX_RENUMBERED) }
}

/** The outcome of an act that threw. */
export function outcomeOf(error: unknown): Pick<AuditEvent, 'result' | 'reason'> {
  const refused = error instanceof RefusedError || error instanceof CertificateError || error instanceof CodecError
  const reason = reasonField(error).reason ?? reasonOf(error) ?? 'InternalError'
  return { result: refused ? 'refused' : 'failed', reason }
}

/**
 * Reports a call that the transport refused or that failed. Joins are audited where their tokens are known, and calls
 * that end because this broker stops are not refusals.
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

/** The field that a refusal names. Empty if it names none. */
export function fieldOf(error: unknown): Readonly<Record<string, AuditValue>> {
  return error instanceof RefusedError || error instanceof CodecError ? { field: error.field } : {}
}
