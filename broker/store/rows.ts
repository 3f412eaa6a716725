/**
 * What the broker keeps, as rows of one revisioned log. A scope is a table, a key is one string. Everything that
 * decides something is here, so that a restarted broker, or a second process on the same database, knows the same.
 */
import type { ClusterId, MemberQuota, RecordBody, RecordKey, RecordKind, StoredRecord } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import type { AuditEvent } from './audit-event.ts'

/** Key: recordKeyText(). The only scope that goes out by Watch. */
export interface RecordRow {
  readonly createdAtMs: number
  readonly body: RecordBody
  /** SHA-256 of the content, hex: what Publish compares. Absent on the broker's own records. */
  readonly hash?: string | undefined
  /** Of the content, encoded. Absent on the broker's own records, and in rows of earlier versions. */
  readonly bytes?: number | undefined
}

export interface IssuedCertificate {
  /** Hex, as in Peer.serial. */
  readonly serial: string
  readonly expiresAtMs: number
  /** Whole seconds, in milliseconds. Absent in rows of earlier versions. */
  readonly issuedAtMs?: number
  /** Serial of the one that was shown for it; absent where a token was. */
  readonly renews?: string
  /** Fingerprint of the authority that signed it. Absent: the one of before the first rotation, or not known. */
  readonly authority?: string
  /** The processes that used it first (Peer.process), at most MAX_PROCESSES. Absent: none showed a mark. */
  readonly processes?: readonly string[]
}

/** What went out with the certificate that was issued last, used or not: once it is used, the member has it. */
export interface HandedOut {
  /** Of the certificate, hex, as in Peer.serial. */
  readonly serial: string
  readonly expiresAtMs: number
  /** Fingerprint of the authority that signed it. */
  readonly authority: string
  /** Fingerprints of those that its bundle has. */
  readonly bundle: readonly string[]
}

export interface SupersededCertificate {
  /** Hex, as in Peer.serial. */
  readonly serial: string
  readonly atMs: number
  /** Until then it may still be used. */
  readonly untilMs: number
  /** It was used, and so was another one that was renewed from the same certificate. */
  readonly forked?: true
  /** As in IssuedCertificate. */
  readonly processes?: readonly string[]
  /** The process that used the one in its place first; absent: it showed no mark. */
  readonly replacedBy?: string
  /** Which processes used it after that time, and when each did so first; `process` absent: it showed no mark. */
  readonly late?: readonly { readonly atMs: number; readonly process?: string }[]
}

/** A certificate that was shown after it had been replaced: somebody has a copy. */
export interface Misuse {
  readonly atMs: number
  readonly serial: string
  /** Where it was shown from. */
  readonly address: string
}

