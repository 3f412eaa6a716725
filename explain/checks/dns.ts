/** Checks whether DNS servers answer the clusterset's names where pods ask for them. Plain sites have no such DNS. */
import { CLUSTERSET_ZONE, CONDITION_CLUSTER_DNS, findCondition } from '../../model/model.ts'
import { knownReason } from '../../model/reasons/reasons.ts'
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
      reason: knownReason(found.reason) ?? 'DoesNotAnswer',
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

// The settings of a resolver (resolv.conf(5)), as they concern names of the clusterset.

/** What Kubernetes writes into each pod. Documents say what it means; a finding in every cluster would say nothing. */
const KUBERNETES_NDOTS = 5

/** What the settings of each resolver that was read mean for names of the clusterset. */
export function resolvers({ probes }: World): readonly Finding[] {
  return (probes.resolver ?? []).flatMap((one): readonly Finding[] => {
    const { place, name, text } = one.object
    const said = resolverAdvice(text, place === 'pod' ? KUBERNETES_NDOTS : undefined)
    if (said.length === 0) return []
    const subject = { kind: 'Resolver', name: place === 'pod' ? `of ${name}` : name }
    return [{ reason: 'ResolverSettings', severity: 'notice', subject, seen: said.join('; '), ...seenAt(one) }]
  })
}

/** The dots of `web.shop.svc.clusterset.local`. */
const DOTS = 4
/** A resolver ignores further ones: MAXNS of glibc and musl. */
const MAX_SERVERS = 3
/** MAXDNSRCH of glibc before 2.26. */
const MAX_SEARCH = 6
/** The value of glibc and musl if the file has none. Kubernetes writes 5. */
const DEFAULT_NDOTS = 1

/**
 * What a /etc/resolv.conf means for names below the zone: sentences, none if there is nothing to say. `usualNdots` is
 * not worth a sentence. Pure, and never throws: the text may come from a pod.
 */
export function resolverAdvice(resolvConf: string, usualNdots?: number): readonly string[] {
  const lines = resolvConf
    .slice(0, 64 * 1024)
    .split('\n')
    .map((line) =>
      line
        .replace(/[#;].*$/, '')
        .trim()
        .split(/\s+/),
    )
  const servers = lines.flatMap(([word, server]) => (word === 'nameserver' && server !== undefined ? [server] : []))
  // The last line counts.
  const search = lines.findLast(([word]) => word === 'search' || word === 'domain')?.slice(1) ?? []
  const options = lines.flatMap(([word, ...rest]) => (word === 'options' ? rest : []))
  const ndots = Number(
    options.findLast((option) => /^ndots:\d+$/.test(option))?.slice('ndots:'.length) ?? DEFAULT_NDOTS,
  )
  const said: string[] = []
  if (ndots > DOTS && ndots !== usualNdots && search.length > 0) {
    said.push(
      `ndots:${ndots}: each query for a name such as web.shop.svc.${CLUSTERSET_ZONE} first tries ${search.length} search ` +
        `domains; end the name with a dot, or set ndots to ${DOTS} or less in dnsConfig`,
    )
  }
  if (servers.length > MAX_SERVERS) said.push(`${servers.length} name servers: resolvers use the first ${MAX_SERVERS}`)
  if (servers.length > 1) {
    said.push(
      `${servers.length} name servers: musl (Alpine) asks all at once and takes the first answer, so each of them must know ${CLUSTERSET_ZONE}`,
    )
  }
  if (search.length > MAX_SEARCH) {
    said.push(`${search.length} search domains: glibc before 2.26 uses the first ${MAX_SEARCH}`)
  }
  if (search.some((name) => isClusterset(name))) {
    said.push(
      `a search domain below ${CLUSTERSET_ZONE}: a short name that this cluster lacks is looked up in all clusters, and which one answers depends on the order`,
    )
  }
  return said
}

function isClusterset(name: string): boolean {
  const zone = name.toLowerCase().replace(/\.$/, '')
  return zone === CLUSTERSET_ZONE || zone.endsWith(`.${CLUSTERSET_ZONE}`)
}
