/**
 * What the audit log tells of: one act, who did it, and how it ended. Names of acts and of fields are a promise to those
 * who read the log by programs: they get no other meaning (audit-line.ts writes them, docs/reference.md lists them).
 */
import { randomBytes } from 'node:crypto'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** In the order of docs/reference.md. */
export const AUDIT_ACTS = [
  'join',
  'join.look',
  'join.waiting',
  'join.withdraw',
  'renew',
  'leave',
  'publish',
  'watch',
  'facts',
  'facts.waiting',
  'record',
  'certificate.copied',
  'member.returned',
  'token.create',
  'token.revoke',
  'cluster.accept',
  'cluster.refuse',
  'cluster.evict',
  'cluster.rekey',
  'cluster.quota',
  'clusterset.create',
  'clusterset.remove',
  'broker.start',
  'broker.stop',
  'broker.backup',
  'broker.restore',
  'broker.migrate',
  'authority.rotate',
  'authority.switch',
  'authority.finish',
  'authority.abort',
  'authority.drop',
  'audit.suppressed',
  'audit.lost',
] as const
export type AuditAct = (typeof AUDIT_ACTS)[number]

/** `refused`: a rule of the clusterset said no. `failed`: it was allowed, and something broke. */
export type AuditResult = 'ok' | 'refused' | 'failed'

export interface AuditActor {
  /**
   * `joining` and `stranger` have shown no certificate of ours: of a `joining` one the id is what it claims. `operator`
   * is a person at the broker's state, `broker` the process itself.
   */
  readonly kind: 'member' | 'joining' | 'stranger' | 'operator' | 'broker'
  readonly cluster?: string
  /** SHA-256 of the certificate that was shown, or given at a join; hex. */
  readonly fingerprint?: string
  /** Id of the token that was shown, never its secret. */
  readonly token?: string
  /** Where the call came from, as the broker sees it. */
  readonly address?: string
  /** Of the operator's process. */
  readonly uid?: number
  /** Name of that uid, where the machine has one. */
  readonly user?: string
  /** Who became that user by sudo, as sudo says it in the environment. */
  readonly sudoUser?: string
}

export type AuditValue = string | number | boolean | readonly string[]

export interface AuditEvent {
  /** UUID of version 7 (RFC 9562): sorts by time. A line that is written twice, after a crash, has the same one. */
  readonly id: string
  readonly atMs: number
  readonly act: AuditAct
  readonly result: AuditResult
  /** Of what was refused or failed. */
  readonly reason?: ReasonCode
  readonly who: AuditActor
  /** What it was done to: a cluster, a token, a record, a file. */
  readonly subject?: string
  /** More about the act, by name. */
  readonly details?: Readonly<Record<string, AuditValue>>
  /** From the call to the decision. */
  readonly tookMs?: number
}

/** An event that has not got its id and its time. */
export type AuditInit = Omit<AuditEvent, 'id' | 'atMs'>

/** Takes the time in milliseconds since 1970, which becomes part of the id. */
export function auditEvent(init: AuditInit, atMs: number): AuditEvent {
  return { ...init, id: eventId(atMs), atMs }
}

/** Of this process: its events of one millisecond sort in their order (RFC 9562 section 6.2, method 1). */
const latest = { ms: 0, count: 0 }

function eventId(atMs: number): string {
  const ms = Math.max(0, Math.floor(atMs)) % 2 ** 48
  latest.count = ms === latest.ms ? (latest.count + 1) & 0xfff : 0
  latest.ms = ms
  const bytes = randomBytes(16)
  bytes.writeUIntBE(ms, 0, 6)
  bytes.writeUInt16BE(0x7000 | latest.count, 6)
  bytes.writeUInt8(0x80 | (bytes.readUInt8(8) & 0x3f), 8)
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}
