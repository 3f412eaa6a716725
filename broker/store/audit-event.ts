/**
 * One event of the audit log: the act, who did it, and how it ended. Programs read the log, so an act or a field never
 * gets another meaning (broker/audit/audit-line.ts writes them, docs/reference.md lists them).
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
  'cluster.drain',
  'cluster.undrain',
  'cluster.quota',
  'access.default',
  'topology.set',
  'topology.release',
  'relay.add',
  'relay.remove',
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

/** `refused`: a rule of the clusterset forbids it. `failed`: it is allowed, and an error prevented it. */
export type AuditResult = 'ok' | 'refused' | 'failed'

export interface AuditActor {
  /**
   * A `joining` caller and a `stranger` have shown no certificate of this clusterset, and the id of a `joining` caller
   * is only what it claims. An `operator` is a person at the broker's state. `broker` is the process itself.
   */
  readonly kind: 'member' | 'joining' | 'stranger' | 'operator' | 'broker'
  readonly cluster?: string
  /** SHA-256 of the certificate that the caller showed, or got at a join; hex. */
  readonly fingerprint?: string
  /** Id of the token that the caller showed, never its secret. */
  readonly token?: string
  /**
   * Source address of the call, as the broker sees it. An operator has one if the call came by the port of the admin
   * service: `user` and `sudoUser` are then only what the caller claims.
   */
  readonly address?: string
  /** User id of the operator's process. */
  readonly uid?: number
  /** Name of that user id, if the machine has one. */
  readonly user?: string
  /** The user who became that user by sudo, as sudo reports it in the environment. */
  readonly sudoUser?: string
}

export type AuditValue = string | number | boolean | readonly string[]

export interface AuditEvent {
  /** UUID of version 7 (RFC 9562), which sorts by time. A line that is written twice, after a crash, keeps its id. */
  readonly id: string
  readonly atMs: number
  readonly act: AuditAct
  readonly result: AuditResult
  /** Only on events that were refused or failed. */
  readonly reason?: ReasonCode
  readonly who: AuditActor
  /** The object of the act: a cluster, a token, a record or a file. */
  readonly subject?: string
  /** More facts about the act, by name. */
  readonly details?: Readonly<Record<string, AuditValue>>
  /** Time from the call to the decision. */
  readonly tookMs?: number
}

/** An event without its id and its time. */
export type AuditInit = Omit<AuditEvent, 'id' | 'atMs'>

/** `atMs` is in milliseconds since 1970, and becomes part of the id. */
export function auditEvent(init: AuditInit, atMs: number): AuditEvent {
  return { ...init, id: eventId(atMs), atMs }
}

/** Events of this process within one millisecond sort in their order (RFC 9562 section 6.2, method 1). */
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
