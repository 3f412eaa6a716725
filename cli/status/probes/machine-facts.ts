/**
 * Reads what a pod reports about its machine or its network. The pod may run another release, so its output is
 * validated.
 */
import {
  type BrokerCall,
  type DnsAnswer,
  type Fact,
  type IdentityReport,
  PROBE_SHAPES,
  type PartReport,
  type ProbeItems,
  type ProbeKind,
  type RefusalReport,
  factShape,
} from '../../../explain/facts/facts.ts'
import { CLUSTERSET_ZONE, fitText, printable } from '../../../model/model.ts'
import { MOST_ADDRESSES } from './broker-probe.ts'
import { type AskedServer, MOST_RESOLV_CONF, type MachineFacts } from './machine-command.ts'
import { NODE_PARTS } from './node-pages.ts'

const MOST_FACTS = 100

interface Origin {
  readonly source: string
  /** An RFC 3339 time. */
  readonly at: string
}

export interface AboutMachine extends Origin {
  readonly node: string
}

export interface AboutNetwork extends Origin {
  /** Whether the pod was to connect to the broker. */
  readonly broker: boolean
  /** The servers that the pod was to query. */
  readonly servers: readonly AskedServer[]
}

/** The facts about a node, whatever name the pod uses for it. Throws Error for any other output. */
export function readMachineFacts(stdout: string, { node, ...origin }: AboutMachine): readonly Fact[] {
  return readFacts(stdout, origin, node, (said) => {
    if (said.t === 'report') return partReport(said.report, node, origin)
    const { kind, items } = said
    const hosts = kind === 'host' ? itemsOf('host', items) : undefined
    return hosts && { t: 'probe', kind: 'host', ...origin, items: hosts.map((host) => ({ ...host, node })) }
  })
}

/** The results of the requested connections and queries, and no others. Throws Error for any other output. */
export function readNetworkFacts(stdout: string, { broker, servers, ...origin }: AboutNetwork): readonly Fact[] {
  const waiting = new Map(servers.map((asked) => [asked.server, asked]))
  let calls = 0
  const facts = readFacts(stdout, origin, 'from pods', (said) => {
    if (said.t === 'report') return undefined
    const { kind, items } = said
    if (kind === 'dns-answer') {
      const answers = itemsOf(kind, items)?.map((item) => answerTo(waiting, item))
      return answers?.every((answer) => answer !== undefined) === true
        ? { t: 'probe', kind, ...origin, items: answers }
        : undefined
    }
    if (kind === 'broker-call') calls += items.length
    if (!broker || calls > MOST_ADDRESSES) return undefined
    if (kind === 'identity') {
      const identities = itemsOf(kind, items)
      return identities && { t: 'probe', kind, ...origin, items: identities.slice(0, 1).map(knownIdentity) }
    }
    const found = kind === 'broker-call' ? itemsOf(kind, items) : undefined
    return found && { t: 'probe', kind: 'broker-call', ...origin, items: found.map(knownCall) }
  })
  return [...facts, ...(servers.length === 0 ? [] : resolverFacts(stdout, origin))]
}

/** A pod of an earlier release does not report them. */
function resolverFacts(stdout: string, origin: Origin): readonly Fact[] {
  const { resolvConf } = JSON.parse(stdout) as { readonly resolvConf?: unknown }
  if (typeof resolvConf !== 'string') return []
  const item = { place: 'pod', name: origin.source, text: resolvConf.slice(0, MOST_RESOLV_CONF) } as const
  return [{ t: 'probe', kind: 'resolver', ...origin, items: [item] }]
}

/** Takes the server and the query from this command's own list. Each server counts once. */
function answerTo(
  waiting: Map<string, AskedServer>,
  { server, result, message, ms }: DnsAnswer,
): DnsAnswer | undefined {
  const asked = waiting.get(server)
  waiting.delete(server)
  return asked && { ...asked, name: CLUSTERSET_ZONE, result, ...(message === undefined ? {} : { message }), ms }
}

/** Keeps only the fields that have a meaning here. Other fields from a pod are dropped. */
function knownIdentity({ begins, ends }: IdentityReport): IdentityReport {
  return { begins, ends }
}

function knownCall({ address, stage, reason, message, ms }: BrokerCall): BrokerCall {
  return {
    ...{ address, stage, ms },
    ...(reason === undefined ? {} : { reason }),
    ...(message === undefined ? {} : { message }),
  }
}

/** The report of a part that shares the node's network, with only the fields that are used. */
function partReport(said: PartReport, node: string, origin: Origin): Fact | undefined {
  const { part, version, ready, files, refused } = said
  if (!NODE_PARTS.some((one) => one === part)) return undefined
  const known = {
    ...(files === undefined ? {} : { files: { used: files.used, limit: files.limit } }),
    ...(refused === undefined ? {} : { refused: refused.map(knownRefusal) }),
  }
  return { t: 'report', ...origin, report: { part, name: node, version, ready, ...known } }
}

const MOST_TEXT = 200

function knownRefusal({ code, what, by, places, since, last }: RefusalReport): RefusalReport {
  const short = (text: string): string => fitText(printable(text), MOST_TEXT)
  return {
    ...{ code: short(code), what: short(what), places, since: short(since), last: short(last) },
    ...(by === undefined ? {} : { by: short(by) }),
  }
}

type Said = SaidProbe | { readonly t: 'report'; readonly report: PartReport }

interface SaidProbe {
  readonly t: 'probe'
  readonly kind: ProbeKind
  readonly items: readonly unknown[]
}

/**
 * `take` returns undefined for a fact that was not requested. `about` is added to each question that the pod could not
 * answer.
 */
function readFacts(
  stdout: string,
  origin: Origin,
  about: string,
  take: (said: Said) => Fact | undefined,
): readonly Fact[] {
  // Any program may serve a status page on the machine. A report that is not one of Sealane's parts is ignored, and
  // does not make the other facts invalid.
  const reports = (said: unknown): boolean => (said as { t?: unknown } | null)?.t === 'report'
  const all = factsIn(stdout)?.filter(
    (said) => !reports(said) || factShape.safeParse({ ...(said as object), ...origin }).success,
  )
  const facts = all?.map((said): Fact | undefined => {
    const { data: fact } = factShape.safeParse({ ...(said as object), ...origin, needed: false })
    if (fact?.t === 'unanswered') return { ...fact, what: `${fact.what} (${about})` }
    return fact?.t === 'probe' || fact?.t === 'report' ? take(fact) : undefined
  })
  if (facts?.every((fact) => fact !== undefined) === true) return facts
  const said = stdout.length > 60 ? `${stdout.slice(0, 60)}…` : stdout
  throw new Error(`its output is ${JSON.stringify(said)}: expected facts as JSON`)
}

function factsIn(stdout: string): readonly unknown[] | undefined {
  try {
    const { facts } = JSON.parse(stdout) as Partial<MachineFacts>
    return Array.isArray(facts) && facts.length <= MOST_FACTS ? facts : undefined
  } catch {
    return undefined
  }
}

/** Undefined if one of the items is invalid. */
function itemsOf<K extends ProbeKind>(kind: K, items: readonly unknown[]): readonly ProbeItems[K][] | undefined {
  const read = items.map((item) => PROBE_SHAPES[kind].safeParse(item))
  return read.every(({ success }) => success) ? read.map(({ data }) => data as ProbeItems[K]) : undefined
}
