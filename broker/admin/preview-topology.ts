/**
 * What a topology would change, before it counts: the links that pairs of members lose and gain, and the services that
 * lose or gain importers by that. Reads only. A thousand members are half a million pairs, so the event loop gets a turn
 * after each member.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { PAIRS_OF_EARLIER_RELAY, PAIRS_OF_RELAY, PORTS_OF_RELAY, type Topology } from '../../model/model.ts'
import {
  CAPABILITY_RELAY,
  CAPABILITY_RELAY_SHARES_PORTS,
  type LinkAnswer,
  type LinkEnd,
  links,
  mayRelay,
  namedClusters,
  transitClusters,
} from '../../model/lanes/lanes.ts'
import type {
  CrowdedRelays,
  PlannedLink,
  PlannedService,
  TopologyPlan,
  TransitPlan,
} from '../../protocol/admin/admin.ts'
import { topologyInForce } from '../records/records.ts'
import type { LogView } from '../store/store.ts'
import { exportsBy, importersOf, linkEnds, readReporters } from './importers.ts'

/** Links, services and ids that a plan lists. The counts cover all. */
export const MAX_PLANNED = 1000
/** Ids that it lists of the importers of one service. */
const MAX_IMPORTERS = 20
/** Lists of hubs with too little room that it lists. */
const MAX_CROWDED = 20

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
  const transit = new TransitCount(topology, members, await readGateways(view, topology, members, signal))
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

interface GatewayCount {
  readonly gateways: number
  /** The pairs that each gateway serves that relays. */
  readonly relays: readonly number[]
}

