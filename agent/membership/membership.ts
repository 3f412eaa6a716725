/** How an agent joins, stays a member, and leaves. */
export { hasLeft } from './join-with-token.ts'
export { type MembershipAccess, rememberIdentity } from './keep-membership.ts'
export { joinAndRun } from './lifecycle.ts'
export { RefusedMembership } from './refusal.ts'