/** Key: cluster id. Kept after the member has gone, so that it gets the same addresses when it comes back. */
export interface MemberRow {
  readonly index: number
  readonly facts: ClusterFacts
  /** Public space that its token let it state, as CIDRs. Absent: it joined under an earlier release. */
  readonly allowedCIDRs?: readonly string[]
  /** Of those, what no token named: an earlier release took it. */
  readonly keptCIDRs?: readonly string[]
  /**
   * In which order its ranges were stated, by CIDR, of all members together. Those of earlier releases are not there.
   */
  readonly claimed?: Readonly<Record<string, number>>
  /** Why stated addresses are translated or not carried, for people. */
  readonly notes?: readonly string[]
  /** Once true it stays: a prefix that others have learnt must not change under them. */
  readonly translated: boolean
  /** Every block ever given, by pod CIDR. */
  readonly blocks: Readonly<Record<string, string>>
  readonly joinedAtMs: number
  /** SHA-256 of the public key that the present membership began with, hex. Absent in rows of earlier versions. */
  readonly joinKeyHash?: string
  /** When the broker wrote this row for a caller of it last; contact is in a row of its own. */
  readonly lastSeenMs: number
  /** Only in rows of earlier versions: see ContactRow. */
  readonly connectedSinceMs?: number
  /** The one in use; behind it those that a broker of an earlier version issued after it: see succession.ts. */
  readonly certificates: readonly IssuedCertificate[]
  /** Replaced in the present membership, latest last. */
  readonly superseded?: readonly SupersededCertificate[]
  /**
   * When the last one ends that was issued, used or not. Absent in rows of earlier versions, and when none was renewed.
   */
  readonly issuedUntilMs?: number
  /** Absent in rows of earlier versions. */
  readonly handedOut?: HandedOut
  /** Fingerprints of the authorities that the member trusts for certain. Absent: that of before the first rotation. */
  readonly trusts?: readonly string[]
  /** It learns of another authority by its watch, and renews at once. Absent: with its next renewal. */
  readonly followsAuthorities?: true
  /** An operator asked for a new identity then: no certificate of before may be used. */
  readonly rekeyedAtMs?: number
  /** Two that were renewed from one certificate are in use: neither is taken since then. Gone with a new identity. */
  readonly forkedAtMs?: number
  /** The latest; gone with the next join. */
  readonly misuse?: Misuse
  /** Its token said that an operator decides about it. */
  readonly approve?: true
  /** What it states and an operator has not accepted: the ranges of `facts` count meanwhile. */
  readonly changed?: ChangedRanges
  /** The member has declared its whole record set since it joined. */
  readonly complete: boolean
  /** The row is of a backup of this time, put back at that time: see isOfLostTime() in succession.ts. */
  readonly restored?: { readonly takenAtMs: number; readonly atMs: number }
  /** Limits of its own, as an operator set them; they stay when it joins again. */
  readonly quota?: Partial<MemberQuota>
  readonly departedAtMs?: number
  readonly departure?: 'left' | 'evicted'
}

/** Key: cluster id. Apart from the member's row, which changes only when the membership does. */
export interface ContactRow {
  readonly lastSeenMs: number
  /**
   * Since when its streams are open; absent while none is. What a broker that was killed left here ages with
   * lastSeenMs.
   */
  readonly connectedSinceMs?: number
}

export interface TokenUse {
  readonly cluster: string
  readonly atMs: number
  /** SHA-256 of the public key in the signing request, hex: tells a repeated request from a second one. */
  readonly keyHash: string
}

/** Key: token id. */
export interface TokenRow {
  /** SHA-256 of the secret, hex. The secret itself is never stored. */
  readonly hash: string
  readonly createdAtMs: number
  readonly expiresAtMs: number
  readonly usesLeft: number
  readonly uses: readonly TokenUse[]
  readonly cluster?: string
  /** Public space that a member that joins with it may state, as CIDRs. */
  readonly allowedCIDRs?: readonly string[]
  /** Who joins with it waits until an operator accepts. */
  readonly approve?: true
  readonly revokedAtMs?: number
  /** Fingerprints of the authorities that it names. Absent: the one of the time when it was made. */
  readonly pins?: readonly string[]
}

/** Key: cluster/namespace/name. When the broker first saw this ServiceExport uid: decides conflicts. */
export interface StampRow {
  readonly uid: string
  readonly createdAtMs: number
  /** The export has been withdrawn; if the same uid comes back it keeps its place for a while. */
  readonly withdrawnAtMs?: number
}

/** Key: namespace/name. */
export interface ServiceIpRow {
  readonly ip: string
  /** Clusters that export the service with type ClusterSetIP, sorted. */
  readonly exporters: readonly string[]
  readonly releasedAtMs?: number
}

/** Key: an address of the clusterset IP range. */
export interface AddressRow {
  readonly service: string
}

/** Key: WireGuard public key, base64. */
export interface PublicKeyRow {
  readonly cluster: string
  /**
   * Names of the Endpoint records that use it, sorted; empty: its gateway is away, and it is the cluster's all the
   * same.
   */
  readonly endpoints: readonly string[]
}

