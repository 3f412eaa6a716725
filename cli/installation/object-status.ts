/** Fields of status as API servers give them: absent, and sometimes null, until somebody writes them. */
import type { ManifestObject } from '../../install/values/values.ts'

export interface ObjectCondition {
  readonly type: string
  readonly status: string
  readonly message?: string
}

export function conditionsOf(object: ManifestObject): readonly ObjectCondition[] {
  return listOf(object, 'conditions') as readonly ObjectCondition[]
}

/** A list of `.status`; empty where there is none. */
export function listOf(object: ManifestObject, field: string): readonly unknown[] {
  const status = object['status'] as Readonly<Record<string, unknown>> | null | undefined
  const list = status?.[field]
  return Array.isArray(list) ? (list as readonly unknown[]) : []
}
