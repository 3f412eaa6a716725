/** What a cluster exposes to other members. A file of its own: commands ask for it without the schemas of policies. */
import type { Membership } from '../model.ts'

export type Exposure = NonNullable<Membership['spec']['exposure']>
export const EXPOSURES = ['exports', 'pods', 'nothing'] as const satisfies readonly Exposure[]

/** What other members may call. A Membership of a release without the choice, and none at all, mean `pods`. */
export function exposureOf(membership: Pick<Membership, 'spec'> | undefined): Exposure {
  const stated = membership?.spec.exposure
  if (stated === undefined) return 'pods'
  // A word of a later release must not open more than exports do.
  return stated === 'pods' || stated === 'nothing' ? stated : 'exports'
}
