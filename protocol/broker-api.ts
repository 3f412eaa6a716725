/**
 * The interface between the transport (protocol/transport) and the logic of the broker (broker/). The transport has
 * verified the certificate of the peer, so `peer.cluster` is trustworthy. The content of messages is not; the broker's
 * admission validates it.
 */
import type { AccessDefault } from '../model/access/access.ts'
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
  /** Cluster id from the URI SAN of the client certificate. */
  readonly cluster: ClusterId
  /** Source address of the connection as the broker sees it. */
  readonly address: string
  /** Identifies the open connection. Absent if unknown. */
  readonly connection?: string
  /** Serial number of the certificate, in hexadecimal. */
  readonly serial: string
  /** SHA-256 of the certificate, in hexadecimal. Absent if unknown. */
  readonly fingerprint?: string
  /** Time at which the certificate was issued, in milliseconds since 1970, rounded to seconds. Absent if unknown. */
  readonly issuedAtMs?: number
  /** Time at which the certificate expires, in milliseconds since 1970. Absent if unknown. */
  readonly expiresAtMs?: number
  /** SHA-256 of the certificate of the issuing authority, in hexadecimal. Absent if unknown. */
  readonly authority?: string
  /**
   * Serial number, in hexadecimal, of the certificate that this one renews. Absent if the certificate was issued for a
   * token or by an earlier release.
   */
  readonly renews?: string
  /** SHA-256 of the mark of the calling process, in hexadecimal (identity/process-mark.ts). Absent if it sends none. */
  readonly process?: string
}

/** Facts that a cluster states about itself when it joins, and again whenever they change. */
export interface ClusterFacts {
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  readonly version: string
  /**
   * Addresses outside the lanes that machines of this cluster need: model/addresses/required-ranges.ts. Absent if the
   * cluster states none.
   */
  readonly neededCIDRs?: readonly string[]
  /** ClusterProperties by name: model/services/cluster-properties.ts. Absent if the cluster states none. */
  readonly properties?: Readonly<Record<string, string>>
}

export interface JoinRequest {
  /** Secret part of the join token. */
  readonly secret: string
  /** Requested cluster id. */
  readonly cluster: string
  /** Certificate signing request, PKCS #10 in DER. */
  readonly csr: Uint8Array
  readonly facts: ClusterFacts
  /** Clock of the member, in milliseconds since 1970. The broker refuses a clock that is far off, and says so. */
  readonly nowMs: number
  /**
   * Set for a preview: the broker changes nothing and returns what the join would change for other members. `csr` is
   * empty.
   */
  readonly look?: boolean
  /**
   * The cluster can wait for approval by an operator. Absent from earlier releases, which stop at the first refusal.
   */
  readonly waits?: boolean
  /** Set to withdraw the pending approval for this token and key. The cluster does not join. */
  readonly withdraw?: boolean
}

/**
 * A member whose pods have global addresses because of another member's join. Before, its pods were reached by their
 * own addresses.
 */
export interface Renumbered {
  readonly cluster: string
  readonly globalCIDRs: readonly string[]
  /** Connections between its pods and other clusters, as it last reported: the join breaks them. Absent if unknown. */
  readonly openConnections?: OpenConnections
}

/** Preview of a join. */
export interface JoinLook {
  /** Global CIDRs of the joining cluster: one for each pod CIDR that is routed, or none. */
  readonly globalCIDRs: readonly string[]
  readonly renumbered: readonly Renumbered[]
}

