/**
 * The default traffic policy of `sealane join --prefer-local`: calls stay in this cluster, else in its zone, else in its
 * region, as long as an endpoint there is ready. Pure.
 */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  APP_MANAGED_BY_SEALANE,
  CLUSTER_TRAFFIC_POLICY_NAME,
  type ClusterTrafficPolicy,
  LABEL_APP_MANAGED_BY,
  PROPERTY_REGION,
  PROPERTY_ZONE,
  type TrafficTier,
} from '../../model/model.ts'
import { SAME_AS_IMPORTER } from '../../model/services/services.ts'
import { objectDiff } from './preview-changes.ts'

/** The clusters that have the same value of a ClusterProperty as this one. None if this one has no value. */
const sameAsHere = (property: string): TrafficTier => ({
  selector: { properties: { matchProperties: { [property]: SAME_AS_IMPORTER } } },
})

export const PREFER_LOCAL: ClusterTrafficPolicy = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'ClusterTrafficPolicy',
  metadata: { name: CLUSTER_TRAFFIC_POLICY_NAME, labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE } },
  spec: { order: [{ local: {} }, sameAsHere(PROPERTY_ZONE), sameAsHere(PROPERTY_REGION), { any: {} }] },
}

export const PREFER_LOCAL_REF: ObjectRef = {
  apiVersion: PREFER_LOCAL.apiVersion,
  kind: PREFER_LOCAL.kind,
  name: CLUSTER_TRAFFIC_POLICY_NAME,
}

/** The part of the policy that is there which decides. */
interface PresentPolicy {
  readonly metadata: { readonly labels?: Readonly<Record<string, string>> | undefined }
  readonly spec?: unknown
}

/**
 * Whether an earlier join has written this policy, and no user has edited it since. All releases write the same rules:
 * one that writes others has to know these too.
 */
export function isPreferLocal(policy: PresentPolicy): boolean {
  return isFromJoin(policy) && preferLocalDiff(policy).length === 0
}

/** Whether an earlier join has written this policy. A user may have edited it since. */
export function isFromJoin({ metadata }: PresentPolicy): boolean {
  return metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
}

/**
 * Takes the default policy that is there. `writes`: it is to be written, which may change nothing. Otherwise it is
 * a user's own, or a user has edited it, and it stays; `lines` are objectDiff() from it to the policy of --prefer-local.
 */
export function planPreferLocal(
  present: PresentPolicy | undefined,
): { readonly writes: true } | { readonly writes: false; readonly lines: readonly string[] } {
  if (present === undefined || isPreferLocal(present)) return { writes: true }
  return { writes: false, lines: preferLocalDiff(present) }
}

/** The lines that differ from the policy of --prefer-local. Empty if the calls go the same way. */
function preferLocalDiff({ spec }: PresentPolicy): readonly string[] {
  const { apiVersion, kind, name } = PREFER_LOCAL_REF
  const head = { apiVersion, kind, metadata: { name } }
  return objectDiff({ ...head, spec }, { ...head, spec: PREFER_LOCAL.spec })
}

/** What a join says about a policy that stays as it is. Empty if it has the same rules. Ends with a newline. */
export function stayingPolicyText(lines: readonly string[]): string {
  if (lines.length === 0) return ''
  const head = `ClusterTrafficPolicy ${PREFER_LOCAL_REF.name} is not as sealane join writes it, and stays as it is; --prefer-local differs:\n`
  return head + lines.map((line) => `      ${line}\n`).join('')
}
