/** Where the console has its facts from: a cluster, a site, or a file. It reads what `status` and `show traffic` read. */
import type { Answer, ConsoleFacts, SharesFacts } from '../../../compose/console/console.ts'
import type { PathFrom, PathSide, PathTo } from '../../../explain/path/path.ts'
import { KIND_PLACES } from '../../../kubeapi/kube/kube.ts'
import { LABEL_SOURCE_CLUSTER } from '../../../model/model.ts'
import { type RawObject, slimObject } from '../../../model/schemas/schemas.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { type CommandContext, type KubeTarget, withinTime } from '../../context/context.ts'
import type { DeniedRow } from '../access/read-denied.ts'
import { type OpenedMember, openMember } from '../open-member.ts'
import { gatherPath } from '../path/gather-path.ts'

/** As the console takes it. */
export interface ConsoleSource {
  readonly facts: (signal: AbortSignal) => Promise<ConsoleFacts>
  readonly everyMs: number | undefined
  readonly pathSide: (ends: PathEnds, signal: AbortSignal) => Promise<PathSide>
}

interface PathEnds {
  readonly from: PathFrom
  readonly to: PathTo
}

export interface FactsInit {
  readonly everyMs: number
  readonly timeoutMs: number
  readonly clock: Clock
  /** The status pages on this machine, for a site. */
  readonly pages: readonly string[]
}

interface Flags {
  /** Name the target in the commands that the page shows. */
  readonly flags: string
}

/** All slices of a cluster are many: they are read less often than the rest. */
const SHARES_EVERY_MS = 30_000

/** The facts never change. */
export function bundleSource(facts: unknown, flags: string): ConsoleSource {
  const shares = { t: 'none', why: 'A file of facts has no rules of policies, and so no shares.' } as const
  const denied = { t: 'none', why: 'A file of facts has no refused packets.' } as const
  const found: ConsoleFacts = { facts, flags, live: false, shares, denied }
  return { facts: () => Promise.resolve(found), everyMs: undefined, pathSide: () => Promise.resolve({ facts }) }
}

/** An open site does not see later changes, so each look opens it. */
export function siteSource(
  site: string,
  { flags, denied, ...init }: FactsInit & Flags & { denied: (signal: AbortSignal) => Promise<readonly DeniedRow[]> },
  context: CommandContext,
): ConsoleSource {
  const { pages, timeoutMs, everyMs, clock } = init
  const target = { kube: undefined, site, pages, timeoutMs, quick: true }
  const facts = (signal: AbortSignal): Promise<ConsoleFacts> => {
    const refused = deniedOf(() => withinTime(signal, timeoutMs, denied), clock)
    return openMember(target, { ...context, signal }, async (gather, opened) => {
      const [set, shares] = await Promise.all([gather(), sharesOf(opened, clock, timeoutMs, signal)])
      return { facts: set, flags, live: true, shares, denied: await refused }
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
  { flags, pages, timeoutMs, everyMs, clock }: FactsInit & Flags,
  context: CommandContext,
  work: (source: ConsoleSource) => Promise<void>,
): Promise<void> {
  const denied = { t: 'none', why: DENIED_ON_NODES } as const
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
    const facts = async (signal: AbortSignal): Promise<ConsoleFacts> => {
      const [set, shares] = await Promise.all([gather(), sharesNow(signal)])
      return { facts: set, flags, live: true, shares, denied }
    }
    const pathSide = (ends: PathEnds, signal: AbortSignal): Promise<PathSide> =>
      gatherPath(gather, opened, { ...ends, timeoutMs, signal })
    return work({ facts, everyMs, pathSide })
  })
}

const DENIED_ON_NODES =
  'The console does not read refused packets of a cluster: that takes a command in the pod of each route agent.'

async function deniedOf(read: () => Promise<readonly DeniedRow[]>, clock: Clock): Promise<ConsoleFacts['denied']> {
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
    const [slices, policies, clusterPolicies] = [
      api.cache('EndpointSlice'),
      api.cache('TrafficPolicy'),
      api.cache('ClusterTrafficPolicy'),
    ]
    await Promise.all([slices, policies, clusterPolicies].map((cache) => cache.whenSynced(signal)))
    return { slices: slices.list(), policies: policies.list(), clusterPolicies: clusterPolicies.list() }
  }
  const list = (kind: keyof typeof KIND_PLACES, labelSelector?: string): Promise<readonly object[]> => {
    const { apiVersion } = KIND_PLACES[kind]
    const pick = (raw: object): object => slimObject(kind, apiVersion, raw as RawObject)
    const scope = labelSelector === undefined ? {} : { labelSelector }
    return opened.dynamic.listPicked({ apiVersion, kind, ...scope }, pick, signal)
  }
  const [slices, policies, clusterPolicies] = await Promise.all([
    list('EndpointSlice', LABEL_SOURCE_CLUSTER),
    list('TrafficPolicy'),
    list('ClusterTrafficPolicy'),
  ])
  // Each is checked where it is used.
  return { slices, policies, clusterPolicies } as SharesFacts
}
