/**
 * What a topology would change, before it counts: the links that pairs of members lose and gain, and the services that
 * lose or gain importers by that. Reads only. A thousand members are half a million pairs, so the event loop gets a turn
 * after each member.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Topology } from '../../model/model.ts'
import { links, namedClusters } from '../../model/lanes/lanes.ts'
import type { PlannedLink, PlannedService, TopologyPlan } from '../../protocol/admin/admin.ts'
import { topologyInForce } from '../records/records.ts'
import type { LogView } from '../store/store.ts'
import { exportsBy, importersOf, linkEnds, readReporters } from './importers.ts'

/** Links, services and ids that a plan lists. The counts cover all. */
export const MAX_PLANNED = 1000
/** Ids that it lists of the importers of one service. */
const MAX_IMPORTERS = 20

/** The members with which each one would no longer link, or would then. */
type Partners = Map<string, { readonly loses: string[]; readonly gains: string[] }>

export interface PlanTopologyOptions {
  /** Leaves out the services. */
  readonly linksOnly?: boolean | undefined
  readonly signal: AbortSignal
}

/** Rejects with the signal's reason. */
export async function planTopology(
  view: LogView,
  topology: Topology,
  { linksOnly = false, signal }: PlanTopologyOptions,
): Promise<TopologyPlan> {
  const { number, topology: before } = topologyInForce(view)
  const members = linkEnds(view)
  const alone = new Set(members.map(({ id }) => id))
  const partners: Partners = new Map(members.map(({ id }) => [id, { loses: [], gains: [] }]))
  const [lost, gained]: [PlannedLink[], PlannedLink[]] = [[], []]
  const count = { after: 0, lost: 0, gained: 0 }
  for (const [i, a] of members.entries()) {
    for (let k = i + 1; k < members.length; k += 1) {
      const b = members[k]
      if (b === undefined) break
      const { linked } = links(topology, a, b)
      if (linked) {
        count.after += 1
        alone.delete(a.id)
        alone.delete(b.id)
      }
      if (links(before, a, b).linked === linked) continue
      const change = linked ? 'gained' : 'lost'
      count[change] += 1
      const list = linked ? gained : lost
      if (list.length < MAX_PLANNED) list.push({ clusters: [a.id, b.id], change })
      const side = linked ? 'gains' : 'loses'
      partners.get(a.id)?.[side].push(b.id)
      partners.get(b.id)?.[side].push(a.id)
    }
    await nextTurn(undefined, { signal })
  }
  const { services, servicesChanged } = linksOnly
    ? { services: [], servicesChanged: 0 }
    : await changedServices(view, partners, signal)
  return {
    basedOn: number,
    mode: { before: before.mode, after: topology.mode },
    members: members.length,
    links: count,
    // A link that vanishes matters more.
    changes: [...lost, ...gained].slice(0, MAX_PLANNED),
    ...{ services, servicesChanged },
    alone: [...alone].slice(0, MAX_PLANNED),
    unknown: namedClusters(topology).filter((id) => !partners.has(id)),
  }
}

/** Services whose importers change, those that lose importers first. */
async function changedServices(
  view: LogView,
  partners: Partners,
  signal: AbortSignal,
): Promise<Pick<TopologyPlan, 'services' | 'servicesChanged'>> {
  const reporters = await readReporters(view, [...partners.keys()], signal)
  let found: PlannedService[] = []
  let servicesChanged = 0
  for (const [exporter, { loses, gains }] of partners) {
    if (loses.length + gains.length === 0) continue
    for (const exported of exportsBy(view, exporter)) {
      const { namespace, name } = exported
      const mayImport = importersOf(exported, exporter, reporters)
      const [lost, gained] = [loses.filter(mayImport), gains.filter(mayImport)]
      if (lost.length + gained.length === 0) continue
      servicesChanged += 1
      found.push({
        ...{ exporter, namespace, name },
        ...{ loses: lost.slice(0, MAX_IMPORTERS), gains: gained.slice(0, MAX_IMPORTERS) },
        ...{ losesCount: lost.length, gainsCount: gained.length },
      })
    }
    if (found.length > 2 * MAX_PLANNED) found = first(found)
    await nextTurn(undefined, { signal })
  }
  return { services: first(found), servicesChanged }
}

function first(services: readonly PlannedService[]): PlannedService[] {
  const key = ({ exporter, namespace, name }: PlannedService): string => `${exporter}/${namespace}/${name}`
  const sorted = services.toSorted((a, b) => b.losesCount - a.losesCount || (key(a) < key(b) ? -1 : 1))
  return sorted.slice(0, MAX_PLANNED)
}
