/** Members: join tokens, approval, joining, contact, warnings, and the return of members after a restore. */
export { AcceptedRanges, type StatedFacts, stateFacts } from './changed-facts.ts'
export { ContactNotes, HeardMembers, NOTE_CONTACT_MS, type Replicas, contactOf } from './contact.ts'
export { MAX_TOKENS, isTokenId, pruneTokens, revokeToken } from './join-tokens.ts'
export { Joining } from './joining.ts'
export { reviewAddresses } from './member-addresses.ts'
export { drainMember, evictMember, memberSummaries, noteFollows, rekeyMember } from './member-list.ts'
export { MemberCounts, MemberWarnings } from './member-warnings.ts'
export {
  checkNewId,
  completeness,
  departMember,
  keepEarlierSpace,
  markComplete,
  noteIssued,
  pruneDeparted,
} from './membership.ts'
export { OperatorWords } from './operator-words.ts'
export { ReturningMembers } from './returning-members.ts'
export { askHeld, asksHeld, beginSettling, noteAnswered, pruneRestore, takeHeld } from './settling.ts'
export {
  acceptWaiting,
  countWaiting,
  rangesDetails,
  refuseWaiting,
  waitingDetails,
  waitingJoin,
  waitingJoins,
  waitingSummaries,
} from './waiting-joins.ts'
