/**
 * The status of a broker with its replicas and its store, as an operator sees it: the findings and their meaning. Pure.
 */
import {
  type BrokerFacts,
  type BrokerStatus,
  type StatusProblem,
  type StoreMemberFacts,
  worstOf,
} from '../../protocol/admin/admin.ts'

const DAY_MS = 86_400_000
const AUTHORITY_DAYS = 30

export function planStatus(facts: BrokerFacts, nowMs: number): BrokerStatus {
  const problems = [...storeProblems(facts), ...replicaProblems(facts), ...logProblems(facts, nowMs)]
  return { health: worstOf(problems), problems, ...facts }
}

function storeProblems({ kind, where, log, storeMembers }: BrokerFacts): readonly StatusProblem[] {
  const unreadable: StatusProblem[] =
    'why' in log ? [{ health: 'down', text: `the store cannot be read: ${log.why}` }] : []
  if (kind === 'sqlite') return unreadable
  const missing = missingMembers(storeMembers)
  const text = `etcd has no majority of its ${storeMembers.length} members: ${missing} more must answer`
  const lost: StatusProblem[] = missing === 0 ? [] : [{ health: 'down', text }]
  // One endpoint may be an address for all members. In that case it is unknown which of them are down.
  const alone: StatusProblem[] =
    storeMembers.length > 1 ? [] : [{ health: 'healthy', text: `only one etcd endpoint is configured, ${where}` }]
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
    ...(hasLeader === true ? [] : [{ health: 'degraded' as const, text: `etcd at ${endpoint} has no leader` }]),
    ...alarms.map((alarm) => ({ health: 'degraded' as const, text: `etcd at ${endpoint}: ${alarm}` })),
  ]
}

function replicaProblems({ replicas, kind, log }: BrokerFacts): readonly StatusProblem[] {
  if (replicas === undefined) return []
  if (replicas.length === 0) return [{ health: 'down', text: 'no broker replica runs' }]
  const careless = replicas.flatMap(({ id, host, lacksTopology }) => (lacksTopology === true ? [host ?? id] : []))
  const hasTopology = !('why' in log) && log.topology !== undefined
  const text = `TopologyNotSupported: these replicas of an earlier release ignore the topology: ${named(careless)}`
  const open: StatusProblem[] = careless.length > 0 && hasTopology ? [{ health: 'degraded', text }] : []
  if (kind === 'sqlite' || replicas.length > 1) return open
  return [...open, { health: 'degraded', text: 'only one broker replica runs: if it fails, no broker is left' }]
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
            text: `the certificate authority expires at ${until ?? ''}`,
          },
        ]),
    ...(phase === 'steady'
      ? []
      : [
          {
            health: 'healthy' as const,
            text: `a rotation of the authority is in progress (${phase}); number of members and tokens that it waits for: ${waitsFor}`,
          },
        ]),
    ...(silent.length === 0
      ? []
      : [{ health: 'healthy' as const, text: `members are not in contact: ${named(silent)}` }]),
    ...(waiting === 0
      ? []
      : [{ health: 'healthy' as const, text: `number of clusters that wait for approval: ${waiting}` }]),
  ]
}

const MAX_NAMED = 10

function named(ids: readonly string[]): string {
  const rest = ids.length - MAX_NAMED
  return `${ids.slice(0, MAX_NAMED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}
