/** Joining the clusterset, keeping the membership, and leaving. */
export { hasLeft } from './join-with-token.ts'
export { type MembershipAccess, rememberIdentity } from './keep-membership.ts'
export { type MemberParts, joinAndRun } from './lifecycle.ts'
export { RefusedMembership } from './refusal.ts'
export { type NoteRelays, RelayTicketLoop } from './relay-ticket-loop.ts'
export { type ChangeMembership, StatedAccessLoop } from './stated-access-loop.ts'
