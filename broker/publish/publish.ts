/** The publish stream of a member. */
export { MemberPublishSession } from './publish-session.ts'
export { ChangePace } from './quota-pressure.ts'
export { WritePace } from './rate-limited-writes.ts'
