/**
 * What a topology would change, before it counts: the links that pairs of members lose and gain, and the services that
 * lose or gain importers by that. Reads only. A thousand members are half a million pairs, so the event loop gets a turn
 * after each member.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Topology } from '../../model/model.ts'
import {
  CAPABILITY_RELAY,
  type LinkAnswer,
  type LinkEnd,
  links,
  mayRelay,
  namedClusters,
  transitClusters,
} from '../../model/lanes/lanes.ts'
import type { PlannedLink, PlannedService, TopologyPlan, TransitPlan } from '../../protocol/admin/admin.ts'
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
  const [lost, gained, moved]: [PlannedLink[], PlannedLink[], PlannedLink[]] = [[], [], []]
  const count = { after: 0, lost: 0, gained: 0 }
  const transit = new TransitCount(view, topology, members)
  for (const [i, a] of members.entries()) {
    for (let k = i + 1; k < members.length; k += 1) {
      const b = members[k]
      if (b === undefined) break
      const [was, answer] = [links(before, a, b), links(topology, a, b)]
      const { linked } = answer
      const isMoved = transit.add([a, b], was, answer)
      if (isMoved && moved.length < MAX_PLANNED) {
        moved.push({ clusters: [a.id, b.id], change: viaOf(answer) === undefined ? 'direct' : 'transit' })
      }
      if (linked) {
        count.after += 1
        alone.delete(a.id)
        alone.delete(b.id)
      }
      if (was.linked === linked) continue
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
    changes: [...lost, ...moved, ...gained].slice(0, MAX_PLANNED),
    ...{ services, servicesChanged },
    alone: [...alone].slice(0, MAX_PLANNED),
    unknown: namedClusters(topology).filter((id) => !partners.has(id)),
    ...transit.plan(),
  }
}

function viaOf(answer: LinkAnswer): readonly string[] | undefined {
  return answer.linked ? answer.via : undefined
}

/** Counts the pairs that link through hubs. */
class TransitCount {
  readonly #view: LogView
  readonly #topology: Topology
  /** The hubs that are members. */
  readonly #hubs: ReadonlyMap<string, LinkEnd>
  readonly #unreachable: [string, string][] = []
  #unreachableCount = 0
  #links = 0
  #moved = 0

  constructor(view: LogView, topology: Topology, members: readonly LinkEnd[]) {
    this.#view = view
    this.#topology = topology
    const hubs = new Set(transitClusters(topology))
    this.#hubs = new Map(members.flatMap((member) => (hubs.has(member.id) ? [[member.id, member] as const] : [])))
  }

  /** Returns whether a link that stays goes through other hubs then, or through hubs at all. */
  add([a, b]: readonly [LinkEnd, LinkEnd], was: LinkAnswer, answer: LinkAnswer): boolean {
    const via = viaOf(answer)
    if (via !== undefined) {
      this.#links += 1
      const isReached = via.some((id) => {
        const hub = this.#hubs.get(id)
        return hub !== undefined && mayRelay(this.#topology, hub, [a, b])
      })
      if (!isReached) this.#unreachableCount += 1
      if (!isReached && this.#unreachable.length < MAX_PLANNED) this.#unreachable.push([a.id, b.id])
    }
    const isMoved = was.linked && answer.linked && was.via?.join() !== via?.join()
    if (isMoved) this.#moved += 1
    return isMoved
  }

  plan(): { readonly transit?: TransitPlan } {
    if (this.#links + this.#moved + transitClusters(this.#topology).length === 0) return {}
    return {
      transit: {
        ...{ links: this.#links, moved: this.#moved },
        withoutRelay: [...this.#hubs.keys()].filter((id) => !this.#relays(id)),
        ...{ unreachable: this.#unreachable, unreachableCount: this.#unreachableCount },
      },
    }
  }

  #relays(id: string): boolean {
    return this.#view.list('record', id).some(({ value: { body } }) => {
      return body.kind === 'Endpoint' && body.spec.capabilities.includes(CAPABILITY_RELAY)
    })
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
