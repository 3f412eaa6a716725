/** What a user should know about an export, from the messages of its conditions. Pure. */
import { CONDITION_IMPORTED, findCondition } from '../../model/conditions.ts'
import type { Condition } from '../../model/objects.ts'

/** What is wrong comes first; which members import it is said also when all is well. '-' for nothing. */
export function exportMessage(conditions: readonly Condition[] = []): string {
  const valid = findCondition(conditions, 'Valid')
  // Everything else follows from it.
  if (valid !== undefined && valid.status !== 'True') return valid.message
  const ready = findCondition(conditions, 'Ready')
  const conflict = findCondition(conditions, 'Conflict')
  const messages = [
    ready?.status === 'True' ? '' : ready?.message,
    conflict?.status === 'True' ? conflict.message : '',
    findCondition(conditions, CONDITION_IMPORTED)?.message,
  ]
  return messages.filter((message) => message !== undefined && message !== '').join('. ') || '-'
}
