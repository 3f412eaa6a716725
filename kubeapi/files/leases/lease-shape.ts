/** What a file must look like to count as a version of a Lease. Pure. */
import { isObjectName } from '../../../model/ids.ts'
import { complaintOf, field, integer, isText, list, map, oneOf, text, textMap, timestamp } from '../fields.ts'
import type { StoredLease } from '../../lease-store.ts'

/** A Lease has some hundred octets. */
export const MAX_LEASE_BYTES = 16_384
/** Whoever holds for longer could keep all others out by one write; ours hold for 10 and 15 seconds. */
const MAX_DURATION_S = 3600
/** A name of a Node, and what tells apart processes there. */
const MAX_HOLDER = 320
const DAY_MS = 86_400_000

const holder = field<string>(
  `at most ${MAX_HOLDER} printable characters`,
  (value) => isText(value) && value.length <= MAX_HOLDER && /^[\x21-\x7e]*$/.test(value),
)
const owner = map({ apiVersion: text, kind: text, name: text, uid: text })

const lease = map({
  apiVersion: oneOf('coordination.k8s.io/v1'),
  kind: oneOf('Lease'),
  metadata: map({
    name: text,
    uid: text,
    labels: textMap.optional(),
    annotations: textMap.optional(),
    ownerReferences: list(owner).optional(),
  }),
  spec: map({
    holderIdentity: holder.optional(),
    leaseDurationSeconds: integer(1, MAX_DURATION_S).optional(),
    acquireTime: timestamp.optional(),
    renewTime: timestamp.optional(),
    leaseTransitions: integer(0, Number.MAX_SAFE_INTEGER).optional(),
  }),
})

/** Names become names of folders: no '/', no '..'. */
export const isLeaseName = isObjectName

/** The Lease in a file's text, or what is wrong with it. */
export function parseLease(name: string, content: string): StoredLease | { readonly complaint: string } {
  let value: unknown
  try {
    value = JSON.parse(content)
  } catch (error) {
    return { complaint: `no JSON: ${(error as Error).message.slice(0, 200)}` }
  }
  if (typeof value !== 'object' || value === null) return { complaint: 'expected a JSON object' }
  const complaint = complaintOf(lease, value)
  if (complaint !== undefined) return { complaint }
  const found = value as StoredLease
  return found.metadata.name === name ? found : { complaint: `metadata.name: expected ${name}` }
}

/**
 * What is odd about a Lease that counts all the same: nobody goes by its times, since clocks differ. `nowMs` is
 * milliseconds since 1970.
 */
export function oddTime({ spec }: StoredLease, nowMs: number): string | undefined {
  const aheadMs = Date.parse(spec?.renewTime ?? '') - nowMs
  return aheadMs > DAY_MS ? 'spec.renewTime is more than a day ahead of the clock of this machine' : undefined
}
