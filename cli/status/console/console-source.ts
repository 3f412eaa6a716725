/** Where the console has its facts from: a cluster, a site, or a file. It reads what `status` and `show traffic` read. */
import type {
  Answer,
  ConsoleFacts,
  ConsoleSource,
  ContextSource,
  FlowsFacts,
  PathEnds,
  SharesFacts,
} from '../../../compose/console/console.ts'
import type { PathSide } from '../../../explain/path/path.ts'
import { ClusterApiError } from '../../../kubeapi/kubeapi.ts'
import { KIND_PLACES } from '../../../kubeapi/kube/kube.ts'
import { LABEL_SOURCE_CLUSTER } from '../../../model/model.ts'
import { type RawObject, slimObject } from '../../../model/schemas/schemas.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { type CommandContext, type KubeTarget, shellWord, targetFlags, withinTime } from '../../context/context.ts'
import type { DeniedRow } from '../access/read-denied.ts'
import { flowsOfNodes } from '../flows/flows-of-nodes.ts'
import { flowLines, topRows } from '../flows/plan-flows.ts'
import type { NodeFlows } from '../flows/read-flows.ts'
import { type OpenedMember, openMember } from '../open-member.ts'
import { gatherPath } from '../path/gather-path.ts'

/** As the console takes it. All of these explain calls. */
export type MemberSource = Omit<ConsoleSource, 'facts'> &
  Required<Pick<ConsoleSource, 'pathSide'>> & {
    readonly facts: (signal: AbortSignal, isSeen?: boolean) => Promise<ConsoleFacts>
  }

export interface FactsInit {
  readonly everyMs: number
  readonly timeoutMs: number
  readonly clock: Clock
  /** The status pages on this machine, for a site. */
  readonly pages: readonly string[]
  /** Why the calls of a cluster are not read. Absent: they are. */
  readonly noCalls?: string
}

interface Flags {
  /** Name the target in the commands that the page shows. */
  readonly flags: string
}

/** What a site reads beside its folder. */
interface SitePages {
  readonly denied: (signal: AbortSignal) => Promise<readonly DeniedRow[]>
  readonly flows: (signal: AbortSignal) => Promise<readonly NodeFlows[]>
}

/** All slices of a cluster are many: they are read less often than the rest. */
const SHARES_EVERY_MS = 30_000
/** From the end of one reading to the next. Calls take a command in a pod of each node. */
const FLOWS_EVERY_MS = 10_000
/** After the API server refused such a command. */
const REFUSED_EVERY_MS = 300_000
/** Older calls are not those of now. */
const OLD_MS = 60_000
const NO_PAGE = 'Calls are read while a page is open.'

/** The facts never change. */
export function bundleSource(facts: unknown, flags: string): MemberSource {
  const shares = { t: 'none', why: 'A file of facts has no rules of policies, and so no shares.' } as const
  const denied = { t: 'none', why: 'A file of facts has no refused packets.' } as const
  const flows = { t: 'none', why: 'A file of facts has no calls.' } as const
  const found: ConsoleFacts = { facts, flags, live: false, shares, denied, flows }
  return { facts: () => Promise.resolve(found), everyMs: undefined, pathSide: () => Promise.resolve({ facts }) }
}

/** An open site does not see later changes, so each look opens it. */
export function siteSource(
  site: string,
  { flags, denied, flows, ...init }: FactsInit & Flags & SitePages,
  context: CommandContext,
): MemberSource {
  const { pages, timeoutMs, everyMs, clock } = init
  const target = { kube: undefined, site, pages, timeoutMs, quick: true }
  const facts = (signal: AbortSignal, isSeen = false): Promise<ConsoleFacts> => {
    const refused = answerOf(() => withinTime(signal, timeoutMs, denied), clock)
    const calls = isSeen
      ? answerOf(async () => flowsFacts(await withinTime(signal, timeoutMs, flows), []), clock)
      : ({ t: 'none', why: NO_PAGE } as const)
    return openMember(target, { ...context, signal }, async (gather, opened) => {
      const [set, shares] = await Promise.all([gather(), sharesOf(opened, clock, timeoutMs, signal)])
      return { facts: set, flags, live: true, shares, denied: await refused, flows: await calls }
    })
  }
  const pathSide = (ends: PathEnds, signal: AbortSignal): Promise<PathSide> =>
    openMember(target, { ...context, signal }, (gather, opened) =>
      gatherPath(gather, opened, { ...ends, timeoutMs, signal }),
    )
  return { facts, everyMs, pathSide }
}

