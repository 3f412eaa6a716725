/**
 * What a broker offers, without the wire: the seam between the transport (protocol/) and the broker's own logic
 * (broker/). The transport has verified the peer's certificate, so `peer.cluster` can be believed; everything
 * inside the messages cannot, and admission validates it.
 */
import type {
  ClusterId,
  Interest,
  MemberRecord,
  MemberStatus,
  OpenConnections,
  QuotaReport,
  RecordKey,
  StoredRecord,
} from '../model/model.ts'
import { type RefusalCode, type RefusalReason, refusalCode } from '../model/reasons/reasons.ts'

export interface Peer {
  /** From the URI SAN of the client certificate. */
  readonly cluster: ClusterId
  /** Where the connection comes from, as the broker sees it. */
  readonly address: string
  /** One text for each connection that is open. Absent: not known. */
  readonly connection?: string
  /** Serial number of the certificate, hex. */
  readonly serial: string
  /** SHA-256 of the certificate, hex. Absent: not known. */
  readonly fingerprint?: string
  /** When the certificate was issued, milliseconds since 1970, whole seconds. Absent: not known. */
  readonly issuedAtMs?: number
  /** When the certificate ends. Absent: not known. */
  readonly expiresAtMs?: number
  /** SHA-256 of the certificate of the authority that issued it, hex. Absent: not known. */
  readonly authority?: string
  /**
   * Serial of the certificate that was shown for this one, hex; absent where it came of a token, or of an earlier
   * release.
   */
  readonly renews?: string
  /** SHA-256 of the mark of the process that calls, hex (identity/process-mark.ts). Absent: it shows none. */
  readonly process?: string
}

/** Facts that a cluster states about itself when joining, and again whenever they change. */
export interface ClusterFacts {
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  readonly version: string
  /** What machines of this cluster need outside the lanes: model/addresses/required-ranges.ts. Absent: it states none. */
  readonly neededCIDRs?: readonly string[]
}

export interface JoinRequest {
  /** The secret part of the join token. */
  readonly secret: string
  /** Wished cluster id. */
  readonly cluster: string
  /** PKCS #10, DER. */
  readonly csr: Uint8Array
  readonly facts: ClusterFacts
  /** The member's clock, milliseconds since 1970: a clock far off is refused with that reason. */
  readonly nowMs: number
  /** Nothing is to be changed: what would this join change for others? Without a csr. */
  readonly look?: boolean
  /** The cluster can wait for an operator who approves it. Absent: an earlier release, which ends at the first no. */
  readonly waits?: boolean
  /** Nothing is to be joined: what waits for approval with this token and this key is taken back. */
  readonly withdraw?: boolean
}

/** A member whose pods have global addresses because another one joined; until then it was reached by its own. */
export interface Renumbered {
  readonly cluster: string
  readonly globalCIDRs: readonly string[]
  /** Of its pods with other clusters, as it reported last: those break. Absent: not known. */
  readonly openConnections?: OpenConnections
}

/** What a join would bring. */
export interface JoinLook {
  /** Of the cluster that asks: one for each of its pod CIDRs that is carried, or none. */
  readonly globalCIDRs: readonly string[]
  readonly renumbered: readonly Renumbered[]
}

export interface JoinResponse {
  /** X.509, DER; the URI SAN is sealane://<clusterset>/cluster/<id>. */
  readonly certificate: Uint8Array
  /** CA certificates to trust, DER. */
  readonly caBundle: readonly Uint8Array[]
  readonly clusterset: string
  readonly clusterIndex: number
  /**
   * Of the facts, what the others know the cluster by: IPv6 is left out where it overlaps another member's. Both are
   * empty from a broker that leaves nothing out.
   */
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  /** One for each of podCIDRs, or none. */
  readonly globalCIDRs: readonly string[]
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** The address that the broker was called from: the member's, or of something on the way. */
  readonly observedAddress: string
  /**
   * It is the member's own, as far as the broker can know: it then shows whether a gateway is behind address
   * translation.
   */
  readonly observedCounts: boolean
  /** Sentences for people: why stated addresses are translated or not carried. Absent: none. */
  readonly notes?: readonly string[]
  /** Other members that have global addresses because of this join; absent from a broker that does not say. */
  readonly renumbered?: readonly Renumbered[]
}

export interface RenewResponse {
  readonly certificate: Uint8Array
  readonly caBundle: readonly Uint8Array[]
}

/**
 * Refusals that a user can act on. `field` names what is wrong, `reason` why (model/reasons/). Sent as gRPC status
 * INVALID_ARGUMENT, UNAUTHENTICATED, …: that of the reason, unless `code` says another.
 */
export class RefusedError extends Error {
  readonly reason: RefusalReason
  readonly field: string
  readonly code: RefusalCode
  constructor(reason: RefusalReason, field: string, message: string, code: RefusalCode = refusalCode(reason)) {
    super(message)
    this.name = 'RefusedError'
    this.reason = reason
    this.field = field
    this.code = code
  }
}

