/** The streams of a member: what it publishes, and what it is sent while it watches. */
export { MemberPublishSession } from './publish-session.ts'
export { ChangeRateLimiter } from './quota-pressure.ts'
export { WriteRateLimiter } from './rate-limited-writes.ts'
export { WatchHub } from './watch-hub.ts'
