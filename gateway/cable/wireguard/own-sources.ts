/**
 * From which of this node's addresses each peer is sent to. WireGuard in user space remembers that address, and when
 * the node has it no more it sends nothing until it has been unheard for 15 s. Given the peer's place anew, it forgets.
 */
import { type AddressPort, sameAddressPort } from '../../../model/addresses/address-port.ts'
import { formatAddress } from '../../../model/addresses/ip.ts'
import type { DeviceState } from '../../../kernel/wireguard/wireguard.ts'

interface Way {
  /** Where the peer is. */
  readonly to: AddressPort
  readonly from: string
}

export class OwnSources {
  /** By public key. */
  #ways: ReadonlyMap<string, Way> = new Map()
  #seen: ReadonlyMap<string, Way> = new Map()

  /**
   * Looks at the devices and at the ways of a round (GatewayWorld.pathSource). Gives the public keys of the peers that
   * are where they were, while this node's address towards them has changed since the last round that was reported().
   */
  moved(devices: Iterable<DeviceState>, pathSource: ReadonlyMap<string, string>): ReadonlySet<string> {
    const seen = new Map<string, Way>()
    const moved = new Set<string>()
    for (const { publicKey, endpoint } of [...devices].flatMap(({ peers }) => peers)) {
      if (endpoint === undefined) continue
      const before = this.#ways.get(publicKey)
      const from = pathSource.get(formatAddress(endpoint.address))
      const isThere = before !== undefined && sameAddressPort(before.to, endpoint)
      // While there is no way, the last one counts: the next one may begin at another address.
      if (from === undefined) {
        if (isThere) seen.set(publicKey, before)
        continue
      }
      if (isThere && before.from !== from) moved.add(publicKey)
      seen.set(publicKey, { to: endpoint, from })
    }
    this.#seen = seen
    return moved
  }

  /** The devices have got what moved() gave last. */
  reported(): void {
    this.#ways = this.#seen
  }
}
