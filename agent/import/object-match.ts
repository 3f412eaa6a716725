/** Whether the local API already holds what is desired. Pure. */
import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from '../../model/objects.ts'

type Loose = KubeObject & { readonly status?: unknown }

/** True when everything that we write is exactly so, and there is nothing else. Status is not compared. */
export function holdsExactly(present: KubeObject, desired: KubeObject): boolean {
  return isDeepStrictEqual(ownedParts(present), ownedParts(desired))
}

/** True when everything that we write is so; an API server or another controller may have added something. */
export function holdsAtLeast(present: KubeObject, desired: KubeObject): boolean {
  return covers(ownedParts(present), ownedParts(desired))
}

function ownedParts(object: KubeObject): unknown {
  const { status: _status, metadata, ...rest } = object as Loose
  return { ...rest, labels: metadata.labels ?? {}, annotations: metadata.annotations ?? {} }
}

function covers(present: unknown, desired: unknown): boolean {
  if (Array.isArray(desired)) {
    return (
      Array.isArray(present) &&
      present.length === desired.length &&
      desired.every((item, i) => covers(present[i], item))
    )
  }
  if (typeof desired !== 'object' || desired === null) return Object.is(present, desired)
  if (typeof present !== 'object' || present === null || Array.isArray(present)) return false
  return Object.entries(desired).every(([key, value]) => covers((present as Record<string, unknown>)[key], value))
}
