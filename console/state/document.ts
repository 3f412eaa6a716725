/** The document that the console serves: what the page shows, section by section. Every text in it is printable. */

/** All sections, in the order of the page. `times` has no place on it: it says from when the others are. */
export const SECTIONS = [
  'about',
  'times',
  'problems',
  'clusters',
  'gateways',
  'links',
  'services',
  'refusals',
  'calls',
  'flows',
  'denied',
  'events',
] as const
export type SectionName = (typeof SECTIONS)[number]

/** A row on a page about several clusters. */
export interface OfContext {
  /** The kubeconfig context whose cluster says it. Absent: the page is about one. */
  readonly context?: string
}

/** The rows of one section. */
export interface Section<T> {
  /** The command that shows the same. */
  readonly command: string
  /** The same of further contexts, on a page about several; further commands, at a broker. */
  readonly commands?: readonly string[]
  readonly rows: readonly T[]
  /** The number of rows that are left out, because a section has a limit. */
  readonly more: number
  /** What is not shown, and why. */
  readonly note?: string
  /**
   * Why the rows could not be renewed at the time of the facts, and when they were read (RFC 3339). Without a time they
   * never were read whole: the rows are what was read.
   */
  readonly stale?: { readonly at?: string; readonly why: string }
}

export interface ConsoleState {
  readonly format: 1
  readonly about: About
  readonly times: Times
  readonly problems: Section<ProblemRow>
  readonly clusters: Section<ClusterCard>
  readonly gateways: Section<GatewayRow>
  readonly links: Section<LinkRow>
  readonly services: Section<ServiceRow>
  /** Samples that were refused, by rule. */
  readonly refusals: Section<RefusalRow>
  /** Calls to each service. */
  readonly calls: Section<CallsRow>
  /** Samples of calls, the latest first. */
  readonly flows: Section<FlowSample>
  readonly denied: Section<DeniedRow>
  /** What has changed since the console started, the latest first. */
  readonly events: Section<EventRow>
}

export interface About {
  readonly target: string
  /** Absent before the cluster has joined. */
  readonly cluster?: string
  readonly clusterset?: string
  readonly health: 'healthy' | 'degraded' | 'down'
  /** False if the facts are those of a file. */
  readonly live: boolean
  readonly command: string
  readonly counts: {
    readonly problems: number
    readonly clustersReached: number
    readonly clusters: number
    readonly linksUp: number
    readonly links: number
    readonly services: number
  }
  /** Clusters that the topology does not link with this one. Absent: none. */
  readonly notLinked?: { readonly reason: string; readonly clusters: readonly string[]; readonly more: number }
  /** Set on a page about a broker: what counts for all members. */
  readonly broker?: AboutBroker
  /** Set while the facts cannot be renewed: since when (RFC 3339), and why. */
  readonly failing?: { readonly since: string; readonly why: string }
  /** On a page about several contexts: each of them, in the order of the command. */
  readonly contexts?: readonly ContextRow[]
}

export interface AboutBroker {
  /** For services without a policy. */
  readonly accessDefault: 'allow' | 'deny'
  /** Which members link: its mode, and how often it was changed. */
  readonly topology: string
  readonly topologyChanges: number
  /** The numbers of drained members, and of joins and ranges that wait for approval. */
  readonly drained: number
  readonly waiting: number
  /** They show these. */
  readonly commands: readonly string[]
}

/** One of several contexts. What it said last stays while it cannot be reached. */
export interface ContextRow {
  readonly context: string
  readonly cluster?: string
  /** Absent: it has not answered yet. */
  readonly health?: About['health']
  readonly problems?: number
  /** When its facts were taken, RFC 3339. */
  readonly facts?: string
  readonly command: string
  readonly failing?: About['failing']
}

/** RFC 3339 times of the facts. Absent: these were not read. */
export interface Times {
  readonly facts: string
  readonly shares?: string
  readonly flows?: string
  readonly denied?: string
}

export interface ProblemRow extends OfContext {
  readonly severity: 'down' | 'degraded' | 'notice'
  readonly reason: string
  readonly subject: string
  readonly seen: string
  readonly source: string
  readonly since?: string
  readonly mend: string
  /** What follows from it: `LinkDown ×3 (gw0 lane 0 to paris lane 0, …)`. */
  readonly consequences: readonly string[]
  /** Commands that mend it or look closer. */
  readonly commands: readonly string[]
}

