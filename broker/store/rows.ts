/**
 * The broker's state as rows of one revisioned log. A scope is a table, and a key is one string. The log holds
 * everything that decisions depend on, so that a restarted broker, or a second process on the same database, decides
 * the same.
 */
import type { AccessDefault } from '../../model/access/access.ts'
import type { ClusterId, MemberQuota, RecordBody, RecordKey, RecordKind, StoredRecord } from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import type { AuditEvent } from './audit-event.ts'

/** Key: recordKeyText(). Watch streams send this scope and no other. */
export interface RecordRow {
  readonly createdAtMs: number
  readonly body: RecordBody
  /** SHA-256 of the content, hex. Publish compares it. Absent on the broker's own records. */
  readonly hash?: string | undefined
  /** Size of the encoded content. Absent on the broker's own records, and in rows of earlier versions. */
  readonly bytes?: number | undefined
  /** Ids of the members to which the record is offered, besides its own cluster. Absent: all. */
  readonly readers?: readonly string[] | undefined
}

export interface IssuedCertificate {
  /** Hex, as in Peer.serial. */
  readonly serial: string
  readonly expiresAtMs: number
  /** Whole seconds, in milliseconds. Absent in rows of earlier versions. */
  readonly issuedAtMs?: number
  /** Serial of the certificate that the member renewed. Absent if the member joined with a token. */
  readonly renews?: string
  /**
   * Fingerprint of the authority that signed it. Absent if it was issued before the first rotation, or if the authority
   * is not known.
   */
  readonly authority?: string
  /** The processes that used it first (Peer.process), at most MAX_PROCESSES. Absent if no process showed a mark. */
  readonly processes?: readonly string[]
}

/**
 * What the broker sent with the latest certificate that it issued. Once the certificate is used, the member has it all.
 */
export interface HandedOut {
  /** Serial of the certificate, hex, as in Peer.serial. */
  readonly serial: string
  readonly expiresAtMs: number
  /** Fingerprint of the authority that signed it. */
  readonly authority: string
  /** Fingerprints of the authorities in its bundle. */
  readonly bundle: readonly string[]
}

export interface SupersededCertificate {
  /** Hex, as in Peer.serial. */
  readonly serial: string
  readonly atMs: number
  /** The certificate may be used until then. */
  readonly untilMs: number
  /** It was used, and so was another certificate that was renewed from the same one. */
  readonly forked?: true
  /** As in IssuedCertificate. */
  readonly processes?: readonly string[]
  /** The process that first used its successor. Absent if that process showed no mark. */
  readonly replacedBy?: string
  /**
   * The processes that used it after `atMs`, each with the time of its first use. `process` is absent if the process
   * showed no mark.
   */
  readonly late?: readonly { readonly atMs: number; readonly process?: string }[]
}

/** A superseded certificate was used: a second process has a copy of it. */
export interface Misuse {
  readonly atMs: number
  readonly serial: string
  /** The address that the caller used it from. */
  readonly address: string
}

/**
 * Key: cluster id. The row stays after the member departs, so that the member gets the same addresses when it comes
 * back.
 */
export interface MemberRow {
  readonly index: number
  readonly facts: ClusterFacts
  /** Public space that its token let it state, as CIDRs. Absent if it joined under an earlier release. */
  readonly allowedCIDRs?: readonly string[]
  /** Labels that its token stated. They are in `facts`, and the member cannot change them. */
  readonly tokenLabels?: Readonly<Record<string, string>>
  /** The part of `allowedCIDRs` that no token names: an earlier release accepted it. */
  readonly keptCIDRs?: readonly string[]
  /**
   * The order in which the ranges of all members were stated: a number by CIDR. Ranges that were stated under an
   * earlier release are not in it.
   */
  readonly claimed?: Readonly<Record<string, number>>
  /** Messages for operators: why stated addresses are translated, or are not routed. */
  readonly notes?: readonly string[]
  /** It never becomes false again: a prefix that other members have learnt must not change. */
  readonly translated: boolean
  /** Every block that the member was ever given, by pod CIDR. */
  readonly blocks: Readonly<Record<string, string>>
  readonly joinedAtMs: number
  /** SHA-256 of the public key with which the current membership began, hex. Absent in rows of earlier versions. */
  readonly joinKeyHash?: string
  /** When the broker last wrote this row for a call of the member. ContactRow has the time of the last contact. */
  readonly lastSeenMs: number
  /** Only in rows of earlier versions: see ContactRow. */
  readonly connectedSinceMs?: number
  /**
   * The certificate in use comes first. The ones that an earlier version issued after it follow: see
   * broker/identity/succession.ts.
   */
  readonly certificates: readonly IssuedCertificate[]
  /** Certificates that were replaced in the current membership, the latest last. */
  readonly superseded?: readonly SupersededCertificate[]
  /**
   * When the latest issued certificate expires, used or not. Absent in rows of earlier versions, and if none was
   * renewed.
   */
  readonly issuedUntilMs?: number
  /** Absent in rows of earlier versions. */
  readonly handedOut?: HandedOut
  /**
   * Fingerprints of the authorities that the member is known to trust. Absent: only the one from before the first
   * rotation.
   */
  readonly trusts?: readonly string[]
  /**
   * The member learns of another authority by its watch, and renews at once. Absent: it learns of it with its next
   * renewal.
   */
  readonly followsAuthorities?: true
  /** When an operator asked for a new identity. No certificate issued before may be used. */
  readonly rekeyedAtMs?: number
  /**
   * When two certificates renewed from the same one were found in use. The broker accepts neither since. A new identity
   * clears it.
   */
  readonly forkedAtMs?: number
  /** The latest misuse. The next join clears it. */
  readonly misuse?: Misuse
  /** An operator approves what it states: its token requires that, or it had labels before a restore. */
  readonly approve?: true
  /** Ranges that the member states and no operator has accepted. The ranges in `facts` apply until then. */
  readonly changed?: ChangedRanges
  /** The member has declared its whole record set since it joined. */
  readonly complete: boolean
  /**
   * The row comes from a backup of `takenAtMs` that was restored at `atMs`: see isOfLostTime() in
   * broker/identity/succession.ts.
   */
  readonly restored?: { readonly takenAtMs: number; readonly atMs: number }
  /** The member's own limits, as an operator set them. They stay when it joins again. */
  readonly quota?: Partial<MemberQuota>
  /** An operator drains the cluster. It stays drained when it joins again. */
  readonly drained?: true
  /** Only with `drained`: open connections are ended too. */
  readonly drainedNow?: true
  readonly departedAtMs?: number
  readonly departure?: 'left' | 'evicted'
}

