/** The small questions that several checks ask. */
import {
  type BackgroundCalls,
  type CallReport,
  type CallTarget,
  callInBackground,
} from '../../../test/kube/support/background-calls.ts'
import { until } from '../../until.ts'
import type { Member, World } from '../member.ts'
import { NAMESPACE, ZONE, inPod, ownService } from '../shop.ts'

const CORE_DNS = '/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns'

/** Who answered, and whose address it saw. */
export interface Page {
  readonly cluster: string
  readonly pod: string
  readonly caller: string
}

/** Pages of hosts in the order in which they were asked for; why there is none, where nobody answered in 3 s. */
export async function fetchPages(
  from: Member,
  hosts: readonly string[],
  pod: 'request' | 'db-0' = 'request',
): Promise<readonly (Page | string)[]> {
  const script = hosts.map((host) => `curl -sS -m 3 http://${host}/ 2>&1`).join('; ')
  const lines = (await inPod(from, pod, script)).split('\n')
  return hosts.map((_, i) => {
    const line = lines[i] ?? 'no answer'
    const [, cluster, name, caller] = /^(.+)\/(.+) sees (.+)$/.exec(line) ?? []
    return cluster === undefined || name === undefined || caller === undefined ? line : { cluster, pod: name, caller }
  })
}

/** The cluster that answered, or why none did. */
export function answerer(page: Page | string | undefined): string {
  return typeof page === 'object' ? page.cluster : (page ?? 'no answer')
}

export function ownHost(cluster: string): string {
  return `${ownService(cluster)}.${ZONE}`
}

/** Each of these clusters calls each of them by the name that it alone has; throws with who did not answer whom. */
export async function everybodyCallsEverybody(members: readonly Member[]): Promise<string> {
  const hosts = members.map(({ name }) => ownHost(name))
  const wrong: string[] = []
  await Promise.all(
    members.map(async (from) => {
      const pages = await fetchPages(from, hosts)
      for (const [i, { name }] of members.entries()) {
        const got = answerer(pages[i])
        if (got !== name) wrong.push(`${from.name} calls ${name}: ${got}`)
      }
    }),
  )
  if (wrong.length > 0) throw new Error(wrong.join('; '))
  return `${members.length ** 2} of ${members.length ** 2} calls`
}

/** NOERROR, NXDOMAIN, SERVFAIL …; of one CoreDNS, or of whichever the Service of cluster DNS leads to. */
export async function digStatus(from: Member, name: string, server?: string): Promise<string> {
  const at = server === undefined ? '' : `@${server} `
  const text = await inPod(from, 'request', `dig +tries=1 +time=2 ${at}A ${name}`)
  return /status: (\w+)/.exec(text)?.[1] ?? 'no answer'
}

/**
 * What every CoreDNS of a cluster says: each has a cache of its own, so one may still say for some seconds that there
 * is no such name while another knows it.
 */
async function statusOfEach(from: Member, name: string): Promise<readonly string[]> {
  const pods = await from.api.list<{ readonly status: { readonly podIP?: string } }>(CORE_DNS)
  const servers = pods.flatMap(({ status }) => status.podIP ?? [])
  return Promise.all(servers.map((server) => digStatus(from, name, server)))
}

/** One line for each record, sorted. */
export async function digShort(from: Member, type: string, name: string): Promise<readonly string[]> {
  const text = await inPod(from, 'request', `dig +short +tries=1 +time=2 ${type} ${name}`)
  return text
    .split('\n')
    .filter((line) => line !== '')
    .sort()
}

/** Waits until every CoreDNS of these clusters says so; gives the milliseconds it took. */
export function untilStatus(
  members: readonly Member[],
  name: string,
  want: string,
  deadlineMs: number,
): Promise<number> {
  return until(`${name} to be ${want}`, deadlineMs, async () => {
    const said = await Promise.all(members.map((member) => statusOfEach(member, name)))
    const all = said.every((statuses) => statuses.length > 0 && statuses.every((status) => status === want))
    return all || said.map((statuses, i) => `${members[i]?.name ?? ''}: ${statuses.join(' ')}`).join(', ')
  })
}

/** Calls from one cluster to others that go on in the background, each for that many seconds at most. */
export function keepCalling(from: Member, to: readonly Member[], seconds: number): Promise<BackgroundCalls> {
  const targets: readonly CallTarget[] = to.map(({ name }) => ({
    name,
    argv: ['curl', '-s', '-m', String(seconds), `http://${ownHost(name)}/`],
    // Somewhat more than its own limit: what it says of that is lost otherwise.
    seconds: seconds + 1,
    answer: new RegExp(`^${name}/`),
  }))
  return callInBackground(from, NAMESPACE, targets)
}

/** In words: "120 calls, none lost, longest gap 240 ms". */
export function callText(reports: Iterable<CallReport>): string {
  const all = [...reports]
  const sum = (pick: (report: CallReport) => number): number => all.reduce((total, report) => total + pick(report), 0)
  const lost = sum(({ unanswered }) => unanswered)
  const gap = Math.max(...all.map(({ longestGapMs }) => longestGapMs))
  return `${sum(({ calls }) => calls)} calls, ${lost === 0 ? 'none' : lost} lost, longest gap ${gap} ms`
}

/** Throws when a call was lost. */
export function expectNoneLost(what: string, reports: Iterable<CallReport>): string {
  const all = [...reports]
  if (all.some(({ unanswered }) => unanswered > 0)) throw new Error(`${what}: ${callText(all)}`)
  return callText(all)
}

/** What `sealane show connections` says of one lane. */
export interface Connection {
  /** The gateway's. */
  readonly node: string
  readonly cluster: string
  readonly state: string
}

export async function connectionsOf(
  { commands }: Pick<World, 'commands'>,
  cluster: string,
): Promise<readonly Connection[]> {
  const { stdout } = await commands.run(`show connections --context ${cluster} -o json`)
  return (JSON.parse(stdout) as { items: readonly Connection[] }).items
}

/** In words, a link each: "c1 up, c1 up, c2 up". */
export async function connectionText(world: Pick<World, 'commands'>, cluster: string): Promise<string> {
  return linkText((await connectionsOf(world, cluster)).map((item) => `${item.cluster} ${item.state}`))
}

/** What is said when each gateway of the cluster has a link that is up to each gateway of the others. */
export async function wantedText(member: Member, others: readonly Member[]): Promise<string> {
  const own = await gatewayCount(member)
  const counts = await Promise.all(others.map(gatewayCount))
  return linkText(others.flatMap(({ name }, i) => Array<string>(own * (counts[i] ?? 0)).fill(`${name} up`)))
}

async function gatewayCount({ api }: Member): Promise<number> {
  const selector = encodeURIComponent('sealane.io/gateway')
  return (await api.list(`/api/v1/nodes?labelSelector=${selector}`)).length
}

function linkText(links: readonly string[]): string {
  return [...links].sort().join(', ')
}

const LINES_SHOWN = 5
const LINE_LENGTH = 160

/** The first lines of a difference, each cut. */
export function shortened(lines: readonly string[]): string {
  const shown = lines.slice(0, LINES_SHOWN).map((line) => line.slice(0, LINE_LENGTH))
  return [...shown, ...(lines.length > LINES_SHOWN ? [`and ${lines.length - LINES_SHOWN} more`] : [])].join(' | ')
}
