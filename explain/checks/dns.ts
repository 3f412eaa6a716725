/** Checks whether DNS servers answer the clusterset's names where pods ask for them. Plain sites have no such DNS. */
import { CONDITION_CLUSTER_DNS, findCondition } from '../../model/model.ts'
import {
  type Cause,
  type DnsAnswer,
  type Finding,
  type Seen,
  type World,
  hangingHere,
  refusalCauses,
  seenAt,
  unjoinedCauses,
} from '../facts/facts.ts'

export function clusterDns(world: World): readonly Finding[] {
  const { objects, self, selfSubject } = world
  const own = objects.Cluster?.find(({ object }) => object.spec.id === self)
  const found = findCondition(own?.object.status?.conditions, CONDITION_CLUSTER_DNS)
  if (own === undefined || found?.status !== 'False') return []
  const dns = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-dns' }
  return [
    {
      reason: 'DoesNotAnswer',
      severity: 'down',
      subject: selfSubject,
      seen: found.message,
      ...seenAt(own, found.lastTransitionTime),
      because: [
        { reason: 'PartNotReady', subject: dns },
        { reason: 'PartMissing', subject: dns },
        { reason: 'PolicyStopsPart', subject: dns },
        { reason: 'PolicyStopsPart', subject: { ...dns, kind: 'Service' } },
        ...(isUnknownThere(world) ? [] : SERVERS),
        ...unjoinedCauses(world),
        ...refusalCauses('dns'),
      ],
    },
  ]
}

/** Causes at any DNS server: one of the cluster, or the Sealane server that it forwards to. */
const SERVERS: readonly Cause[] = [{ reason: 'DnsServerSilent' }, { reason: 'DnsServerFails' }]

/**
 * Whether a DNS server of the cluster denies the zone. It then does not forward, so silent servers behind it are no
 * cause.
 */
function isUnknownThere({ probes }: World): boolean {
  const denies = new Set(['NXDOMAIN', 'REFUSED'])
  return (probes['dns-answer'] ?? []).some(({ object }) => object.role === 'cluster' && denies.has(object.result))
}

type Answer = Seen<DnsAnswer>

const SILENT = new Set(['timeout', 'unreachable'])
const OURS_SILENT: readonly Cause[] = [
  { reason: 'PartNotReady', subject: { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-dns' } },
  { reason: 'PartMissing', subject: { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-dns' } },
  { reason: 'FilesNearlyOut' },
  { reason: 'DnsLoop' },
  // On plain sites, the DNS server runs in the process whose status page does not answer.
  { reason: 'NothingRuns' },
]

/** Evaluates the answers of each DNS server. */
export function dnsServers(world: World): readonly Finding[] {
  const answers = world.probes['dns-answer'] ?? []
  const causes = [...OURS_SILENT, ...unjoinedCauses(world), ...hangingHere(world)]
  // Cluster DNS forwards to our servers, so their failures are causes of its failures.
  const failing = answers
    .filter(({ object: { role } }) => role === 'ours')
    .flatMap((answer) => answerFindings(world, answer, []))
  const handedOn = [...failing.map(({ reason, subject }) => ({ reason, subject })), ...causes]
  return [
    ...loops(world),
    ...answers.flatMap((answer) => answerFindings(world, answer, answer.object.role === 'cluster' ? handedOn : causes)),
  ]
}

function answerFindings({ selfSubject }: World, answer: Answer, causes: readonly Cause[]): readonly Finding[] {
  const { server, role, name, result, message, ms } = answer.object
  const subject = { kind: 'DnsServer', name: server }
  const said = `query to ${server} for ${name}: ${result}${message === undefined ? '' : ` (${message})`} after ${Math.round(ms)} ms`
  const at = { subject, seen: said, ...seenAt(answer) }
  if (role === 'upstream') {
    if (!SILENT.has(result)) return []
    return [{ reason: 'DnsUpstreamSilent', severity: 'degraded', ...at, because: [{ reason: 'DnsLoop' }] }]
  }
  if (SILENT.has(result)) {
    return [{ reason: 'DnsServerSilent', severity: 'down', ...at, because: causes }]
  }
  if (result === 'NOERROR') return []
  if (role === 'ours') return [{ reason: 'DnsServerFails', severity: 'down', ...at, because: causes }]
  // If no server has the zone, the finding about the cluster is the cause.
  const because = [...causes, { reason: 'DoesNotAnswer' as const, subject: selfSubject }]
  return [{ reason: 'DoesNotAnswer', severity: 'down', ...at, because }]
}

/** A server that forwards to itself cannot answer. */
function loops({ probes: { settings = [] } }: World): readonly Finding[] {
  return settings.flatMap((one): readonly Finding[] => {
    const { listen, upstreams } = one.object
    const both = upstreams.filter((server) => listen.includes(server))
    return both.map((server) => ({
      reason: 'DnsLoop',
      severity: 'down',
      subject: { kind: 'DnsServer', name: server },
      seen: `${server} is an upstream of the server that listens there: it forwards each name to itself`,
      ...seenAt(one),
    }))
  })
}