/** Key: cluster id. Separate from the member's row, which changes only when the membership does. */
export interface ContactRow {
  readonly lastSeenMs: number
  /**
   * When the member opened its streams. Absent while it has none open. If the broker was killed, the value stays, and
   * lastSeenMs shows its age.
   */
  readonly connectedSinceMs?: number
}

export interface TokenUse {
  readonly cluster: string
  readonly atMs: number
  /** SHA-256 of the public key in the signing request, hex. It tells a repeated request from a second one. */
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
  /** Labels of each member that joins with it. */
  readonly labels?: Readonly<Record<string, string>>
  /** A cluster that joins with it waits until an operator accepts. */
  readonly approve?: true
  readonly revokedAtMs?: number
  /** Fingerprints of the authorities that it names. Absent: the authority at the time when it was created. */
  readonly pins?: readonly string[]
}

/**
 * Key: cluster/namespace/name. When the broker first saw this ServiceExport uid: it decides conflicts between exports.
 */
export interface StampRow {
  readonly uid: string
  readonly createdAtMs: number
  /** The export was withdrawn then. If the same uid comes back within a limited time, it keeps its rank. */
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
   * Names of the Endpoint records that use it, sorted. If it is empty, the gateway is away and the key still belongs to
   * the cluster.
   */
  readonly endpoints: readonly string[]
}

/** Key: cluster id. Public keys of the cluster that no Endpoint uses now, the latest last. */
export interface FormerKeysRow {
  readonly keys: readonly string[]
}

/** A relay on port 443 that an operator has added. */
export interface AddedRelay {
  /** As readRelayAddress() takes it. */
  readonly address: string
  readonly addedAtMs: number
}

/** Key 'settings'. The first three fields are fixed at the first start, since allocations depend on them. */
export interface SettingsRow {
  readonly clusterset: string
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** host:port, best first. Join tokens give them to members. */
  readonly advertise: readonly string[]
  /** Addresses that the last lookup of the names in `advertise` returned. */
  readonly resolved?: readonly string[]
  /**
   * Limits of each member that has none of its own, as the most recently started broker is configured. All replicas use
   * them.
   */
  readonly quota?: MemberQuota
  /** Whether services without a policy are offered to all members. Absent: it was never set, and they are. */
  readonly accessDefault?: AccessDefault
  /** Relays on port 443, as the most recently started broker is configured. Absent: none were ever set. */
  readonly relays?: readonly string[]
  /** `relays` is what --relay-here states. Absent: --relay states it. */
  readonly relaysHere?: true
  /**
   * Relays on port 443 that operators have added, in that order. Absent: none ever. Empty: none any more. A replica of
   * an earlier release keeps them, and states `relays` alone.
   */
  readonly addedRelays?: readonly AddedRelay[]
  /**
   * The most recently started broker follows an object in its cluster. `object`: that object has set the topology, and
   * commands do not. Absent: commands set it.
   */
  readonly topologyFrom?: { readonly object?: string }
  /** A record has been offered to some members only. What members may have had before a restart is then uncertain. */
  readonly offers?: true
  /**
   * An operator accepted an older state at that time: revisions since then belong to another epoch
   * (broker/recovery/restore.ts).
   */
  readonly timeline?: { readonly id: string; readonly acceptedAtMs: number }
}

export interface KnownAuthority {
  /** SHA-256 of the certificate, hex, as in join tokens. */
  readonly fingerprint: string
  /** DER, base64. */
  readonly certificate: string
  /** Since when the clusterset has this authority. */
  readonly sinceMs: number
}

