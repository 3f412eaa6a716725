/** Refusals about a member as errors. */
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import { RefusedError } from '../../protocol/broker-api.ts'
import type { Refusal } from '../admission/admission-checks.ts'

/** About what a cluster states of itself. */
export function refusedFacts({ reason, field, message }: Refusal): RefusedError {
  return new RefusedError(reason, field, `${field}: ${message}`)
}

/** About the certificate that a cluster shows, or its membership. */
export function denied(reason: RefusalReason, message: string): RefusedError {
  return new RefusedError(reason, 'certificate', message)
}
