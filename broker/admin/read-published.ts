/**
 * What members publish, for operators: the gateways, and the services with who exports and imports each. Reads only. The
 * event loop gets a turn after each member and each service.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Clock } from '../../reconcile/reconcile.ts'
import { formatHostPort } from '../../runtime/runtime.ts'
import { type Topology, recordKeyText } from '../../model/model.ts'
import { type LinkEnd, links } from '../../model/lanes/lanes.ts'
import type { Published, PublishedGateway, PublishedService } from '../../protocol/admin/admin.ts'
import { topologyInForce } from '../records/records.ts'
import { type LogView, type RecordLog, parseRecordKey } from '../store/store.ts'
import { type Export, type Reporters, exportsBy, importersOf, linkEnds, readReporters } from './importers.ts'

/** Gateways and services that an answer lists. The counts cover all. */
export const MAX_GATEWAYS = 1000
export const MAX_SERVICES = 2000
/** Ids that it lists of the exporters and of the importers of one service. */
const MAX_IDS = 20

type ExportOf = Export & { readonly exporter: LinkEnd }

/** An answer is kept for this many times as long as it took, so that questions take no more than a tenth of the time. */
const KEPT_TIMES = 10
const MOST_KEPT_MS = 60_000

interface Kept {
  readonly answer: Promise<Published>
  /** Infinity while it is being read. */
  untilMs: number
}

const KEPT = new WeakMap<RecordLog, Kept>()

/**
 * As readPublished(), once for all who ask at about the same time: every open console asks again and again. The signal
 * is that of the broker. Rejects with its reason, and as the log does.
 */
export function publishedNow(log: RecordLog, clock: Clock, signal: AbortSignal): Promise<Published> {
  const startedMs = clock.monotonic()
  const before = KEPT.get(log)
  if (before !== undefined && startedMs < before.untilMs) return before.answer
  const read = async (): Promise<Published> => {
    await log.refresh()
    return readPublished(log, signal)
  }
  const kept: Kept = { answer: read(), untilMs: Infinity }
  KEPT.set(log, kept)
  const onEnd = (): void => {
    const endedMs = clock.monotonic()
    kept.untilMs = endedMs + Math.min(MOST_KEPT_MS, KEPT_TIMES * (endedMs - startedMs))
  }
  kept.answer.then(onEnd, () => KEPT.delete(log))
  return kept.answer
}

/** Rejects with the signal's reason. */
export async function readPublished(view: LogView, signal: AbortSignal): Promise<Published> {
  const members = linkEnds(view)
  const gateways: PublishedGateway[] = []
  const byService = new Map<string, ExportOf[]>()
  for (const exporter of members) {
    gateways.push(...gatewaysOf(view, exporter.id))
    for (const one of exportsBy(view, exporter.id)) {
      const key = `${one.namespace}/${one.name}`
      const all = byService.get(key)
      if (all === undefined) byService.set(key, [{ ...one, exporter }])
      else all.push({ ...one, exporter })
    }
    await nextTurn(undefined, { signal })
  }
  const reporters = await readReporters(
    view,
    members.map(({ id }) => id),
    signal,
  )
  const services: PublishedService[] = []
  const shown = [...byService].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_SERVICES)
  const linked = linkedMembers(topologyInForce(view).topology, members)
  for (const [, exports] of shown) {
    services.push(serviceOf(view, exports, { members, reporters, linked }))
    await nextTurn(undefined, { signal })
  }
  return {
    ...{ gateways: gateways.slice(0, MAX_GATEWAYS), gatewaysCount: gateways.length },
    ...{ services, servicesCount: byService.size },
  }
}

function gatewaysOf(view: LogView, cluster: string): readonly PublishedGateway[] {
  if (view.recordCount(cluster, 'Endpoint') === 0) return []
  const found = view.list('record', cluster).flatMap(({ key, value }): PublishedGateway[] => {
    // The bodies of other kinds are large, and kept packed.
    if (parseRecordKey(key).kind !== 'Endpoint' || value.body.kind !== 'Endpoint') return []
    const { node, lane, candidates } = value.body.spec
    const addresses = candidates.map(({ address, port }) => formatHostPort({ host: address, port }))
    return [{ cluster, node, lane, addresses }]
  })
  return found.sort((a, b) => (a.node === b.node ? a.lane - b.lane : a.node < b.node ? -1 : 1))
}

/** Which members link with an exporter, by their place in `members`. It is worked out once for each exporter. */
function linkedMembers(topology: Topology, members: readonly LinkEnd[]): (exporter: LinkEnd) => Uint8Array {
  const known = new Map<string, Uint8Array>()
  return (exporter) => {
    const found = known.get(exporter.id)
    if (found !== undefined) return found
    const made = Uint8Array.from(members, (one) => (links(topology, exporter, one).linked ? 1 : 0))
    known.set(exporter.id, made)
    return made
  }
}

interface Clusterset {
  readonly members: readonly LinkEnd[]
  readonly reporters: Reporters
  readonly linked: (exporter: LinkEnd) => Uint8Array
}

function serviceOf(view: LogView, exports: readonly ExportOf[], clusterset: Clusterset): PublishedService {
  const { members, reporters, linked } = clusterset
  const listed = exports.slice(0, MAX_IDS)
  const bodies = listed.map(({ row: { body } }) => (body.kind === 'ServiceExport' ? body : undefined))
  const imports = new Uint8Array(members.length)
  // Most members import from the first exporter, so that few are left for the next one.
  let left = members.map((_, i) => i)
  for (const one of listed) {
    const isLinked = linked(one.exporter)
    const mayImport = importersOf(one, one.exporter.id, reporters)
    left = left.filter((i) => {
      const id = members[i]?.id ?? ''
      if (id === one.exporter.id || isLinked[i] !== 1 || !mayImport(id)) return true
      imports[i] = 1
      return false
    })
  }
  const importers = members.flatMap(({ id }, i) => (imports[i] === 1 ? [id] : []))
  const { namespace = '', name = '' } = listed[0] ?? {}
  const address = view.get('record', recordKeyText({ cluster: '', kind: 'ClusterSetIP', namespace, name }))?.body
  return {
    ...{ namespace, name, type: bodies[0]?.type ?? 'ClusterSetIP' },
    ips: address?.kind === 'ClusterSetIP' ? address.ips : [],
    ...{ exporters: listed.map(({ exporter }) => exporter.id), exportersCount: exports.length },
    drainedAt: listed.flatMap(({ exporter }, i) => (bodies[i]?.drained === true ? [exporter.id] : [])),
    ...{ importers: importers.slice(0, MAX_IDS), importersCount: importers.length },
  }
}