export interface JoinResponse {
  /** X.509 in DER. The URI SAN is sealane://<clusterset>/cluster/<id>. */
  readonly certificate: Uint8Array
  /** Certificates of the trusted CAs, in DER. */
  readonly caBundle: readonly Uint8Array[]
  readonly clusterset: string
  readonly clusterIndex: number
  /**
   * The stated CIDRs that other members use for this cluster. IPv6 CIDRs that overlap those of another member are left
   * out. Both lists are empty if the broker leaves nothing out.
   */
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  /** One for each of `podCIDRs`, or none. */
  readonly globalCIDRs: readonly string[]
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** Source address of the call as the broker saw it: that of the member, or of a device in between. */
  readonly observedAddress: string
  /**
   * The broker has found no sign that `observedAddress` belongs to a device in between. The address then shows whether
   * a gateway is behind NAT.
   */
  readonly observedCounts: boolean
  /** Sentences for users that explain why stated addresses are translated or not routed. Absent if there are none. */
  readonly notes?: readonly string[]
  /** Other members that have global addresses because of this join. Absent if the broker does not report them. */
  readonly renumbered?: readonly Renumbered[]
}

export interface RenewResponse {
  readonly certificate: Uint8Array
  readonly caBundle: readonly Uint8Array[]
}

/**
 * A refusal that a user can act on. `field` names the wrong value and `reason` the cause (model/reasons/). The gRPC
 * status, such as INVALID_ARGUMENT, is that of the reason unless `code` overrides it.
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

/** Key of a record within one member. The cluster is implied. */
export type MemberKey = Pick<RecordKey, 'kind' | 'namespace' | 'name'>

/** A message from member to broker. The first message of a stream is `declare`. */
export type PublishMessage =
  /**
   * States the hash of the whole set of records: SHA-256 over the sorted hashes of all records (codec/content-hash.ts).
   */
  | {
      readonly t: 'declare'
      readonly setHash: Uint8Array
      readonly count: number
      /**
       * The member sends its status if the reply has `takesStatus`. If absent, the broker withdraws an earlier status.
       */
      readonly tellsStatus?: true
      /** The member understands quotas, so the broker sends it `quota`. */
      readonly takesQuota?: true
      /** The member sends `held` if the reply has `asksHeld`. */
      readonly givesHeld?: true
    }
  /**
   * Sent only on request, after the reply to `declare` and before `digest`. Contains records that the broker owns
   * (Cluster, ClusterSetIP), that this member received before the broker was restored, and that are missing or
   * different in the new snapshot. May be split; `last` marks the final part.
   */
  | { readonly t: 'held'; readonly records: readonly StoredRecord[]; readonly last: boolean }
  /**
   * Answers `sendDigest` with the content hash of every record of the set. May be split; `last` marks the final part.
   */
  | {
      readonly t: 'digest'
      readonly entries: readonly { readonly key: MemberKey; readonly hash: Uint8Array }[]
      readonly last: boolean
    }
  | { readonly t: 'put'; readonly sequence: number; readonly record: MemberRecord }
  /** The broker acknowledges the removal of a record that does not exist. */
  | { readonly t: 'remove'; readonly sequence: number; readonly key: MemberKey }
  /** Sent when the facts of the cluster change. */
  | { readonly t: 'facts'; readonly sequence: number; readonly facts: ClusterFacts }
  /** Sent once on each stream and after each change, if the broker has sent `takesStatus`. */
  | { readonly t: 'status'; readonly sequence: number; readonly status: MemberStatus }

export interface DeclareAnswer {
  readonly takesStatus?: true
  readonly asksHeld?: string
  /**
   * The broker, all replicas of it, gives a record only to the members to which it is offered. Absent while one of them
   * is of an earlier release, which gives all records to all members.
   */
  readonly keepsToOffers?: true
}

