/**
 * What an operator can do at a broker: the operations of its admin service, with what they take and give. Times are
 * milliseconds since 1970 in fields that end in `Ms`, and RFC 3339 texts in others.
 */
import type { AccessDefault } from '../../model/access/access.ts'
import type {
  MemberQuota,
  MemberReport,
  OpenConnections,
  QuotaField,
  QuotaUse,
  ServiceImportType,
  Topology,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ClusterFacts } from '../protocol.ts'

/** The operations on one clusterset of a broker. All throw RefusedError for what a rule of the clusterset forbids. */
export interface BrokerAdmin {
  /** The release of the program that answers. */
  version(): Promise<{ readonly version: string }>
  status(): Promise<BrokerStatus>
  /** Lists the tokens, newest first. Their secrets are not stored. */
  tokens(): Promise<readonly TokenSummary[]>
  createToken(init: TokenInit): Promise<MadeToken>
  revokeToken(init: { readonly id: string }): Promise<TokenSummary>
  /** Current and former members, by id. */
  members(): Promise<readonly MemberSummary[]>
  /** Withdraws the records of a member and refuses its certificates. */
  evict(init: EvictInit): Promise<Eviction>
  /** Importers give a drained member no new connections while another is ready. */
  drain(init: DrainInit): Promise<DrainResult>
  /** Makes a token with which this member gets a new identity. Its earlier certificates are refused from now on. */
  rekey(init: RekeyInit): Promise<MadeToken>
  /** `changed`: false if the limits were the same before. */
  changeQuota(init: QuotaInit): Promise<{ readonly changed: boolean }>
  /** Whether services without a policy are offered to all members. `isSet`: false as long as nobody has set it. */
  accessDefault(): Promise<AccessDefaultFacts>
  /** Members learn it within a second. `changed`: false if it was the same before. */
  setAccessDefault(init: { readonly accessDefault: AccessDefault }): Promise<{ readonly changed: boolean }>
  /** Which members link with which. `number`: 0 as long as nobody has set it, and all members link. */
  topology(): Promise<TopologyFacts>
  /** What a topology would change. Changes nothing. `linksOnly`: services are left out, which is faster. */
  planTopology(init: PlanTopology): Promise<TopologyPlan>
  /** Members learn it within a second. */
  setTopology(init: SetTopology): Promise<TopologySet>
  /** The relays on port 443 that members get: those of the broker's flags first. */
  relays(): Promise<readonly StatedRelay[]>
  /** Members learn it within a second. The same address a second time changes nothing. */
  addRelay(init: { readonly address: string }): Promise<RelayAdded>
  /** Takes the address of a relay, or its host[:port]. Those of the flags are refused. */
  removeRelay(init: { readonly relay: string }): Promise<RelayRemoved>
  /** What members publish: their gateways and services, with who exports and imports each. Changes nothing. */
  published(): Promise<Published>
  /** The joins and ranges that wait for approval, by id. */
  waiting(): Promise<readonly WaitingSummary[]>
  accept(init: AnswerInit): Promise<Answer>
  refuse(init: AnswerInit): Promise<Answer>
  authority(): Promise<AuthorityStatus>
  rotateAuthority(init: RotateInit): Promise<AuthorityStep>
  finishRotation(init: { readonly force: boolean }): Promise<AuthorityStep>
  abortRotation(): Promise<AuthorityStep>
  /** All clustersets of the broker, its own first. */
  clustersets(): Promise<readonly ClustersetSummary[]>
  createClusterset(init: CreateClustersetInit): Promise<CreatedClusterset>
  removeClusterset(init: { readonly name: string; readonly force: boolean }): Promise<{ readonly repeated: boolean }>
  /** Checks all stored rows for what cannot be right. Changes nothing. */
  verify(): Promise<Verified>
  /**
   * Gives a backup to `take` in parts, and in the end the warnings about it. `knownAs` is the path as the user knows it,
   * for the message that asks for a restore. Throws also what `take` throws.
   */
  backup(init: { readonly knownAs: string }, take: (part: BackupPart) => Promise<void>): Promise<void>
  /** Takes a backup in parts. The broker replaces its state with it when it starts the next time. */
  stageRestore(init: { readonly force: boolean }, parts: AsyncIterable<Uint8Array>): Promise<StagedRestore>
}

/** Who does it, as the audit log has it. The broker trusts it as far as it trusts the way by which it came. */
export interface Operator {
  readonly uid?: number
  readonly user?: string
  /** The user who became that user by sudo. */
  readonly sudoUser?: string
}

// Tokens.

