/** Reads fields of `.status`, which API servers omit, or set to null, until a controller writes them. */
import type { ManifestObject } from '../../install/values/values.ts'

export interface ObjectCondition {
  readonly type: string
  readonly status: string
  readonly message?: string
}

export function conditionsOf(object: ManifestObject): readonly ObjectCondition[] {
  return listOf(object, 'conditions') as readonly ObjectCondition[]
}

/** A list in `.status`. Empty if there is none. */
export function listOf(object: ManifestObject, field: string): readonly unknown[] {
  const status = object['status'] as Readonly<Record<string, unknown>> | null | undefined
  const list = status?.[field]
  return Array.isArray(list) ? (list as readonly unknown[]) : []
}
