/** The Lease of a lane as the API has it: read, and written. Pure. */
import type { StoredLease } from '../../kubeapi/lease-store.ts'
import { ANNOTATION_HANDOVER, laneLeaseName } from '../../model/lanes/lane-lease.ts'
import type { Lease, Membership } from '../../model/objects.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/spec-constants.ts'
import { LANE_LEASE_MS } from '../../model/lanes/lease-duration.ts'
import type { LeaseView } from './plan-tenure.ts'

/** `changedMs`: LeaseView's. What others wrote is taken as it is; a duration that is none counts as the default. */
export function viewOf({ metadata, spec }: StoredLease, changedMs: number): LeaseView {
  const seconds = spec?.leaseDurationSeconds ?? 0
  return {
    holder: spec?.holderIdentity ?? '',
    offer: metadata.annotations?.[ANNOTATION_HANDOVER],
    changedMs,
    durationMs: seconds > 0 ? seconds * 1000 : LANE_LEASE_MS,
  }
}

export interface LeaseTerms {
  readonly lane: number
  /** Empty: nobody. */
  readonly holder: string
  readonly offer?: string | undefined
  /** Milliseconds since 1970. */
  readonly nowMs: number
  readonly durationMs: number
  /** The Lease goes with it. */
  readonly membership: Membership | undefined
  readonly before: Lease['spec'] | undefined
}

/** Another version of `stored`, or a new Lease. */
export function leaseOf(terms: LeaseTerms, stored: StoredLease | undefined): StoredLease {
  const { holder, offer, membership, before } = terms
  const now = microTime(terms.nowMs)
  const stays = before !== undefined && before.holderIdentity === holder
  const { [ANNOTATION_HANDOVER]: _old, ...annotations } = stored?.metadata.annotations ?? {}
  const uid = membership?.metadata.uid
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: {
      ...(stored?.metadata ?? { name: laneLeaseName(terms.lane) }),
      labels: { ...(stored?.metadata.labels ?? {}), [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      annotations: offer === undefined ? annotations : { ...annotations, [ANNOTATION_HANDOVER]: offer },
      ...(membership === undefined || uid === undefined
        ? {}
        : {
            ownerReferences: [
              { apiVersion: membership.apiVersion, kind: membership.kind, name: membership.metadata.name, uid },
            ],
          }),
    },
    spec: {
      holderIdentity: holder,
      leaseDurationSeconds: Math.ceil(terms.durationMs / 1000),
      acquireTime: (stays ? before.acquireTime : undefined) ?? now,
      renewTime: now,
      leaseTransitions: (before?.leaseTransitions ?? -1) + (stays ? 0 : 1),
    },
  }
}

/** metav1.MicroTime. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z')
}