export interface TokenInit {
  /** Milliseconds until it expires. The default is 15 minutes, the maximum 30 days. */
  readonly ttlMs?: number | undefined
  /** How many clusters may join with it. The default is 1. */
  readonly uses?: number | undefined
  /** Only this cluster may join with it, even if it is already a member. */
  readonly cluster?: string | undefined
  /** Public ranges that a member that joins with it may state, as CIDRs. */
  readonly allowedCIDRs?: readonly string[] | undefined
  /** Labels of each member that joins with it. The member cannot change them. */
  readonly labels?: Readonly<Record<string, string>> | undefined
  /** Joins with it wait until an operator accepts them, whatever the setting of the broker. */
  readonly approve?: boolean | undefined
}

export interface RekeyInit {
  readonly cluster: string
  /** See TokenInit. */
  readonly ttlMs?: number | undefined
}

export interface TokenSummary {
  readonly id: string
  /** `waiting`: clusters that wait for approval hold all remaining uses. */
  readonly state: 'valid' | 'used' | 'waiting' | 'expired' | 'revoked'
  readonly createdAtMs: number
  readonly expiresAtMs: number
  readonly usesLeft: number
  readonly cluster?: string
  readonly allowedCIDRs: readonly string[]
  /** Absent if the token states none. A broker of an earlier release never has them. */
  readonly labels?: Readonly<Record<string, string>>
  /** Whether joins with it wait for approval. */
  readonly approve: boolean
  /** Clusters that joined with it. */
  readonly usedBy: readonly string[]
  /** Clusters that wait with it or were refused. Each holds one of the remaining uses. */
  readonly heldBy: readonly string[]
}

/** `text` is the secret to hand over. It is shown once and never stored. */
export type MadeToken = TokenSummary & { readonly text: string }

// Members.

export type MemberState = 'in contact' | 'silent' | 'left' | 'evicted'

export interface MemberSummary {
  readonly id: string
  readonly state: MemberState
  /** When the state began. For a silent member, when it was last seen. */
  readonly sinceMs: number
  readonly joinedAtMs: number
  readonly lastSeenMs: number
  /** When an operator revoked its certificates, until the member joins with the token that was made for it. */
  readonly rekeyedAtMs?: number
  /** When the broker began to refuse all its certificates, because two parties hold its identity. */
  readonly forkedAtMs?: number
  /** A replaced certificate of this member was shown, so another party has a copy. Absent after its next join. */
  readonly misuse?: Misuse
  /** It gets no new connections while another cluster is ready. */
  readonly drained?: true
  /** Only with `drained`: open connections to it are ended too. */
  readonly drainedNow?: true
  /** Members that it does not reach, because it states Service addresses over their pods. One sentence each. */
  readonly clashes?: readonly string[]
  /** Number of records that it publishes. */
  readonly records: number
  readonly quota: MemberQuotaSummary
  /** As the member states them. */
  readonly podCIDRs: readonly string[]
  /** Those of podCIDRs that are left out because of another member's: they are sent to no other member. */
  readonly notCarried: readonly string[]
  /** One for each of podCIDRs that is carried. Empty if the member has no global addresses. */
  readonly globalCIDRs: readonly string[]
  /** Sentences that say why its addresses are not used as stated. */
  readonly notes: readonly string[]
  /** Absent if it has none, and from an earlier release. */
  readonly labels?: Readonly<Record<string, string>>
  /** Between its pods and other members, as it last reported. Absent if it reported none. */
  readonly openConnections?: OpenConnections
  /** The last report of the member. Absent if there is none, as for earlier releases. */
  readonly reported?: MemberReport
}

/** The use of a certificate that another one had replaced. */
export interface Misuse {
  readonly atMs: number
  readonly serial: string
  /** The address that the caller used it from. */
  readonly address: string
}

export interface MemberQuotaSummary {
  readonly limit: MemberQuota
  readonly used: QuotaUse
  /** Limits that are set for this member rather than taken from the default. */
  readonly own: readonly QuotaField[]
}

export interface DrainInit {
  /** As the operator typed it. */
  readonly cluster: string
  /** False ends the drain. */
  readonly drained: boolean
  /** Only with `drained`: importers end open connections too. */
  readonly now?: boolean | undefined
}

export interface DrainResult {
  /** False if it was so before. */
  readonly changed: boolean
  /** Open connections are ended too. Absent: they go on. A broker of an earlier release never says it. */
  readonly now?: true
}

export interface EvictInit {
  /** As the operator typed it. */
  readonly cluster: string
  /** Evicts a member even if it is in contact. */
  readonly force: boolean
}