/** A member's record as it identifies it: the cluster is implied. */
export type MemberKey = Pick<RecordKey, 'kind' | 'namespace' | 'name'>

/** Member to broker. The first message of a stream is `declare`. */
export type PublishMessage =
  /** "My whole set has this hash." SHA-256 over the sorted per-record hashes: see codec/content-hash.ts. */
  | {
      readonly t: 'declare'
      readonly setHash: Uint8Array
      readonly count: number
      /**
       * The member sends its status where the answer says that it is taken. Otherwise what was sent before is
       * withdrawn.
       */
      readonly tellsStatus?: true
      /** The member knows what a quota is: the broker says how much it has. */
      readonly takesQuota?: true
      /** The member sends what it holds where the answer asks for it. */
      readonly givesHeld?: true
    }
  /**
   * Only where it is asked for, after the answer to `declare` and before `digest`: the broker's own records (Cluster,
   * ClusterSetIP) that this member had of it before it was restored, and that its snapshot lacks or has otherwise. May
   * come in parts; `last` ends it.
   */
  | { readonly t: 'held'; readonly records: readonly StoredRecord[]; readonly last: boolean }
  /**
   * Answer to `sendDigest`: every record of the set with the hash of its content. May come in parts; `last` ends it.
   */
  | {
      readonly t: 'digest'
      readonly entries: readonly { readonly key: MemberKey; readonly hash: Uint8Array }[]
      readonly last: boolean
    }
  | { readonly t: 'put'; readonly sequence: number; readonly record: MemberRecord }
  /** What is not there is removed all the same: acknowledged, not refused. */
  | { readonly t: 'remove'; readonly sequence: number; readonly key: MemberKey }
  /** Sent when the cluster's facts change. */
  | { readonly t: 'facts'; readonly sequence: number; readonly facts: ClusterFacts }
  /** Once on each stream, and whenever it changes; only to a broker that takes it. */
  | { readonly t: 'status'; readonly sequence: number; readonly status: MemberStatus }

/** Broker to member. */
export type PublishReply =
  /**
   * The declared set is what the broker has. `asksHeld` is its epoch, where it was restored and asks what the member holds.
   */
  | { readonly t: 'inSync'; readonly takesStatus?: true; readonly asksHeld?: string }
  | { readonly t: 'sendDigest'; readonly takesStatus?: true; readonly asksHeld?: string }
  /**
   * Exactly once after the last digest part, also when empty. Send `put` for these; records of yours that were not in
   * the digest are already removed.
   */
  | { readonly t: 'need'; readonly keys: readonly MemberKey[] }
  /** Everything up to and including `sequence` is stored durably or refused; a `refused` comes before its ack. */
  | { readonly t: 'ack'; readonly sequence: number }
  | {
      readonly t: 'refused'
      readonly sequence: number
      readonly key: MemberKey
      readonly field: string
      readonly reason: RefusalReason
      /** For people; reads on after the field. */
      readonly message: string
      /** There is no room for the record as it is to be; as it was before, it is there still. */
      readonly kept?: true
    }
  /**
   * Where the member takes it: once the broker knows what it lacks, and whenever the limits change, its changes are
   * slowed down or no longer, or there is more room than at the last refusal. What was refused for want of room is to be
   * offered again then, as far as it fits.
   */
  | ({ readonly t: 'quota' } & QuotaReport)

export interface WatchRequest {
  /** Epoch and revision of the last state seen; absent for everything. */
  readonly resume?: { readonly epoch: string; readonly revision: number }
  /** The member renews its certificate when it learns of other authorities. */
  readonly followsAuthorities?: true
  /** What the member can read beyond the first release. Absent: nothing. */
  readonly takes?: readonly WatchSkill[]
  /** Namespaces whose records the member can use (model/records.ts). Absent: all. */
  readonly interest?: AskedInterest
}

export interface AskedInterest {
  readonly namespaces: Interest
  /** Those whose records the member does not have as of `resume`; of no meaning without it. */
  readonly missing: Interest
}

/** `zstd`: messages that are packed. `owners`: what has changed in the lists of `synced`, instead of the lists. */
export type WatchSkill = 'zstd' | 'owners'

export type RecordEvent =
  | { readonly t: 'put'; readonly record: StoredRecord }
  | { readonly t: 'remove'; readonly key: RecordKey; readonly revision: number }

/**
 * Broker to member. `reset` comes first: with `resumed` false a whole snapshot follows up to `synced`, with true only
 * what changed since. Batches carry RecordEvents already encoded (records-codec.ts), once for all subscribers.
 */