/** Key: cluster id. Its public keys that no Endpoint has now, latest last. */
export interface FormerKeysRow {
  readonly keys: readonly string[]
}

/** Key 'settings': the first three are fixed at the first start, since allocations depend on them. */
export interface SettingsRow {
  readonly clusterset: string
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** host:port, best first: what join tokens say to members. */
  readonly advertise: readonly string[]
  /** Addresses that names among them led to when they were looked up last. */
  readonly resolved?: readonly string[]
  /** Of each member that has no other, as of the broker that was started last: all replicas go by this. */
  readonly quota?: MemberQuota
  /** An older state was accepted then: revisions are of another epoch since (recovery/restore.ts). */
  readonly timeline?: { readonly id: string; readonly acceptedAtMs: number }
}

export interface KnownAuthority {
  /** SHA-256 of the certificate, hex: what join tokens name. */
  readonly fingerprint: string
  /** DER, base64. */
  readonly certificate: string
  /** The clusterset knows it since then. */
  readonly sinceMs: number
}

/**
 * The second authority, from `rotate` to `finish` or `abort`:
 *
 *   announced ──all members have it──► switched ──finish──► (it is the only one)
 *       │                                 │
 *       └──────── abort ──► withdrawn ◄───┘  ──nobody uses it any more──► (gone)
 *                              └──rotate──► announced
 *
 * Announced: members get both; the first one signs and serves. Switched: the second one does. Withdrawn: the first one
 * does again; certificates of the second are still taken.
 */
export interface NextAuthority extends KnownAuthority {
  readonly phase: 'announced' | 'switched' | 'withdrawn'
  readonly phaseSinceMs: number
}

export interface RemovedAuthority extends KnownAuthority {
  readonly removedAtMs: number
  /** By `finish`: another took its place. By `abort`: it was not to take the place of another. */
  readonly by: 'finish' | 'abort'
}

/** Key AUTHORITY_KEY: which authorities count. Written at the first start of a release that can change it. */
export interface AuthorityRow {
  readonly current: KnownAuthority
  readonly next?: NextAuthority
  /** Latest last: so that a refusal can say why. */
  readonly removed: readonly RemovedAuthority[]
}

/** Key: a number below MAX_WAITING (audit-outbox.ts). An act whose line in the audit log is not written yet. */
export interface AuditRow {
  readonly event: AuditEvent
  /** Events that this one, and those before it, took the place of: their lines are lost. */
  readonly lost?: number
}

/**
 * Key: cluster id. Its latest Publish stream, where several brokers share the store: what an older one still brings, at a
 * broker that was held up, is not taken.
 */
export interface StreamRow {
  readonly id: string
}

/** Key RESTORE_KEY: the latest restore from a backup; it is still being found out what was given away since. */
export interface RestoreRow {
  readonly takenAtMs: number
  readonly atMs: number
  /** Members that have not said what they hold. */
  readonly waiting: readonly string[]
  /** Until then nobody gets a number that some member may hold; absent: nothing was served since the restore. */
  readonly untilMs?: number
}

/** A member that others hold and the backup does not know, as one of them holds it. */
export interface HeldMember {
  /** Who has said so. */
  readonly by: string
  readonly index: number
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly globalCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
}

/**
 * Key: cluster id. A member that joined between a backup and its restore: its number and blocks are nobody else's, and are
 * its own again when it shows its certificate, or joins with a token.
 */
export interface AwaitedRow {
  readonly sinceMs: number
  /** Of different members; the first ones. */
  readonly held: readonly HeldMember[]
}

/**
 * Key MIGRATION_KEY: this store is one end of a move to another one (broker/recovery/).
 *
 *   source:  leaving ──all is there──► moved      of these a broker serves only one that has arrived
 *   target:  arriving ──all is there──► arrived
 */
export interface MigrationRow {
  readonly t: 'leaving' | 'moved' | 'arriving' | 'arrived'
  /** The same at both ends. */
  readonly id: string
  /** The other end, as commands name it. */
  readonly peer: string
  readonly atMs: number
}

