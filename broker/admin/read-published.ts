/**
 * What members publish, for operators: the gateways, and the services with who exports and imports each. Reads only. The
 * event loop gets a turn after each member and each service.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { formatHostPort } from '../../runtime/runtime.ts'
import { recordKeyText } from '../../model/model.ts'
import { type LinkEnd, links } from '../../model/lanes/lanes.ts'
import type { Published, PublishedGateway, PublishedService } from '../../protocol/admin/admin.ts'
import { topologyInForce } from '../records/records.ts'
import { type LogView, parseRecordKey } from '../store/store.ts'
import { type Export, type Reporters, exportsBy, importersOf, linkEnds, readReporters } from './importers.ts'

/** Gateways and services that an answer lists. The counts cover all. */
export const MAX_GATEWAYS = 1000
export const MAX_SERVICES = 2000
/** Ids that it lists of the exporters and of the importers of one service. */
const MAX_IDS = 20

type ExportOf = Export & { readonly exporter: LinkEnd }

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
  for (const [, exports] of shown) {
    services.push(serviceOf(view, exports, { members, reporters }))
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

interface Clusterset {
  readonly members: readonly LinkEnd[]
  readonly reporters: Reporters
}

function serviceOf(view: LogView, exports: readonly ExportOf[], { members, reporters }: Clusterset): PublishedService {
  const { topology } = topologyInForce(view)
  const listed = exports.slice(0, MAX_IDS)
  const bodies = listed.map(({ row: { body } }) => (body.kind === 'ServiceExport' ? body : undefined))
  const importers = new Set<string>()
  for (const one of listed) {
    const { exporter } = one
    const mayImport = importersOf(one, exporter.id, reporters)
    for (const member of members) {
      if (member.id === exporter.id || importers.has(member.id) || !mayImport(member.id)) continue
      if (links(topology, exporter, member).linked) importers.add(member.id)
    }
  }
  const { namespace = '', name = '' } = listed[0] ?? {}
  const address = view.get('record', recordKeyText({ cluster: '', kind: 'ClusterSetIP', namespace, name }))?.body
  return {
    ...{ namespace, name, type: bodies[0]?.type ?? 'ClusterSetIP' },
    ips: address?.kind === 'ClusterSetIP' ? address.ips : [],
    ...{ exporters: listed.map(({ exporter }) => exporter.id), exportersCount: exports.length },
    drainedAt: listed.flatMap(({ exporter }, i) => (bodies[i]?.drained === true ? [exporter.id] : [])),
    ...{ importers: [...importers].sort().slice(0, MAX_IDS), importersCount: importers.size },
  }
}
