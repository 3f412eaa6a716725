/**
 * Links in doubt. While a link that is up answers no probes, what its device sends goes to the far end's next proven
 * place as well, until the far end answers again or the link has moved there. Nothing is lost in between, and what comes
 * twice is dropped by WireGuard: it has a counter in each packet. The copy for the present place leaves first
 * (plan-shared-port.ts), and WireGuard answers where the first copy came from. So a path that carries packets after all
 * keeps the link, as long as it is not the longer one.
 */
import { type AddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import type { ConnectionState } from '../../../model/model.ts'
import type { RelayPlace } from '../../world/world.ts'
import { isWebPlace } from '../web/plan-web-use.ts'

/** What a device sends to one place goes to a second one, too. */
export interface TwoWays {
  /** UDP port of the lane device. */
  readonly device: number
  readonly to: AddressPort
  readonly second: AddressPort
}

export interface SuspectLink {
  /** linkKey(). */
  readonly key: string
  /** UDP port of its lane device. */
  readonly device: number
  readonly state: ConnectionState
  /** PeerHealthView.suspected. */
  readonly isSuspect: boolean
  /** Where its packets went when that was last read. */
  readonly at: AddressPort | undefined
  /** Where probes have reached the far end without a relay: it may have moved the link there since. Absent: nowhere. */
  readonly punched?: AddressPort | undefined
  /** Where relays take packets for the far end, best first. */
  readonly places: readonly RelayPlace[]
}

/** How a doubt ended. Unsettled: its time was over. */
export const SUSPECT_ENDS = ['answered', 'moved', 'down', 'unsettled'] as const
export type SuspectEnd = (typeof SUSPECT_ENDS)[number]

/** How long packets go two ways at most: longer than a link takes to be down, and to go on by another path. */
export const SUSPECT_MS = 5000
/** The far end has to answer for so long. In this time a round reads where it called from. */
export const SUSPECT_SETTLES_MS = 1500
/** A link begins at most once in this time, so that one that is often silent does not send everything twice. */
export const SUSPECTS_APART_MS = 15_000
/** If more links are silent at one time, the fault is near this node, and another path has it, too. */
export const MOST_SUSPECTS = 32

interface Suspect {
  /** Of each place at which the link may be. */
  readonly ways: readonly TwoWays[]
  readonly at: AddressPort | undefined
  /** All times are milliseconds of the monotonic clock. */
  readonly sinceMs: number
  /** Since when the far end answers again. Undefined: it does not. */
  readonly answersSinceMs?: number | undefined
  /** Undefined: packets go two ways. */
  readonly ended?: SuspectEnd
}

export class Suspects {
  #suspects: ReadonlyMap<string, Suspect> = new Map()

  /** Takes all links that have only one place by intention. Returns how doubts have ended since the last look. */
  look(links: readonly SuspectLink[], nowMs: number): readonly SuspectEnd[] {
    const ends: SuspectEnd[] = []
    const next = new Map<string, Suspect>()
    let open = [...this.#suspects.values()].filter(({ ended }) => ended === undefined).length
    for (const link of links) {
      const before = this.#suspects.get(link.key)
      const isOpen = before !== undefined && before.ended === undefined
      const suspect = isOpen ? goneOn(link, before, nowMs) : open < MOST_SUSPECTS ? begun(link, before, nowMs) : before
      if (suspect === undefined) continue
      if (isOpen && suspect.ended !== undefined) ends.push(suspect.ended)
      if (!isOpen && suspect.ended === undefined) open += 1
      if (suspect.ended === undefined || nowMs - suspect.sinceMs < SUSPECTS_APART_MS) next.set(link.key, suspect)
    }
    this.#suspects = next
    return ends
  }

  /** Places whose packets go to a second one now. */
  get ways(): readonly TwoWays[] {
    const ways = [...this.#suspects.values()].flatMap((suspect) => (suspect.ended === undefined ? suspect.ways : []))
    // The kernel takes each place of a device once. A far end can call from the place of another one.
    return ways.filter(({ device, to }, i) => {
      return ways.findIndex((one) => one.device === device && sameAddressPort(one.to, to)) === i
    })
  }

  /** Links, by linkKey(), whose doubt began a short time ago: the far end may have moved them to the second place. */
  recent(nowMs: number): ReadonlySet<string> {
    return new Set([...this.#suspects].flatMap(([key, { sinceMs }]) => (nowMs - sinceMs < SUSPECT_MS ? [key] : [])))
  }

  /** When to look again. Infinity: no link is in doubt. */
  get dueMs(): number {
    const due = [...this.#suspects.values()].map(({ sinceMs, answersSinceMs = Infinity, ended }) => {
      return ended === undefined ? Math.min(sinceMs + SUSPECT_MS, answersSinceMs + SUSPECT_SETTLES_MS) : Infinity
    })
    return Math.min(Infinity, ...due)
  }
}

function begun(link: SuspectLink, before: Suspect | undefined, nowMs: number): Suspect | undefined {
  const isRested = before === undefined || nowMs - before.sinceMs >= SUSPECTS_APART_MS
  const ways = link.state === 'up' && link.isSuspect && isRested ? twoWays(link) : []
  return ways.length === 0 ? before : { ways, at: link.at, sinceMs: nowMs }
}

function goneOn(link: SuspectLink, before: Suspect, nowMs: number): Suspect {
  const { state, isSuspect, at } = link
  if (state !== 'up') return { ...before, ended: 'down' }
  const answersSinceMs = isSuspect ? undefined : (before.answersSinceMs ?? nowMs)
  const hasMoved = !sameAddressPort(at, before.at)
  // The place that was known may have been an old one, or the second one is silent, too.
  const ways = hasMoved && isSuspect ? twoWays(link) : before.ways
  if (ways.length === 0 || (hasMoved && !isSuspect)) return { ...before, ended: 'moved' }
  if (nowMs - (answersSinceMs ?? nowMs) >= SUSPECT_SETTLES_MS) return { ...before, ended: 'answered' }
  if (nowMs - before.sinceMs >= SUSPECT_MS) return { ...before, ended: 'unsettled' }
  return { ...before, ways, at, answersSinceMs }
}

/** Empty if no second place is known. Packets for a socket of this node (port 443) leave from another address. */
function twoWays({ device, at, punched, places }: SuspectLink): TwoWays[] {
  if (at === undefined || isWebPlace(at)) return []
  const present = punched === undefined || sameAddressPort(punched, at) ? [at] : [at, punched]
  const usable = places.filter((one) => one.at.address.family === 4 && !isWebPlace(one.at))
  return present.flatMap((to) => {
    if (to.address.family !== 4) return []
    const others = usable.filter((one) => !sameAddressPort(one.at, to))
    // What failed some time ago may be well again.
    const second = others.find(({ failed }) => failed !== true) ?? others[0]
    return second === undefined ? [] : [{ device, to, second: second.at }]
  })
}