/**
 * Key: name. A clusterset that this broker serves beside its own, with a store, an authority and members of its own
 * (broker/other-clustersets.ts).
 */
export interface ClustersetRow {
  readonly createdAtMs: number
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** A broker has made its store: from then on it is not made again. */
  readonly openedAtMs?: number
  /** It is not served since then; its store stays as it is. */
  readonly removedAtMs?: number
}

export interface Scopes {
  record: RecordRow
  member: MemberRow
  contact: ContactRow
  token: TokenRow
  waiting: WaitingRow
  stamp: StampRow
  serviceIp: ServiceIpRow
  address: AddressRow
  publicKey: PublicKeyRow
  formerKeys: FormerKeysRow
  settings: SettingsRow
  audit: AuditRow
  stream: StreamRow
  migration: MigrationRow
  restore: RestoreRow
  awaited: AwaitedRow
  authority: AuthorityRow
  clusterset: ClustersetRow
}
export type Scope = keyof Scopes

export const SETTINGS_KEY = 'settings'
export const AUTHORITY_KEY = 'authority'
export const MIGRATION_KEY = 'migration'
export const RESTORE_KEY = 'restore'

const EVERY_SCOPE: Readonly<Record<Scope, true>> = {
  record: true,
  member: true,
  contact: true,
  token: true,
  stamp: true,
  serviceIp: true,
  address: true,
  publicKey: true,
  formerKeys: true,
  settings: true,
  audit: true,
  stream: true,
  waiting: true,
  migration: true,
  restore: true,
  awaited: true,
  authority: true,
  clusterset: true,
}

/** All of them: what copies or looks through a whole store must leave none out. */
export const SCOPES = Object.keys(EVERY_SCOPE) as readonly Scope[]

/** The reverse of recordKeyText(). */
export function parseRecordKey(text: string): RecordKey {
  // Not split(): this is asked for each change and each interest.
  const [first, second] = [text.indexOf('/'), text.indexOf('/', text.indexOf('/') + 1)]
  const third = text.indexOf('/', second + 1)
  const cluster = text.slice(0, first) as ClusterId | ''
  const kind = text.slice(first + 1, second) as RecordKind
  return { cluster, kind, namespace: text.slice(second + 1, third), name: text.slice(third + 1) }
}

export function storedRecord(key: string, revision: number, row: RecordRow): StoredRecord {
  return { key: parseRecordKey(key), revision, createdAtMs: row.createdAtMs, body: row.body }
}

/** A member that has neither left nor been evicted. */
export function isLive(row: MemberRow | undefined): row is MemberRow {
  return row !== undefined && row.departedAtMs === undefined
}

/** A time that a row has, for people: RFC 3339, to the second. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')
}

// What waits for an operator, as the store keeps it.

/** Ranges that a member states in place of those that an operator accepted. */
export interface ChangedRanges extends Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'neededCIDRs'> {
  readonly sinceMs: number
  /** Members that get global addresses, or lose their IPv6, if it is accepted; as of when it was stated. */
  readonly renumbers: readonly string[]
  readonly acceptedAtMs?: number
  readonly refusedAtMs?: number
}

/** Key: cluster/token. A join that waits for an operator, or was answered and not asked for again yet. */
export interface WaitingRow {
  /** SHA-256 of the public key of who waits, hex: the token is bound to it. */
  readonly keyHash: string
  readonly facts: ClusterFacts
  /** Where it asked from last, as the broker saw it. */
  readonly address: string
  readonly sinceMs: number
  /** Now and then, not each time. */
  readonly lastAskedMs: number
  /** End of the token. */
  readonly expiresAtMs: number
  /** Members that got global addresses if it joined, when it asked first. */
  readonly renumbers: readonly string[]
  readonly acceptedAtMs?: number
  readonly refusedAtMs?: number
}
