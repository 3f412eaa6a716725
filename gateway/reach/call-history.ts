/**
 * What this process remembers of calls: the last call to each far end, and the addresses from which far ends called. A
 * cable follows a far end to the address from which it calls, before anything else is known of that address. Behind NAT
 * it is the only path to the far end, and the next round must not replace it by a candidate.
 */
import { type AddressPort, sameAddressPort } from '../../model/addresses/addresses.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type CallChoice, type FarEnd, type LaneState, linkKey } from '../cable/cable.ts'
import type { GatewayWorld, RoamedLink } from '../world/world.ts'
import type { EndpointChoice } from './choose-endpoint.ts'

interface Trace {
  /** The address that the device was given last. Undefined if it was given none yet. */
  readonly reported: AddressPort | undefined
  readonly roamed: RoamedLink | undefined
  /** The device has the address of `roamed` now. */
  readonly isThere: boolean
}

/** All that a gateway remembers of calls from round to round. */
export class CallHistory {
  readonly #roamed = new RoamedPeers()
  readonly #retries = new HandshakeRetries()
  readonly #jitter: number
  /** When each far end that is to take over a lane was first called, by linkKey(). Monotonic milliseconds. */
  #successorsSince: ReadonlyMap<string, number> = new Map()

  constructor(clock: Pick<Clock, 'random'>) {
    this.#jitter = clock.random()
  }

  get known(): Required<Pick<GatewayWorld, 'callJitter' | 'successorsSince'>> {
    return { callJitter: this.#jitter, successorsSince: this.#successorsSince }
  }

  /** Takes the lanes before a round plans. Returns, by linkKey(), where far ends called from last. */
  roamed(lanes: Iterable<LaneState>, monotonicMs: number): ReadonlyMap<string, RoamedLink> {
    return this.#roamed.seen(lanes, monotonicMs)
  }

  /** Takes the calls that a round plans, from a world of that time. */
  planned(lanes: readonly CallingLane[], monotonicMs: number): void {
    this.#roamed.reported(lanes.flatMap(({ links, successors }) => [...links, ...successors]))
    const keys = lanes.flatMap(({ successors }) => successors.map(linkKey))
    this.#successorsSince = new Map(keys.map((key) => [key, this.#successorsSince.get(key) ?? monotonicMs]))
  }

  /** Returns linkKey() of the planned links whose next call is due. Call it once in a round. */
  due(lanes: readonly CallingLane[]): Set<string> {
    return this.#retries.due(lanes.flatMap(({ links, successors }) => [...links, ...successors]))
  }
}

interface CallingLane {
  readonly links: readonly CalledLink[]
  /** Far ends that are to take over the lane of another one. */
  readonly successors: readonly CalledLink[]
}

type CalledLink = FarEnd & { readonly choice: EndpointChoice }

export class RoamedPeers {
  readonly #traces = new Map<string, Trace>()

  /** Takes the lanes before a round plans. Returns, by linkKey(), where far ends called from last. */
  seen(lanes: Iterable<LaneState>, monotonicMs: number): ReadonlyMap<string, RoamedLink> {
    const roamed = new Map<string, RoamedLink>()
    for (const { links } of lanes) {
      for (const [key, { at }] of links) {
        const trace = traceOf(this.#traces.get(key), at, monotonicMs)
        this.#traces.set(key, trace)
        if (trace.roamed !== undefined) roamed.set(key, trace.roamed)
      }
    }
    return roamed
  }

  /** Takes the addresses that a round gives to the devices. Forgets links that are no longer planned. */
  reported(links: readonly (FarEnd & { readonly choice: CallChoice })[]): void {
    const planned = new Set(links.map(linkKey))
    for (const key of this.#traces.keys()) if (!planned.has(key)) this.#traces.delete(key)
    for (const link of links) {
      const { choice } = link
      const { reported, roamed, isThere } = this.#traces.get(linkKey(link)) ?? NO_TRACE
      if (choice.how === 'try') this.#traces.set(linkKey(link), { reported: choice.at, roamed, isThere: false })
      else this.#traces.set(linkKey(link), { reported, roamed, isThere })
    }
  }
}

const NO_TRACE: Trace = { reported: undefined, roamed: undefined, isThere: false }

function traceOf(before: Trace | undefined, at: AddressPort | undefined, monotonicMs: number): Trace {
  if (before === undefined) {
    // An earlier run of the process left the address, at an unknown time.
    const roamed = at === undefined ? undefined : { at, sinceMs: -Infinity }
    return { reported: undefined, roamed, isThere: roamed !== undefined }
  }
  if (at === undefined || sameAddressPort(at, before.reported)) return { ...before, isThere: false }
  if (before.isThere && sameAddressPort(before.roamed?.at, at)) return before
  return { ...before, roamed: { at, sinceMs: monotonicMs }, isThere: true }
}

/** Remembers the last call to each far end, so that a round knows which far ends to call again. */
export class HandshakeRetries {
  /** Number of the last call, by linkKey(), only of far ends that are being called. */
  #last: ReadonlyMap<string, number> = new Map()

  /**
   * Returns linkKey() of the links whose next call is due. The first call (0) needs no action: the link is new or was
   * up.
   */
  due(links: readonly CalledLink[]): Set<string> {
    const attempts = new Map(
      links.flatMap((link) => {
        const { attempt } = link.choice
        return attempt === undefined ? [] : [[linkKey(link), attempt] as const]
      }),
    )
    const due = [...attempts].filter(([key, attempt]) => attempt > 0 && this.#last.get(key) !== attempt)
    this.#last = attempts
    return new Set(due.map(([key]) => key))
  }
}