/** `repeated`: the member had been evicted before, and nothing was changed. */
export interface Eviction {
  readonly id: string
  readonly evictedAtMs: number
  readonly repeated: boolean
}

/** `default` restores the limit of all members. */
export type QuotaChange = { readonly [field in QuotaField]?: number | 'default' | undefined }

export interface QuotaInit {
  /** As the operator typed it. */
  readonly cluster: string
  readonly change: QuotaChange
}

// The default for services without a policy.

export interface AccessDefaultFacts {
  readonly accessDefault: AccessDefault
  readonly isSet: boolean
}

// Relays on port 443.

export interface StatedRelay {
  /** host[:port]: the name by which links are shown that it carries. */
  readonly name: string
  /** `wss://host[:port]/[path][#pin]` */
  readonly address: string
  /** By a flag of `broker serve`. */
  readonly isFlagged: boolean
  /** That flag. Absent: none, or the broker is of an earlier build. */
  readonly flag?: RelayFlag
  /** By an operator. Absent: by the flag alone. */
  readonly addedAtMs?: number
  /** Why members do not get it: another one has its name, or there are too many. Absent: they get it. */
  readonly notStated?: string
  /** Others with the same key (pin): other names of the same relay, or relays that share a key. Absent: none. */
  readonly sameKeyAs?: readonly string[]
}

export type RelayFlag = '--relay' | '--relay-here'

export interface RelayAdded extends StatedRelay {
  /** False if it was added before. */
  readonly changed: boolean
}

export interface RelayRemoved {
  readonly name: string
  /** False if no operator has added it. */
  readonly changed: boolean
  /** A flag of the broker states it too, so members keep it. */
  readonly stays: boolean
  /** That flag. Absent: none, or the broker is of an earlier build. */
  readonly flag?: RelayFlag
}

// The topology.

export interface TopologyFacts {
  readonly topology: Topology
  /** Counts the changes. */
  readonly number: number
  readonly setAtMs?: number
  /** The object in the broker's cluster that sets it, such as "Topology default". Commands do not, meanwhile. */
  readonly object?: string
  /** Replicas of the broker that do not keep to it: their hosts, or their ids. */
  readonly ignoredBy?: readonly string[]
}

export interface PlanTopology {
  readonly topology: unknown
  readonly linksOnly?: boolean | undefined
}

export interface SetTopology {
  /** The broker checks it. */
  readonly topology: unknown
  /** `basedOn` of the plan that the operator saw. The broker refuses it if the topology was changed since. */
  readonly basedOn?: number | undefined
}

/** `changed`: false if it was the same before. */
export interface TopologySet {
  readonly changed: boolean
  readonly number: number
}

export interface PlannedLink {
  /** Sorted. */
  readonly clusters: readonly [string, string]
  /** `transit`: it goes through relays of hubs alone then. `direct`: it does no longer. */
  readonly change: 'lost' | 'gained' | 'transit' | 'direct'
}

export interface PlannedService {
  readonly exporter: string
  readonly namespace: string
  readonly name: string
  /** Members that import it now, by their reports, and cannot any more. The first 20. */
  readonly loses: readonly string[]
  readonly losesCount: number
  /** Members that may import it then. The first 20. */
  readonly gains: readonly string[]
  readonly gainsCount: number
}

export interface TopologyPlan {
  /** The number of the topology that counts now. */
  readonly basedOn: number
  readonly mode: { readonly before: Topology['mode']; readonly after: Topology['mode'] }
  readonly members: number
  /** Counts of pairs of members. */
  readonly links: { readonly after: number; readonly lost: number; readonly gained: number }
  /** The first 1,000, those that are lost first. */
  readonly changes: readonly PlannedLink[]
  /** The first 1,000, those that lose most first. */
  readonly services: readonly PlannedService[]
  readonly servicesChanged: number
  /** Members that link with no other then. The first 1,000. */
  readonly alone: readonly string[]
  /** Ids that the topology names and no member has. They count as soon as such a cluster joins. */
  readonly unknown: readonly string[]
  /** Absent: from a broker of an earlier release, or no link goes through hubs. */
  readonly transit?: TransitPlan
}

export interface TransitPlan {
  /**
   * Pairs of members whose link goes through relays of hubs alone, and pairs whose link is interrupted because none of
   * its relays stays, or because it begins or ceases to go through relays.
   */
  readonly links: number
  readonly moved: number
  /** Members among the hubs of which no gateway offers to relay. */
  readonly withoutRelay: readonly string[]
  /** Pairs of which no hub is a member that links with both. The first 1,000. */
  readonly unreachable: readonly (readonly [string, string])[]
  readonly unreachableCount: number
  /** Hubs whose relays have too little room. The first 20. Absent: from a broker of an earlier release. */
  readonly crowded?: readonly CrowdedRelays[]
}

