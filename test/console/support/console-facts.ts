/** Facts as the console takes them: of a healthy member unless a test changes them. */
import type { ConsoleFacts, SharesFacts } from '../../../console/console.ts'
import { type ConsoleState, planLook } from '../../../console/state/state.ts'
import type { Fact, FactKind, FactSet } from '../../../explain/facts/facts.ts'
import { type HealthyInit, NOW, type ObjectsByKind, factSet } from '../../support/objects/member-facts.ts'
import { type Loose, brokenMember } from '../../explain/broken-member.ts'

export type Change = (at: (kind: keyof ObjectsByKind) => Loose[]) => void

export interface FactsInit extends HealthyInit {
  readonly change?: Change
  readonly input?: Partial<ConsoleFacts>
}

export const NO_SHARES: ConsoleFacts['shares'] = { t: 'none', why: 'no shares here' }
export const NO_DENIED: ConsoleFacts['denied'] = { t: 'none', why: 'no samples here' }

export function consoleFacts({ change = () => undefined, input = {}, ...init }: FactsInit = {}): ConsoleFacts {
  const facts = factSet(brokenMember(change, init))
  return { facts, flags: '--context c1', live: true, shares: NO_SHARES, denied: NO_DENIED, ...input }
}

export function stateOf(init: FactsInit = {}): ConsoleState {
  return planLook(consoleFacts(init)).state
}

/** The facts of an API server that did not answer for these kinds. */
export function withSilent(found: ConsoleFacts, kinds: readonly FactKind[], takenAt = NOW): ConsoleFacts {
  const { facts, ...set } = found.facts as FactSet
  const answered = facts.filter((fact) => fact.t !== 'objects' || !kinds.includes(fact.kind))
  const silent = kinds.map((what): Fact => {
    const message = 'no answer within 5s'
    return { t: 'unanswered', what, source: 'c1', at: takenAt, needed: true, reason: 'NotAnswered', message }
  })
  return { ...found, facts: { ...set, takenAt, facts: [...answered, ...silent] } }
}

/** The slices of the facts as balancing reads them, with addresses. */
export function sharesFrom(init: HealthyInit = {}, more: Partial<SharesFacts> = {}): ConsoleFacts['shares'] {
  const slices = (brokenMember(() => undefined, init).EndpointSlice ?? []) as SharesFacts['slices']
  return { t: 'known', at: NOW, value: { slices, policies: [], clusterPolicies: [], accessPolicies: [], ...more } }
}
