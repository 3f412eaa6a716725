/** Which version of a policy its status keeps, where the API may not keep what the agent writes. Pure. */
import { type KeptVersion, versionToKeep } from '../../model/access/access.ts'

type AnyPolicy = Parameters<typeof versionToKeep>[0]

/** What an API did not keep of `status.inForce`, as this process has read it again after its writes. */
export interface LostVersions {
  /** Kinds whose CRD has no such field, as that of an earlier release. */
  readonly kinds: ReadonlySet<string>
  /**
   * What was written for policies and stored in another form, by objectKeyText(): a CRD that lacks a field of the spec
   * drops it, and what is left may say more than the author did.
   */
  readonly changed: ReadonlyMap<string, KeptVersion>
}

/** What the status of a policy keeps. `version` is in force; undefined: none is known. */
export function keptVersion<P extends AnyPolicy>(
  key: string,
  version: P | undefined,
  lost: LostVersions | undefined,
): KeptVersion<P> | undefined {
  const kept = version && versionToKeep(version)
  return kept === undefined || isChanged(lost?.changed.get(key), kept) ? undefined : kept
}

/** Whether parts that start do not know the version in force of a policy, because the API does not keep it. */
export function isLostVersion(key: string, version: AnyPolicy, lost: LostVersions | undefined): boolean {
  if (lost === undefined) return false
  const { uid, generation } = version.metadata
  return lost.kinds.has(version.kind) || isChanged(lost.changed.get(key), { uid, generation })
}

function isChanged(
  changed: KeptVersion | undefined,
  { uid, generation }: { readonly uid?: string | undefined; readonly generation?: number | undefined },
): boolean {
  return changed !== undefined && changed.uid === uid && changed.generation === generation
}