/** A message from broker to member. */
export type PublishReply =
  /** The broker has the declared set. A restored broker that asks for `held` sets `asksHeld` to its epoch. */
  | ({ readonly t: 'inSync' } & DeclareAnswer)
  | ({ readonly t: 'sendDigest' } & DeclareAnswer)
  /**
   * Sent exactly once after the last part of a digest, even if empty. The member sends `put` for these keys. The broker
   * has already removed the member's records that were not in the digest.
   */
  | { readonly t: 'need'; readonly keys: readonly MemberKey[] }
  /** Everything up to and including `sequence` is durably stored or refused. A `refused` precedes its `ack`. */
  | { readonly t: 'ack'; readonly sequence: number }
  | {
      readonly t: 'refused'
      readonly sequence: number
      readonly key: MemberKey
      readonly field: string
      readonly reason: RefusalReason
      /** Explanation for users, which continues after the field name. */
      readonly message: string
      /** The new version of the record exceeds the quota. The broker keeps the previous version. */
      readonly kept?: true
    }
  /**
   * Sent to members with `takesQuota`: after the broker has received the missing records, and whenever limits change,
   * the throttling of changes starts or ends, or more room is available than at the last refusal. The member then sends
   * records that were refused for lack of room again, as far as they fit.
   */
  | ({ readonly t: 'quota' } & QuotaReport)

export interface WatchRequest {
  /** Epoch and revision of the last state received. Absent to request a full snapshot. */
  readonly resume?: { readonly epoch: string; readonly revision: number }
  /** The member renews its certificate when `authorities` reports a change. */
  readonly followsAuthorities?: true
  /** Features beyond the first release that the member supports. Absent if none. */
  readonly takes?: readonly WatchSkill[]
  /** Namespaces whose records the member can use (model/records.ts). Absent for all. */
  readonly interest?: AskedInterest
}

export interface AskedInterest {
  readonly namespaces: Interest
  /** Namespaces whose records the member lacks at `resume`. Ignored without `resume`. */
  readonly missing: Interest
}

/** `zstd`: the member takes `packed`. `owners`: the member takes `ownersChanged` instead of repeated `synced`. */
export type WatchSkill = 'zstd' | 'owners'

export type RecordEvent =
  | { readonly t: 'put'; readonly record: StoredRecord }
  | { readonly t: 'remove'; readonly key: RecordKey; readonly revision: number }

/**
 * A message from broker to member. `reset` comes first. If `resumed` is false, a full snapshot follows up to `synced`;
 * if true, only the changes since `resume`. A `batch` contains encoded RecordEvents (codec/records-codec.ts), which the
 * broker encodes once for all streams.
 */
export type WatchMessage =
  | {
      readonly t: 'reset'
      readonly epoch: string
      readonly resumed: boolean
      /**
       * Current broker addresses as `host:port`, not validated: see AddressBook. Absent if the broker does not send
       * them.
       */
      readonly addresses?: readonly string[]
      /**
       * The broker sends only records in the requested namespaces. Absent if it sends the records of all namespaces.
       */
      readonly keepsToInterest?: true
      /** The default of the clusterset. Absent if it was never set, which means `allow`. */
      readonly accessDefault?: AccessDefault
      /** As in `relays`. Absent if none were ever set. */
      readonly relays?: readonly string[]
    }
  | { readonly t: 'batch'; readonly events: readonly Uint8Array[]; readonly revision: number }
  /**
   * From here on, a missing record counts as removed if the broker knows its owner completely in this epoch. `complete`
   * lists the owners that have declared their whole set in this epoch; `departed` lists those that left or were
   * evicted. The member keeps records of all other owners, because these may not have sent them yet. The message is
   * sent again, with both lists complete, whenever an owner is added to a list. Records of the broker itself have the
   * owner '', which is in `complete` as soon as all of them are present.
   */
  | {
      readonly t: 'synced'
      readonly revision: number
      readonly complete: readonly string[]
      readonly departed: readonly string[]
    }
  /** Replaces repeated `synced` messages for members with `owners`: the changes of the two lists. */
  | {
      readonly t: 'ownersChanged'
      readonly revision: number
      readonly complete: ListChange
      readonly departed: ListChange
    }
  /**
   * Sent to a member that resumes: the records of the namespaces in `missing`. They are complete at the next `synced`.
   * The changes since `resume` follow.
   */
  | { readonly t: 'added'; readonly events: readonly Uint8Array[] }
  /**
   * Sent to a member with an interest, in parts, before the records of the same revision: the namespaces in which a
   * member exports a service. `whole` replaces everything that was sent before.
   */
  | ({ readonly t: 'exportedNamespaces'; readonly whole: boolean } & ListChange)
  /**
   * Another message, compressed once for all streams. The client decompresses it, so the sessions of a member never see
   * it.
   */
  | { readonly t: 'packed'; readonly zstd: Uint8Array }
  /**
   * Sent at intervals after the first `synced`: the members without a connection to the broker, and for how long. The
   * duration is measured by the broker's clock and excludes the broker's own downtime. All other members are connected.
   * Without this message a member knows nothing about the others, because its own connection or the broker may be down.
   * `nowMs` is the broker's clock at the time of sending, in milliseconds since 1970. It is absent if the broker is of
   * an earlier release, or if the message had to wait.
   */
  | { readonly t: 'contact'; readonly silent: readonly SilentMember[]; readonly nowMs?: number }
  /**
   * Sent after the first `synced` and after each change, unless there has only ever been one authority. Contains the
   * fingerprints of the authorities to trust and of the one that signs. A member with another bundle, or a certificate
   * of another authority, renews at a random time within `withinMs`, so that members do not all renew at once.
   */
  | ({ readonly t: 'authorities' } & Authorities)
  /** Sent when the default of the clusterset has changed, for services without a policy. */
  | { readonly t: 'access'; readonly accessDefault: AccessDefault }
  /** Sent when the relays on port 443 have changed: all addresses, which the member checks (readRelayAddress()). */
  | { readonly t: 'relays'; readonly relays: readonly string[] }