/** Opens the cluster once for all looks. */
export function withKubeSource(
  kube: KubeTarget,
  { flags, pages, timeoutMs, everyMs, clock, noCalls }: FactsInit & Flags,
  context: CommandContext,
  work: (source: MemberSource) => Promise<void>,
): Promise<void> {
  const target = { kube, site: '', pages, timeoutMs, quick: true }
  return openMember(target, context, (gather, opened) => {
    let kept: { readonly shares: Answer<SharesFacts>; readonly atMs: number } | undefined
    const sharesNow = async (signal: AbortSignal): Promise<Answer<SharesFacts>> => {
      const atMs = clock.monotonic()
      if (kept !== undefined && atMs - kept.atMs < SHARES_EVERY_MS) return kept.shares
      const shares = await sharesOf(opened, clock, timeoutMs, signal)
      // Without an answer the last one stays, which says its time, and the next look asks again.
      if (shares.t === 'none') return kept?.shares ?? shares
      kept = { shares, atMs }
      return shares
    }
    const flowsNow =
      noCalls === undefined
        ? flowsReader(opened, clock, context.signal)
        : (): Answer<FlowsFacts> => ({ t: 'none', why: noCalls })
    const facts = async (signal: AbortSignal, isSeen = false): Promise<ConsoleFacts> => {
      const flows = flowsNow(isSeen)
      const [set, shares] = await Promise.all([gather(), sharesNow(signal)])
      return { facts: set, flags, live: true, shares, flows, denied: deniedAmong(flows) }
    }
    // The console explains one path at a time: what was begun for one has ended before the next may begin.
    const pathSide = async (ends: PathEnds, signal: AbortSignal): Promise<PathSide> => {
      const set = gather(signal)
      try {
        return await gatherPath(() => set, opened, { ...ends, timeoutMs, signal })
      } finally {
        await set.catch(() => undefined)
      }
    }
    return work({ facts, everyMs, pathSide })
  })
}

/** One source for each context, each of which is opened on its own and opened again after it failed. */
export function contextSources(
  contexts: readonly (KubeTarget & { readonly context: string })[],
  init: FactsInit,
  context: CommandContext,
): readonly ContextSource[] {
  return contexts.map((kube) => {
    const flags = targetFlags(kube)
    return {
      ...{ context: kube.context, flags, toFlag: `--to-context ${shellWord(kube.context)}`, everyMs: init.everyMs },
      withSource: (work, signal) => withKubeSource(kube, { ...init, flags }, { ...context, signal }, work),
    }
  })
}

/**
 * Reads calls in the background, because a look does not wait for commands in pods, and only while a page is open: the
 * API server records each command. Without a newer answer the last one stays for a while, and says why it is old.
 */
export function flowsReader(
  opened: OpenedMember,
  clock: Clock,
  signal: AbortSignal,
): (isSeen: boolean) => Answer<FlowsFacts> {
  let kept: { readonly answer: Extract<Answer<FlowsFacts>, { t: 'known' }>; readonly atMs: number } | undefined
  let why: string | undefined
  let nextMs = -Infinity
  let isReading = false
  const read = async (admin: Extract<OpenedMember, { t: 'kube' }>['admin']): Promise<void> => {
    const remarks: string[] = []
    const seen = { isRefused: false }
    const found = await answerOf(async () => {
      const pages = await flowsOfNodes(admin, (line) => void remarks.push(line.trim()), signal).catch(
        (error: unknown) => {
          seen.isRefused = error instanceof ClusterApiError && error.code === 'Forbidden'
          throw error
        },
      )
      if (pages.length === 0) throw new Error(remarks[0] ?? 'no route agent runs')
      return flowsFacts(pages, remarks)
    }, clock)
    const endedMs = clock.monotonic()
    if (found.t === 'known') kept = { answer: found, atMs: endedMs }
    why = found.t === 'known' ? undefined : found.why
    nextMs = endedMs + (seen.isRefused ? REFUSED_EVERY_MS : FLOWS_EVERY_MS)
    isReading = false
  }
  return (isSeen) => {
    const now = clock.monotonic()
    if (opened.t === 'kube' && isSeen && !isReading && now >= nextMs) {
      isReading = true
      void read(opened.admin)
    }
    if (kept === undefined || now - kept.atMs > OLD_MS) return { t: 'none', why: why ?? NO_PAGE }
    return why === undefined ? kept.answer : { ...kept.answer, why }
  }
}