/**
 * The second authority, from `rotate` to `finish` or `abort`:
 *
 *   announced ──all members have it──► switched ──finish──► (it is the only one)
 *       │                                 │
 *       └──────── abort ──► withdrawn ◄───┘  ──no member uses it any more──► (gone)
 *                              └──rotate──► announced
 *
 * Announced: members get both, and the first one signs and serves. Switched: the second one signs and serves.
 * Withdrawn: the first one signs and serves again, and the broker still accepts certificates of the second.
 */
export interface NextAuthority extends KnownAuthority {
  readonly phase: 'announced' | 'switched' | 'withdrawn'
  readonly phaseSinceMs: number
}

export interface RemovedAuthority extends KnownAuthority {
  readonly removedAtMs: number
  /** `finish` removes the authority that was replaced. `abort` removes the one that was to replace it. */
  readonly by: 'finish' | 'abort'
}

/**
 * Key AUTHORITY_KEY: the authorities that the broker accepts. The first start of a release that supports rotation
 * writes it.
 */
export interface AuthorityRow {
  readonly current: KnownAuthority
  readonly next?: NextAuthority
  /** The latest last. A refusal can then name the reason. */
  readonly removed: readonly RemovedAuthority[]
}

/**
 * Key: a number below MAX_WAITING (broker/audit/audit-outbox.ts). An event that is not yet written to the audit log.
 */
export interface AuditRow {
  readonly event: AuditEvent
  /** Number of events that were overwritten by this one and its predecessors. Their lines are lost. */
  readonly lost?: number
}

/**
 * Key: cluster id. The member's latest Publish stream, if several brokers share the store. A broker that was delayed
 * does not accept what an older stream still sends.
 */
export interface StreamRow {
  readonly id: string
}

/** Key RESTORE_KEY: the latest restore from a backup. Members are still asked what was assigned after the backup. */
export interface RestoreRow {
  readonly takenAtMs: number
  readonly atMs: number
  /** Members that have not reported what they hold. */
  readonly waiting: readonly string[]
  /**
   * Until then the broker assigns no number that a member may hold. Absent if the broker has not served since the
   * restore.
   */
  readonly untilMs?: number
}

/** A member that other members hold and the backup does not contain, as one of them reports it. */
export interface HeldMember {
  /** The member that reported it. */
  readonly by: string
  readonly index: number
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly globalCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
}

/**
 * Key: cluster id. A member that joined between a backup and its restore. Its number and blocks are reserved, and it
 * gets them back when it shows its certificate or joins with a token.
 */
export interface AwaitedRow {
  readonly sinceMs: number
  /** The first reports of different members. */
  readonly held: readonly HeldMember[]
}

/**
 * Key MIGRATION_KEY: this store is one end of a migration (broker/recovery/). A broker serves it only in the state
 * `arrived`.
 *
 *   source:  leaving ──all rows are there──► moved
 *   target:  arriving ──all rows are there──► arrived
 */
export interface MigrationRow {
  readonly t: 'leaving' | 'moved' | 'arriving' | 'arrived'
  /** The same in both stores. */
  readonly id: string
  /** The other store, as commands name it. */
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
  /** When a broker created its store. The store is never created again. */
  readonly openedAtMs?: number
  /** When the broker stopped serving it. Its store stays as it is. */
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

/** Every scope: code that copies or checks a whole store must include them all. */
export const SCOPES = Object.keys(EVERY_SCOPE) as readonly Scope[]

/** The reverse of recordKeyText(). */
export function parseRecordKey(text: string): RecordKey {
  // This does not use split(), since it runs for each change and each interest.
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

/** Formats a time of a row for people: RFC 3339, to the second. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')
}

// Rows that wait for an operator.

/** Ranges and labels that a member states instead of those that an operator accepted. */
export interface ChangedRanges extends Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'neededCIDRs'> {
  /** Labels that wait too. */
  readonly labels?: ClusterFacts['labels']
  readonly sinceMs: number
  /**
   * Members that get global addresses, or lose their IPv6, if an operator accepts. Computed when the ranges were
   * stated.
   */
  readonly renumbers: readonly string[]
  readonly acceptedAtMs?: number
  readonly refusedAtMs?: number
}

/** Key: cluster/token. A join that waits for an operator, or whose answer the cluster has not yet fetched. */
export interface WaitingRow {
  /** SHA-256 of the public key of the cluster that waits, hex. The token is bound to it. */
  readonly keyHash: string
  readonly facts: ClusterFacts
  /** Source address of its last request, as the broker saw it. */
  readonly address: string
  readonly sinceMs: number
  /** Updated from time to time, not with each request. */
  readonly lastAskedMs: number
  /** When the token expires. */
  readonly expiresAtMs: number
  /** Members that get global addresses if it joins. Computed at its first request. */
  readonly renumbers: readonly string[]
  readonly acceptedAtMs?: number
  readonly refusedAtMs?: number
}
