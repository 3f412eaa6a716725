/** What `sealane status -o json` prints: one document whose fields do not change their meaning. */
import type { Diagnosis } from '../../explain/diagnose-member.ts'

export const STATUS_FORMAT = 1

export interface StatusDocument {
  readonly format: typeof STATUS_FORMAT
  readonly health: Diagnosis['health']
}

export function statusDocument({ health, overview, problems }: Diagnosis): StatusDocument & Record<string, unknown> {
  return { format: STATUS_FORMAT, health, ...overview, problems }
}

/** As monitoring plugins have it; 3 is for a command that could not look. */
export const EXIT_CODES: Readonly<Record<Diagnosis['health'], number>> = { healthy: 0, degraded: 1, down: 2 }
export const EXIT_UNKNOWN = 3