/** As `sealane flows` and `sealane top services` show them. */
function flowsFacts(pages: readonly NodeFlows[], remarks: readonly string[]): FlowsFacts {
  const problems = pages.flatMap(({ node, problem }) =>
    problem === undefined ? [] : [`${node === undefined ? '' : `node ${node}: `}${problem}`],
  )
  return {
    lines: flowLines(pages),
    calls: topRows(pages, 'services'),
    sampled: Math.max(0, ...pages.map(({ sampled }) => sampled)),
    // Which nodes were not asked matters more than what one of them could not count.
    problems: [...remarks, ...problems],
  }
}

/** What access rules refused is among the samples of calls. */
function deniedAmong(flows: Answer<FlowsFacts>): ConsoleFacts['denied'] {
  if (flows.t === 'none') return flows
  const denied = flows.value.lines.filter(({ outcome }) => outcome === 'denied')
  return { ...flows, value: denied.map(({ reason = '-', ...line }) => ({ ...line, reason })) }
}

async function answerOf<T>(read: () => Promise<T>, clock: Clock): Promise<Answer<T>> {
  try {
    return { t: 'known', at: new Date(clock.now()).toISOString(), value: await read() }
  } catch (error) {
    return { t: 'none', why: messageOf(error) }
  }
}

/** The objects that divide calls and that facts do not carry. */
async function sharesOf(
  opened: OpenedMember,
  clock: Clock,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Answer<SharesFacts>> {
  const at = new Date(clock.now()).toISOString()
  try {
    const value = await withinTime(signal, timeoutMs, (limited) => sharesObjects(opened, limited))
    return { t: 'known', at, value }
  } catch (error) {
    return { t: 'none', why: `No shares: ${messageOf(error)}` }
  }
}

async function sharesObjects(opened: OpenedMember, signal: AbortSignal): Promise<SharesFacts> {
  if (opened.t === 'site') {
    const { api } = opened
    const [slices, policies, clusterPolicies, accessPolicies] = [
      api.cache('EndpointSlice'),
      api.cache('TrafficPolicy'),
      api.cache('ClusterTrafficPolicy'),
      api.cache('ClusterAccessPolicy'),
    ]
    await Promise.all([slices, policies, clusterPolicies, accessPolicies].map((cache) => cache.whenSynced(signal)))
    return {
      slices: slices.list(),
      policies: policies.list(),
      clusterPolicies: clusterPolicies.list(),
      accessPolicies: accessPolicies.list(),
    }
  }
  const list = (kind: keyof typeof KIND_PLACES, labelSelector?: string): Promise<readonly object[]> => {
    const { apiVersion } = KIND_PLACES[kind]
    const pick = (raw: object): object => slimObject(kind, apiVersion, raw as RawObject)
    const scope = labelSelector === undefined ? {} : { labelSelector }
    return opened.dynamic.listPicked({ apiVersion, kind, ...scope }, pick, signal)
  }
  const [slices, policies, clusterPolicies, accessPolicies] = await Promise.all([
    list('EndpointSlice', LABEL_SOURCE_CLUSTER),
    list('TrafficPolicy'),
    list('ClusterTrafficPolicy'),
    list('ClusterAccessPolicy'),
  ])
  // Each is checked where it is used.
  return { slices, policies, clusterPolicies, accessPolicies } as SharesFacts
}