/** The gateways that members have published. Empty if no link goes through hubs. */
async function readGateways(
  view: LogView,
  topology: Topology,
  members: readonly LinkEnd[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, GatewayCount>> {
  const counts = new Map<string, GatewayCount>()
  for (const { id } of transitClusters(topology).length === 0 ? [] : members) {
    const gateways = view
      .list('record', id)
      .flatMap(({ value: { body } }) => (body.kind === 'Endpoint' ? [body.spec.capabilities] : []))
    counts.set(id, {
      gateways: gateways.length,
      relays: gateways.filter((of) => of.includes(CAPABILITY_RELAY)).map(pairsOfRelay),
    })
    await nextTurn(undefined, { signal })
  }
  return counts
}

type MemberRoom = Pick<CrowdedRelays, 'linksOfMember' | 'roomOfMember'>

function isShorter(a: MemberRoom, b: MemberRoom): boolean {
  return a.linksOfMember * b.roomOfMember > b.linksOfMember * a.roomOfMember
}

function pairsOfRelay(capabilities: readonly string[]): number {
  return capabilities.includes(CAPABILITY_RELAY_SHARES_PORTS) ? PAIRS_OF_RELAY : PAIRS_OF_EARLIER_RELAY
}

/** The pairs whose links go through one list of hubs. Links are those between gateways. */
interface Through {
  readonly via: readonly string[]
  /** Those that are members. */
  readonly hubs: readonly LinkEnd[]
  links: number
  readonly ofMember: Map<string, number>
  /** Whether none of the hubs of a list of before that carry its links is among these. */
  readonly isOther: Map<readonly string[], boolean>
}

/** Relays at which a link is bound, so that the loss of one interrupts it for a moment only. */
const RELAYS_OF_LINK = 2

/**
 * For how many links relays have room, each of which is bound at two of them, if there are two. A link is bound once at
 * each, so of a relay no more pairs count than there are links.
 */
function roomOf(pairs: readonly number[]): number {
  const bound = Math.min(pairs.length, RELAYS_OF_LINK)
  const hasRoom = (links: number): boolean => pairs.reduce((sum, one) => sum + Math.min(one, links), 0) >= bound * links
  let [least, most] = [0, pairs.reduce((sum, one) => sum + one, 0)]
  while (least < most) {
    const links = Math.ceil((least + most) / 2)
    if (hasRoom(links)) least = links
    else most = links - 1
  }
  return least
}

/** Counts the pairs that link through hubs. */
class TransitCount {
  readonly #topology: Topology
  readonly #gateways: ReadonlyMap<string, GatewayCount>
  /** The hubs that are members. */
  readonly #hubs: ReadonlyMap<string, LinkEnd>
  /** links() gives the same list for most pairs, so what follows from it is known by the list. */
  readonly #through = new Map<readonly string[], Through>()
  readonly #unreachable: [string, string][] = []
  #unreachableCount = 0
  #links = 0
  #moved = 0

  constructor(topology: Topology, members: readonly LinkEnd[], gateways: ReadonlyMap<string, GatewayCount>) {
    this.#topology = topology
    this.#gateways = gateways
    const hubs = new Set(transitClusters(topology))
    this.#hubs = new Map(members.flatMap((member) => (hubs.has(member.id) ? [[member.id, member] as const] : [])))
  }

  /** Returns whether a link that stays is interrupted. */
  add([a, b]: readonly [LinkEnd, LinkEnd], was: LinkAnswer, answer: LinkAnswer): boolean {
    const [before, via] = [viaOf(was), viaOf(answer)]
    const through = via === undefined ? undefined : this.#throughOf(via)
    if (through !== undefined) {
      this.#links += 1
      const isReached = through.hubs.some((hub) => mayRelay(this.#topology, hub, [a, b]))
      if (!isReached) this.#unreachableCount += 1
      if (!isReached && this.#unreachable.length < MAX_PLANNED) this.#unreachable.push([a.id, b.id])
      if (isReached) this.#count(through, a.id, b.id)
    }
    const isMoved = was.linked && answer.linked && this.#isInterrupted(before, through)
    if (isMoved) this.#moved += 1
    return isMoved
  }

  plan(): { readonly transit?: TransitPlan } {
    if (this.#links + this.#moved + transitClusters(this.#topology).length === 0) return {}
    return {
      transit: {
        ...{ links: this.#links, moved: this.#moved },
        withoutRelay: [...this.#hubs.keys()].filter((id) => this.#relaysOf(id).length === 0),
        ...{ unreachable: this.#unreachable, unreachableCount: this.#unreachableCount },
        crowded: this.#crowded(),
      },
    }
  }

  #throughOf(via: readonly string[]): Through {
    const known = this.#through.get(via) ?? {
      ...{ via, links: 0, ofMember: new Map<string, number>(), isOther: new Map<readonly string[], boolean>() },
      hubs: via.flatMap((id) => this.#hubs.get(id) ?? []),
    }
    if (this.#through.size < MAX_PLANNED) this.#through.set(via, known)
    return known
  }

  /** A link that may stay at one of its relays is not. A hub that has left, or does not relay, carries none. */
  #isInterrupted(before: readonly string[] | undefined, then: Through | undefined): boolean {
    if (before === undefined || then === undefined) return (before === undefined) !== (then === undefined)
    const known = then.isOther.get(before)
    if (known !== undefined) return known
    const carriers = before.filter((id) => this.#relaysOf(id).length > 0)
    const isOther = carriers.length > 0 && !carriers.some((id) => then.via.includes(id))
    then.isOther.set(before, isOther)
    return isOther
  }

  #count(through: Through, a: string, b: string): void {
    const links = (this.#gateways.get(a)?.gateways ?? 0) * (this.#gateways.get(b)?.gateways ?? 0)
    through.links += links
    for (const id of [a, b]) through.ofMember.set(id, (through.ofMember.get(id) ?? 0) + links)
  }

  /**
   * A relay lets a member have half of the pairs that others leave, and each of its gateways one pair for each port. Of
   * the members, the one that is shortest of room is said. Hubs without a relay are said apart.
   */
  #crowded(): readonly CrowdedRelays[] {
    const rows = [...this.#through.values()].flatMap(({ via, links, ofMember }): CrowdedRelays[] => {
      const relays = via.flatMap((id) => this.#relaysOf(id))
      const members = [...ofMember].map(([member, linksOfMember]) => {
        const byPorts = (this.#gateways.get(member)?.gateways ?? 0) * PORTS_OF_RELAY
        const roomOfMember = roomOf(relays.map((pairs) => Math.min(Math.floor(pairs / 2), byPorts)))
        return { member, linksOfMember, roomOfMember }
      })
      const [first] = members
      if (relays.length === 0 || first === undefined) return []
      const shortest = members.reduce((most, one) => (isShorter(one, most) ? one : most), first)
      const room = roomOf(relays)
      if (links <= room && shortest.linksOfMember <= shortest.roomOfMember) return []
      return [{ via, links, room, ...shortest }]
    })
    return rows.slice(0, MAX_CROWDED)
  }

  #relaysOf(id: string): readonly number[] {
    return this.#gateways.get(id)?.relays ?? []
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
