/** The audit log: acts, their lines, the sinks, and rate limits per source. */
export { NO_AUDIT, auditFailedCall, fieldOf, memberActor, outcomeOf, renumberedDetail } from './audit-callers.ts'
export { MAX_WAITING, keepEvent, replaceRows } from './audit-outbox.ts'
export { type AuditSink, SharedSink } from './audit-sink.ts'
export { type Audit, AuditTrail, openAuditSink, runAudit } from './audit-trail.ts'
export {
  type AuditedCommand,
  type AuditedCommandDeps,
  type Warn,
  auditedCommand,
  notedCommand,
  rowsOfOldStore,
} from './audited-command.ts'
export { accepted, copySource, memberSource, strangerSource, tokenSource } from './refusal-rate-limiter.ts'
