/**
 * Relays on port 443 as this gateway uses them: one connection to each relay while a link needs it, and a port on
 * loopback for each link. The datagrams of a link look like one flow from outside, and their order matters to what is
 * inside, so one connection carries all of them.
 */
import { type RelayAddress, decodeRelayNotice, readRelayAddress } from '../../../model/lanes/lanes.ts'
import type { RelayPlace } from '../../world/world.ts'
import type { OwnEnd } from '../frames/bind-frame.ts'
import type { WebLink } from './plan-web-use.ts'
import { InstanceWatch, KeysThatYield } from './relay-answers.ts'
import { WebRelay, type WebRelayDeps, type WebRelayView } from './web-relay.ts'

export interface WebWants {
  readonly links: readonly WebLink[]
  readonly own: OwnEnd | undefined
  /** The annotation of the Membership: RELAYS_ANNOTATION. */
  readonly notice: string | undefined
  /** Ports of the lane devices, by remote lane. */
  readonly ports: ReadonlyMap<number, number>
}

/** Connections through one address that leads to several processes: one to each of so many. */
const MOST_AT_ADDRESS = 3

export class WebRelays {
  readonly #deps: WebRelayDeps
  /** By address, and those at one that leads to several processes by a number too. */
  #relays: ReadonlyMap<string, WebRelay> = new Map()
  /** By address. */
  #watches: ReadonlyMap<string, InstanceWatch> = new Map()
  readonly #keys = new KeysThatYield()

  constructor(deps: WebRelayDeps) {
    this.#deps = deps
  }

  /** Takes all links that are to have a way here. */
  apply({ links, own, notice, ports }: WebWants): void {
    const { addresses, ticket } = decodeRelayNotice(notice)
    const credentials =
      own === undefined || ticket === undefined ? undefined : { own, ticket: Buffer.from(ticket, 'base64') }
    const relays = new Map<string, WebRelay>()
    const watches = new Map<string, InstanceWatch>()
    for (const text of addresses) {
      const address = readRelayAddress(text)
      if (address === undefined) continue
      const watch = this.#watches.get(text) ?? new InstanceWatch()
      watches.set(text, watch)
      const count = watch.varies(this.#deps.clock.monotonic()) ? MOST_AT_ADDRESS : 1
      for (let i = 1; i <= count; i++) {
        const key = i === 1 ? text : `${text} ${i}`
        relays.set(key, this.#relays.get(key) ?? this.#relayAt(address, watch, i === 1))
      }
    }
    this.#watches = watches
    const gone = [...this.#relays].flatMap(([text, relay]) => (relays.has(text) ? [] : [relay]))
    for (const relay of gone) relay.close()
    this.#relays = relays
    if (gone.length > 0) for (const relay of relays.values()) relay.wake()
    for (const relay of relays.values()) relay.apply(credentials, links, ports)
  }

  #relayAt(address: RelayAddress, watch: InstanceWatch, isFirst: boolean): WebRelay {
    const others = (): readonly WebRelay[] => [...this.#relays.values()].filter((one) => one !== relay)
    const earlier = (): readonly WebRelay[] => {
      const all = [...this.#relays.values()]
      return all.slice(0, Math.max(0, all.indexOf(relay)))
    }
    const relay: WebRelay = new WebRelay(this.#deps, address, {
      ...{ watch, isFirst, keys: this.#keys },
      isElsewhere: (name) => others().some((one) => one.hears(name)),
      // One at an address that leads to several processes gives way to one that does not.
      heldBy: (peer) =>
        others().find(
          (one) => one.holds(peer, address) && (peer.instance === undefined || !one.varies || relay.varies),
        ) ?? (peer.instance === undefined ? earlier().find((one) => one.mayHold(address)) : undefined),
      replacedBy: (peer) => {
        const [newest, ...more] = others()
          .filter((one) => one.mayHaveReplaced(peer))
          .toSorted((a, b) => b.claimedMs - a.claimedMs)
        // Without instances another one may have nothing to do with it.
        return peer.instance === undefined && more.length > 0 ? undefined : newest
      },
      onFree: () => {
        for (const one of others()) one.wake()
      },
      onHeard: () => {
        for (const one of others()) one.forgetFound()
      },
    })
    return relay
  }

  /**
   * Where packets get to far ends that are at the same relay, by linkKey(), in the order of the relays: those at an
   * address that leads to several processes come last.
   */
  places(): ReadonlyMap<string, readonly RelayPlace[]> {
    const places = new Map<string, RelayPlace[]>()
    const relays = [...this.#relays.values()]
    for (const relay of [...relays.filter((one) => !one.varies), ...relays.filter((one) => one.varies)])
      for (const [key, place] of relay.places()) places.set(key, [...(places.get(key) ?? []), place])
    return places
  }

  /** One for each address. */
  views(): readonly WebRelayView[] {
    const all = [...this.#relays.values()]
    return all.flatMap((relay) => {
      if (!relay.isShown) return []
      // Of an address that leads to several processes, any connection will do.
      return [(all.find((one) => one.isOpenAt(relay)) ?? relay).view()]
    })
  }

  close(): void {
    for (const relay of this.#relays.values()) relay.close()
    this.#relays = new Map()
    this.#watches = new Map()
  }
}