/** Links are those between gateways: each gateway of one member has one with each of the other. */
export interface CrowdedRelays {
  readonly via: readonly string[]
  readonly links: number
  /** Links that come up for certain. */
  readonly room: number
  /** The member with the most of these links. */
  readonly member: string
  readonly linksOfMember: number
  readonly roomOfMember: number
}

// What members publish.

export interface PublishedGateway {
  readonly cluster: string
  readonly node: string
  readonly lane: number
  /** `address:port` where other gateways may reach it, best first. Empty: it calls the others. */
  readonly addresses: readonly string[]
}

export interface PublishedService {
  readonly namespace: string
  readonly name: string
  /** As the first of its exporters states it. */
  readonly type: ServiceImportType
  /** Clusterset IPs. Empty for a headless service. */
  readonly ips: readonly string[]
  /** The first 20. */
  readonly exporters: readonly string[]
  readonly exportersCount: number
  /** Those of `exporters` where an operator drains the service. */
  readonly drainedAt: readonly string[]
  /** Members that import it, by their reports, from one of the first 20 exporters. The first 20. */
  readonly importers: readonly string[]
  readonly importersCount: number
}

export interface Published {
  /** By cluster, node and lane, the first 1,000. */
  readonly gateways: readonly PublishedGateway[]
  readonly gatewaysCount: number
  /** By namespace and name, the first 2,000. */
  readonly services: readonly PublishedService[]
  readonly servicesCount: number
}

// Joins and ranges that wait for approval.

export interface WaitingSummary extends Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'labels' | 'version'> {
  readonly id: string
  /** `ranges`: a member states ranges that differ from the accepted ones. */
  readonly what: 'join' | 'ranges'
  /** `accepted`, `refused`: the cluster has not asked since the answer. */
  readonly state: 'waiting' | 'accepted' | 'refused'
  /** Of the key. For `ranges`, of the ranges themselves. */
  readonly fingerprint: string
  /** Id of the token that the cluster showed. Empty for `ranges`. */
  readonly token: string
  /** Source address of the last request, as the broker saw it. Empty for `ranges`. */
  readonly address: string
  readonly sinceMs: number
  /** Updated once a minute. */
  readonly lastAskedMs: number
  /** Absent if it does not end. */
  readonly untilMs?: number
  /** Ranges that its machines require outside the lanes. */
  readonly neededCIDRs: readonly string[]
  /** Members that get global addresses by this join, as of its first request. */
  readonly renumbers: readonly string[]
  /** Whether a member has this id now, which the join would replace. */
  readonly isMember: boolean
}

export interface AnswerInit {
  /** As the operator typed it. */
  readonly cluster: string
  /** Fingerprint of the key or the ranges, as `SHA256:…`. Absent if only one waits under this id. */
  readonly fingerprint?: string | undefined
}

/** `repeated`: the same answer had been given before, and nothing was changed. */
export interface Answer {
  readonly id: string
  readonly fingerprint: string
  readonly token: string
  readonly repeated: boolean
}

// The certificate authority.

export interface AuthorityFacts {
  /** SHA-256 of its certificate, hex. */
  readonly fingerprint: string
  readonly notBefore: string
  readonly notAfter: string
  /** It signs certificates of members and the broker's own certificate now. */
  readonly signs: boolean
}

export interface AuthorityStatus {
  /** `steady`: there is one authority. */
  readonly phase: 'steady' | 'announced' | 'switched' | 'withdrawn'
  readonly since: string
  readonly current: AuthorityFacts
  readonly next?: AuthorityFacts
  /** What delays the next step, whether an operator or the broker takes it. */
  readonly waitsFor: {
    readonly members: readonly { readonly id: string; readonly why: string }[]
    /** Ids of tokens that name only the old authority. */
    readonly tokens: readonly string[]
  }
  readonly members: readonly {
    readonly id: string
    readonly knowsNext: boolean
    readonly uses: 'current' | 'next' | 'both' | 'other'
    /** Whether it learns of another authority at once. Members of earlier releases learn it at their next renewal. */
    readonly follows: boolean
    readonly certificateEnds: string
  }[]
  readonly removed: readonly { readonly fingerprint: string; readonly at: string; readonly by: 'finish' | 'abort' }[]
}

