/**
 * The status of a broker with its replicas and its store, as an operator sees it: the findings and their meaning. Pure.
 */

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
  /** Undefined if it is not known which replicas run. */
  readonly replicas: readonly ReplicaFacts[] | undefined
  /** Members of etcd. */
  readonly storeMembers: readonly StoreMemberFacts[]
}

export interface BrokerStatus extends BrokerFacts {
  readonly health: Health
  readonly problems: readonly StatusProblem[]
}

const DAY_MS = 86_400_000
const AUTHORITY_DAYS = 30
const WORST: readonly Health[] = ['down', 'degraded', 'healthy']

export function planStatus(facts: BrokerFacts, nowMs: number): BrokerStatus {
  const problems = [...storeProblems(facts), ...replicaProblems(facts), ...logProblems(facts, nowMs)]
  return { health: worstOf(problems), problems, ...facts }
}

export function worstOf(problems: readonly StatusProblem[]): Health {
  return WORST.find((health) => problems.some((one) => one.health === health)) ?? 'healthy'
}

function storeProblems({ kind, where, log, storeMembers }: BrokerFacts): readonly StatusProblem[] {
  const unreadable: StatusProblem[] =
    'why' in log ? [{ health: 'down', text: `the store cannot be read: ${log.why}` }] : []
  if (kind === 'sqlite') return unreadable
  const missing = missingMembers(storeMembers)
  const text = `etcd has no majority of its ${storeMembers.length} members: ${missing} more needed`
  const lost: StatusProblem[] = missing === 0 ? [] : [{ health: 'down', text }]
  // One endpoint may be an address for all members. In that case it is unknown which of them are down.
  const alone: StatusProblem[] =
    storeMembers.length > 1 ? [] : [{ health: 'healthy', text: `one endpoint of etcd is known, ${where}` }]
  return [...unreadable, ...lost, ...storeMembers.flatMap(storeMemberProblems), ...alone]
}

/** How many more members must answer and know a leader before etcd accepts a write. */
export function missingMembers(storeMembers: readonly StoreMemberFacts[]): number {
  if (storeMembers.length === 0) return 0
  const led = storeMembers.filter(({ why, hasLeader }) => why === undefined && hasLeader === true)
  return Math.max(0, Math.floor(storeMembers.length / 2) + 1 - led.length)
}

function storeMemberProblems(member: StoreMemberFacts): readonly StatusProblem[] {
  const { endpoint, why, hasLeader, alarms = [] } = member
  if (why !== undefined) return [{ health: 'degraded', text: `etcd at ${endpoint}: ${why}` }]
  return [
    ...(hasLeader === true ? [] : [{ health: 'degraded' as const, text: `etcd at ${endpoint} knows no leader` }]),
    ...alarms.map((alarm) => ({ health: 'degraded' as const, text: `etcd at ${endpoint}: ${alarm}` })),
  ]
}

function replicaProblems({ replicas, kind }: BrokerFacts): readonly StatusProblem[] {
  if (replicas === undefined) return []
  if (replicas.length === 0) return [{ health: 'down', text: 'no broker runs' }]
  if (kind === 'sqlite' || replicas.length > 1) return []
  return [{ health: 'degraded', text: 'one replica runs: with it the last one goes' }]
}

function logProblems({ log }: BrokerFacts, nowMs: number): readonly StatusProblem[] {
  if ('why' in log) return []
  const { authority, members, waiting } = log
  const { phase, until, waitsFor } = authority
  const days = until === undefined ? Infinity : Math.floor((Date.parse(until) - nowMs) / DAY_MS)
  const silent = members.filter(({ state }) => state === 'silent').map(({ id }) => id)
  return [
    ...(days >= AUTHORITY_DAYS
      ? []
      : [
          {
            health: days < 0 ? ('down' as const) : ('degraded' as const),
            text: `the certificate authority ends ${until ?? ''}`,
          },
        ]),
    ...(phase === 'steady'
      ? []
      : [
          {
            health: 'healthy' as const,
            text: `a rotation of the authority is under way (${phase}), waits for ${waitsFor}`,
          },
        ]),
    ...(silent.length === 0 ? [] : [{ health: 'healthy' as const, text: `members are silent: ${named(silent)}` }]),
    ...(waiting === 0 ? [] : [{ health: 'healthy' as const, text: `clusters wait for approval: ${waiting}` }]),
  ]
}

const MAX_NAMED = 10

function named(ids: readonly string[]): string {
  const rest = ids.length - MAX_NAMED
  return `${ids.slice(0, MAX_NAMED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}
