/** Judges what a member tells of itself: it is handed to every other member as it is. Pure. */
import { MAX_NOT_IMPORTED, type MemberStatus, findingProblem } from '../../model/member-status.ts'
import { openConnectionsProblem } from '../../model/open-connections.ts'
import { type Refusal, checkCount, refusal } from './admission-checks.ts'

/** Undefined when it may be stored. Whose it is says the certificate: a status names no member. */
export function admitStatus({ notImported, leftOut, openConnections }: MemberStatus): Refusal | undefined {
  const tooMany = checkCount('status.notImported', notImported.length, 0, MAX_NOT_IMPORTED)
  if (tooMany !== undefined) return tooMany
  for (const [i, one] of notImported.entries()) {
    const wrong = findingProblem(one)
    if (wrong !== undefined) return refusal(`status.notImported[${i}].${wrong.field}`, wrong.problem)
  }
  if (!Number.isSafeInteger(leftOut) || leftOut < 0) {
    return refusal('status.leftOut', `${leftOut}: expected a whole number from 0`)
  }
  const wrong = openConnections === undefined ? undefined : openConnectionsProblem(openConnections)
  return wrong === undefined ? undefined : refusal('status.openConnections', wrong)
}