export interface RotateInit {
  /**
   * Certificate file of an authority whose key the broker has from elsewhere. If absent, a new authority is created.
   */
  readonly certificate?: string | undefined
  /** Makes an announced authority sign and serve at once. */
  readonly force: boolean
}

/** `repeated`: the step was done before, and nothing was changed. */
export type AuthorityStep = AuthorityStatus & { readonly repeated: boolean }

// The clustersets of the broker.

export interface CreateClustersetInit {
  readonly name: string
  /** If absent, the range that it had before applies, or else that of the broker's own clusterset. */
  readonly globalRange?: string | undefined
  readonly clustersetIpRange?: string | undefined
}

export interface ClustersetSummary {
  readonly name: string
  /**
   * `own`: the broker's own. `new`: no broker has opened it yet. `removed`: it is not served, but its store is kept.
   */
  readonly state: 'own' | 'listed' | 'new' | 'removed'
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** Absent if its store cannot be read here, or does not exist. */
  readonly members?: number
  readonly createdAtMs?: number
}

export interface CreatedClusterset extends ClustersetSummary {
  /** It had been created before, and nothing was changed. */
  readonly repeated: boolean
  /** A broker has opened the clusterset, so that tokens can be created. */
  readonly opened: boolean
}

// The status of the broker with its replicas and its store.

/**
 * `down`: no cluster can join, and changes do not reach other members. `degraded`: one more failure makes it `down`.
 */
export type Health = 'healthy' | 'degraded' | 'down'

export interface StatusProblem {
  readonly health: Health
  readonly text: string
}

export interface ReplicaFacts {
  readonly id: string
  /** Name of the host or the pod. Absent for replicas of earlier releases. */
  readonly host?: string
  readonly version?: string
  /** It is of an earlier release: it sends its members records of all others, whatever the topology is. */
  readonly lacksTopology?: true
  /** Members that have a stream open there. Undefined if unknown. */
  readonly members?: number
}

export interface StoreMemberFacts {
  readonly endpoint: string
  /** Why it cannot be queried. */
  readonly why?: string
  readonly version?: string
  readonly bytes?: number
  readonly hasLeader?: boolean
  /** Alarms of this etcd member, such as NOSPACE. */
  readonly alarms?: readonly string[]
}

export interface LogFacts {
  readonly clusterset: string
  readonly epoch: string
  readonly revision: number
  readonly records: number
  readonly members: readonly { readonly id: string; readonly state: 'in contact' | 'silent' }[]
  readonly waiting: number
  /** Absent: all members link. */
  readonly topology?: Topology['mode']
  readonly authority: {
    readonly phase: string
    /** When the authority ends, in RFC 3339 format. Absent if the store has no row of it, as before the first start. */
    readonly until?: string
    /** Number of members and tokens that the next step waits for. */
    readonly waitsFor: number
  }
}

export interface BrokerFacts {
  readonly kind: 'sqlite' | 'etcd'
  /** The database file, or the URL of etcd. */
  readonly where: string
  /** The log, or why the store cannot be read. */
  readonly log: LogFacts | { readonly why: string }
  /** Absent if it is not known which replicas run. */
  readonly replicas?: readonly ReplicaFacts[] | undefined
  /** Members of etcd. */
  readonly storeMembers: readonly StoreMemberFacts[]
}

export interface BrokerStatus extends BrokerFacts {
  readonly health: Health
  readonly problems: readonly StatusProblem[]
}

const WORST: readonly Health[] = ['down', 'degraded', 'healthy']

/** Takes the problems of a broker. Gives `healthy` if there are none. */
export function worstOf(problems: readonly StatusProblem[]): Health {
  return WORST.find((health) => problems.some((one) => one.health === health)) ?? 'healthy'
}

// Checks, backups and restores of the state.

export interface Finding {
  readonly reason: ReasonCode
  /** Scope and key of the row, or the file. */
  readonly subject: string
  /** For people: the value found and the value expected. Never a secret. */
  readonly text: string
}

export interface Verified {
  readonly clusterset?: string | undefined
  readonly epoch: string
  readonly revision: number
  readonly rows: number
  /** Connected or not. Members that left or were evicted do not count. */
  readonly members: number
  readonly records: number
  readonly findings: readonly Finding[]
  /** Number of all findings, including those that `findings` has no room for. */
  readonly found: number
}

/** The size of one part of a backup. */
export const BACKUP_PART = 128 << 10

/** A warning is about a command that has succeeded otherwise. */
export type BackupPart = { readonly bytes: Uint8Array } | { readonly warning: string }

export interface StagedRestore {
  readonly warnings: readonly string[]
}