export interface Authorities {
  readonly bundle: readonly string[]
  readonly signing: string
  readonly withinMs: number
}

/** Ids that were added to and removed from a list. */
export interface ListChange {
  readonly added: readonly string[]
  readonly removed: readonly string[]
}

export interface SilentMember {
  readonly cluster: string
  readonly forMs: number
}

/** The broker's side of a Publish stream. */
export interface PublishSession {
  /**
   * Handles one message; `bytes` is its size on the wire. Replies go, in order, to the callback that openPublish() was
   * given. Throws RefusedError to end the stream.
   */
  onMessage(message: PublishMessage, bytes?: number): Promise<void>
  /** Called after the member's last message. Resolves when every message is answered. Throws as onMessage() does. */
  onLast(): Promise<void>
  /** Called when the stream has ended for any reason. Withdraws nothing. */
  onEnd(): void
}

export interface BrokerApi {
  /** Throws RefusedError. */
  join(request: JoinRequest, peerAddress: string): Promise<JoinResponse>
  /** Previews a join without changes, and does not use up the token. Throws RefusedError as join() does. */
  lookAtJoin(request: JoinRequest, peerAddress: string): Promise<JoinLook>
  /**
   * Withdraws the pending approval for this token and key; the token can be used again. Throws RefusedError, also if
   * nothing is pending. Absent if joins need no approval.
   */
  withdrawJoin?(request: JoinRequest, peerAddress: string): Promise<void>
  renew(peer: Peer, csr: Uint8Array): Promise<RenewResponse>
  /** Withdraws all records of the cluster and ends its membership. */
  leave(peer: Peer): Promise<void>
  /**
   * The broker calls `end` to end the stream at once: the peer is no longer a member, or the broker failed. Throws
   * RefusedError if the peer is not a member.
   */
  openPublish(peer: Peer, reply: (message: PublishReply) => void, end: (reason: Error) => void): PublishSession
  /**
   * False if every call of this peer is refused: its connection then takes no slot of the member. Absent if all are
   * welcome.
   */
  isWelcome?(peer: Peer): boolean
  /**
   * Yields until `signal` aborts. The transport reads only as fast as the peer does. The broker calls `end` to end the
   * stream of a peer that is no longer a member, even if the peer reads nothing.
   */
  watch(
    peer: Peer,
    request: WatchRequest,
    signal: AbortSignal,
    end?: (reason: Error) => void,
  ): AsyncIterable<WatchMessage>
}
