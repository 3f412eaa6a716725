/** What a look shows: of a member, or of the broker of all members. Pure. */
import { type BrokerFacts, planBroker } from './plan-broker.ts'
import { type ConsoleFacts, type PlannedState, planMember } from './plan-state.ts'

export type LookFacts = ConsoleFacts | BrokerFacts

/** Never throws. `before`: of the same source. */
export function planLook(input: LookFacts, before?: PlannedState): PlannedState {
  return 'published' in input ? planBroker(input, before) : planMember(input, before)
}