export interface ClusterCard extends OfContext {
  readonly cluster: string
  /** `here`: the cluster whose facts these are. `in contact`, `silent`: with the broker, on a page about one. */
  readonly state: 'here' | 'reached' | 'cut off' | 'unknown' | 'in contact' | 'silent'
  /** Since when it is connected, or is not. */
  readonly since?: string
  readonly contact: 'heard' | 'silent' | 'unknown'
  /** By its ClusterProperties. */
  readonly region?: string
  readonly linksUp: number
  readonly links: number
  readonly rttMs?: number
  readonly loss?: number
  readonly mtu?: number
  /** Of all links to it. */
  readonly traffic?: Traffic
  /** At a broker, as the member reports them. Absent: it has not reported. */
  readonly versions?: readonly string[]
  readonly exports?: { readonly count: number; readonly failed: number }
  /** When the broker heard it last, RFC 3339. */
  readonly lastSeen?: string
  readonly drained?: true
  readonly podCIDRs: readonly string[]
  readonly globalCIDRs: readonly string[]
  /** `region=eu`. */
  readonly labels: readonly string[]
}

/** Bytes a second through links, from the counters of two reports of the gateways. */
export interface Traffic {
  readonly receivedPerSecond: number
  readonly sentPerSecond: number
}

export interface GatewayRow extends OfContext {
  /** At a broker: whose it is. */
  readonly cluster?: string
  readonly node: string
  /** `published`: a broker knows it, and no state of it. */
  readonly state: 'reporting' | 'silent' | 'starting' | 'published'
  /** At a broker: where other gateways may reach it. */
  readonly addresses?: readonly string[]
  readonly since?: string
  readonly lane?: number
  readonly version?: string
  readonly linksUp: number
  readonly links: number
}

export interface LinkRow extends OfContext {
  readonly node: string
  readonly lane: number
  readonly cluster: string
  readonly remoteLane: number
  readonly state: 'up' | 'connecting' | 'down'
  /** When this console saw the state change. Absent: it has not changed since this console started. */
  readonly since?: string
  /** What makes the link, such as `kernel` for WireGuard in the kernel. */
  readonly cable?: string
  readonly way?: 'direct' | 'NAT' | 'relay'
  /** The cluster whose gateway relays it. */
  readonly relay?: string
  readonly address?: string
  readonly rttMs?: number
  readonly loss?: number
  readonly mtu?: number
  /** Absent until the gateway has reported twice. */
  readonly traffic?: Traffic
  readonly message: string
}

export interface ServiceRow extends OfContext {
  readonly namespace: string
  readonly name: string
  /**
   * `own`: this cluster exports it and does not import it. At a broker `exported`, or `silent` if no exporter that it
   * lists is in contact.
   */
  readonly state: 'usable' | 'without backends' | 'cut off' | 'unknown' | 'own' | 'exported' | 'silent'
  readonly type?: string
  readonly ips: readonly string[]
  readonly exporters: readonly string[]
  readonly moreExporters: number
  /** How the export of this cluster fares. Absent: it exports none. */
  readonly exported?: 'exported' | 'pending' | 'failed'
  /** At a broker: exporters where it is drained. */
  readonly drainedAt?: readonly string[]
  /** Members that import what this cluster exports; at a broker, by their reports. */
  readonly importers: readonly string[]
  readonly moreImporters: number
  readonly ready?: number
  readonly policy?: string
  /** Absent: none were counted. */
  readonly calls?: { readonly perSecond: number; readonly errors: number }
  readonly shares: readonly ShareCell[]
  readonly moreShares: number
}

export interface ShareCell {
  readonly cluster: string
  /** The ports that it is about, where their shares are others than those of the service. */
  readonly ports?: string
  /** In 1/10,000. */
  readonly share: number
  readonly ready: number
  readonly total: number
  readonly tier?: number
  readonly weight?: number
  readonly reason: string
  readonly message: string
}

export interface FlowSample extends OfContext {
  readonly at: string
  readonly node?: string
  readonly outcome: 'answered' | 'refused' | 'unanswered' | 'timed-out' | 'denied'
  readonly from: string
  readonly to: string
  readonly protocol: string
  readonly port?: number
  /** Until the first answer. */
  readonly ms?: number
  /** A reason code, unless it was answered. */
  readonly reason?: string
}

/** What one rule refused, of the samples. */
export interface RefusalRow extends OfContext {
  readonly outcome: 'refused' | 'denied'
  readonly reason: string
  readonly count: number
  readonly latest: string
  /** Of the latest. */
  readonly from: string
  readonly to: string
}

export interface CallsRow extends OfContext {
  readonly service: string
  readonly callsPerSecond: number
  readonly bytesPerSecond: number
  /** In the last minute. */
  readonly refused: number
  readonly unanswered: number
  readonly p50Ms?: number
  readonly p99Ms?: number
}

export interface DeniedRow extends OfContext {
  readonly at: string
  readonly node?: string
  readonly from: string
  readonly to: string
  readonly protocol: string
  readonly port?: number
  readonly reason: string
}

/** Something that this console saw change. */
export interface EventRow extends OfContext {
  /** When the facts were taken that show it first. */
  readonly at: string
  readonly kind: 'problem' | 'member' | 'gateway' | 'link' | 'import' | 'service'
  /** `begins`, `ends`, `appears`, `disappears`, `gone`, `more`, or the new state: `active`, `standby`, `up`, `down`. */
  readonly change: string
  readonly subject: string
}