export type WatchMessage =
  | {
      readonly t: 'reset'
      readonly epoch: string
      readonly resumed: boolean
      /** host:port, where the broker is found now. Absent: it does not say. Not looked through: see AddressBook. */
      readonly addresses?: readonly string[]
      /** Nothing of other namespaces than those of the request comes. Absent: records of all come. */
      readonly keepsToInterest?: true
    }
  | { readonly t: 'batch'; readonly events: readonly Uint8Array[]; readonly revision: number }
  /**
   * Absence counts from here on, but only for owners that this epoch knows completely: `complete` are those that have
   * declared their whole set in this epoch, `departed` those that left or were evicted. A record of any other owner
   * that the snapshot lacks is kept: it may not have been sent yet. Sent again, at any time after the first, whenever
   * an owner newly belongs to one of the two lists; both lists are always whole. The broker's own records have the
   * owner '': it belongs to `complete` as soon as they are all there.
   */
  | {
      readonly t: 'synced'
      readonly revision: number
      readonly complete: readonly string[]
      readonly departed: readonly string[]
    }
  /** Instead of a later `synced`, to a member that takes it: what has changed in the two lists since. */
  | {
      readonly t: 'ownersChanged'
      readonly revision: number
      readonly complete: ListChange
      readonly departed: ListChange
    }
  /**
   * To a member that resumes: puts of records of the namespaces that it lacked. They are whole with the next `synced`,
   * and what has changed since the member's position comes behind them.
   */
  | { readonly t: 'added'; readonly events: readonly Uint8Array[] }
  /**
   * To a member with an interest, in parts, before the records of that moment: in which namespaces somebody exports
   * something. `whole`: what was said before is to be forgotten.
   */
  | ({ readonly t: 'exportedNamespaces'; readonly whole: boolean } & ListChange)
  /** Another of these messages, compressed once for all that take it. Members never see it: their client unpacks it. */
  | { readonly t: 'packed'; readonly zstd: Uint8Array }
  /**
   * Comes at intervals after the first `synced`: members that have no connection to the broker, and for how long by its
   * own clock, not counting its own absence. All others are in contact with it now. A member that gets no such message
   * knows nothing: its own connection, or the broker, may be what is missing. `nowMs`: the broker's clock as it said
   * this, milliseconds since 1970; absent from a broker of an earlier release, and where the message had to wait.
   */
  | { readonly t: 'contact'; readonly silent: readonly SilentMember[]; readonly nowMs?: number }
  /**
   * After the first `synced`, and whenever it changes; not where there was never more than one authority. Fingerprints:
   * of those that members are to trust, and of the one that signs. Who has another bundle, or a certificate of another
   * one, renews, at some moment within the time that is said: not all at once.
   */
  | ({ readonly t: 'authorities' } & Authorities)

export interface Authorities {
  readonly bundle: readonly string[]
  readonly signing: string
  readonly withinMs: number
}

/** Ids that have come to a list, and that have left it. */
export interface ListChange {
  readonly added: readonly string[]
  readonly removed: readonly string[]
}

export interface SilentMember {
  readonly cluster: string
  readonly forMs: number
}

/** The broker's side of one Publish stream. */
export interface PublishSession {
  /**
   * Handles one message of so many bytes on the wire; replies by the callback given to openPublish, in order. Throws
   * RefusedError to end the stream.
   */
  onMessage(message: PublishMessage, bytes?: number): Promise<void>
  /** The member has said its last message: resolves when all of them are answered. Throws as onMessage. */
  onLast(): Promise<void>
  /** The stream has ended, for whatever reason. Nothing is withdrawn. */
  onEnd(): void
}

export interface BrokerApi {
  /** Throws RefusedError. */
  join(request: JoinRequest, peerAddress: string): Promise<JoinResponse>
  /** What this join would bring. Changes nothing, and does not spend the token. Throws RefusedError as join() would. */
  lookAtJoin(request: JoinRequest, peerAddress: string): Promise<JoinLook>
  /**
   * Takes back what waits for approval with this token and this key; the token is free again. Throws RefusedError, also
   * where nothing waits. Absent: nobody ever waits.
   */
  withdrawJoin?(request: JoinRequest, peerAddress: string): Promise<void>
  renew(peer: Peer, csr: Uint8Array): Promise<RenewResponse>
  /** Withdraws all records of the cluster and ends its membership. */
  leave(peer: Peer): Promise<void>
  /**
   * `end` is called when the stream is to be ended without a message of the peer's: it is no member any more, or the
   * broker failed. Throws RefusedError when that is so already.
   */
  openPublish(peer: Peer, reply: (message: PublishReply) => void, end: (reason: Error) => void): PublishSession
  /**
   * False: whatever this peer asks for is refused, so its connection takes no place of the member's. Absent: all are
   * welcome.
   */
  isWelcome?(peer: Peer): boolean
  /**
   * Yields until the signal; the transport pulls only as fast as the peer takes. `end` is called when the stream is to
   * be ended although the peer takes nothing: it is no member any more.
   */
  watch(
    peer: Peer,
    request: WatchRequest,
    signal: AbortSignal,
    end?: (reason: Error) => void,
  ): AsyncIterable<WatchMessage>
}
