/**
 * What a topology would change, before it counts: the links that pairs of members lose and gain, and the services that
 * lose or gain importers by that. Pure.
 */
import type { Topology } from '../../model/model.ts'
import { type LinkEnd, links, namedClusters } from '../../model/lanes/lanes.ts'
import type { PlannedLink, PlannedService, TopologyPlan } from '../../protocol/admin/admin.ts'
import { statusOf, topologyInForce } from '../records/records.ts'
import { type LogView, type RecordRow, isLive, parseRecordKey } from '../store/store.ts'

/** Links, services and ids that a plan lists. The counts cover all. */
export const MAX_PLANNED = 1000

interface Change {
  readonly a: LinkEnd
  readonly b: LinkEnd
  readonly isGained: boolean
}

export function planTopology(view: LogView, topology: Topology): TopologyPlan {
  const { number, topology: before } = topologyInForce(view)
  const members = view.list('member').flatMap(({ key, value }): LinkEnd[] => {
    return isLive(value) ? [{ id: key, labels: value.facts.labels }] : []
  })
  members.sort((a, b) => (a.id < b.id ? -1 : 1))
  const alone = new Set(members.map(({ id }) => id))
  const changes: Change[] = []
  let count = 0
  members.forEach((a, i) => {
    for (let k = i + 1; k < members.length; k += 1) {
      const b = members[k]
      if (b === undefined) break
      const { linked } = links(topology, a, b)
      if (linked) {
        count += 1
        alone.delete(a.id)
        alone.delete(b.id)
      }
      if (links(before, a, b).linked !== linked) changes.push({ a, b, isGained: linked })
    }
  })
  const services = changedServices(view, changes)
  const known = new Set(members.map(({ id }) => id))
  const lost = changes.filter(({ isGained }) => !isGained)
  const gained = changes.filter(({ isGained }) => isGained)
  return {
    basedOn: number,
    mode: { before: before.mode, after: topology.mode },
    members: members.length,
    links: { after: count, lost: lost.length, gained: gained.length },
    // A link that vanishes matters more.
    changes: [...lost, ...gained].slice(0, MAX_PLANNED).map(linkOf),
    services: services.slice(0, MAX_PLANNED),
    servicesChanged: services.length,
    alone: [...alone].slice(0, MAX_PLANNED),
    unknown: namedClusters(topology).filter((id) => !known.has(id)),
  }
}

function linkOf({ a, b, isGained }: Change): PlannedLink {
  return { clusters: [a.id, b.id], change: isGained ? 'gained' : 'lost' }
}

/** Services whose importers change, those that lose importers first. */
function changedServices(view: LogView, changes: readonly Change[]): PlannedService[] {
  const found = new Map<
    string,
    { readonly service: PlannedService; readonly loses: string[]; readonly gains: string[] }
  >()
  const exportsOf = new Map<string, readonly Export[]>()
  for (const { a, b, isGained } of changes) {
    for (const [exporter, importer] of [
      [a.id, b.id],
      [b.id, a.id],
    ] as const) {
      const exported = exportsOf.get(exporter) ?? exportsBy(view, exporter)
      exportsOf.set(exporter, exported)
      for (const { namespace, name, row } of exported) {
        if (!mayImport(view, importer, { exporter, namespace, name, row })) continue
        const key = `${exporter}/${namespace}/${name}`
        const lists = found.get(key) ?? newLists({ exporter, namespace, name })
        found.set(key, lists)
        lists[isGained ? 'gains' : 'loses'].push(importer)
      }
    }
  }
  const sorted = [...found].sort(([one, { loses: x }], [other, { loses: y }]) => {
    return y.length - x.length || (one < other ? -1 : 1)
  })
  return sorted.map(([, { service }]) => service)
}

function newLists(init: Pick<PlannedService, 'exporter' | 'namespace' | 'name'>) {
  const [loses, gains]: [string[], string[]] = [[], []]
  return { service: { ...init, loses, gains }, loses, gains }
}

interface Export {
  readonly namespace: string
  readonly name: string
  readonly row: RecordRow
}

function exportsBy(view: LogView, cluster: string): readonly Export[] {
  if (view.recordCount(cluster, 'ServiceExport') === 0) return []
  return view.list('record', cluster).flatMap(({ key, value }): Export[] => {
    const { kind, namespace, name } = parseRecordKey(key)
    return kind === 'ServiceExport' ? [{ namespace, name, row: value }] : []
  })
}

interface Import extends Export {
  readonly exporter: string
}

/**
 * What a member does not report as not imported is imported, if it is offered to it. About exporters with which it does
 * not link yet a member has reported nothing: then what it may import counts.
 */
function mayImport(view: LogView, importer: string, { exporter, namespace, name, row }: Import): boolean {
  if (row.readers !== undefined && !row.readers.includes(importer)) return false
  const reported = statusOf(view, importer)?.notImported ?? []
  return !reported.some((one) => {
    const isOfExporter = one.cluster === '' || one.cluster === exporter
    const isOfService = one.namespace === '' || (one.namespace === namespace && (one.name === '' || one.name === name))
    return isOfExporter && isOfService
  })
}
