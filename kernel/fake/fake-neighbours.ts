/** Neighbours and forwarding entries of the fake route table: what is there, and what the kernel refuses about them. */
import { familyOf, parseAddress, type Family } from '../../model/addresses/ip.ts'
import { KernelError } from '../errors.ts'
import { usualAddress } from '../route/address-text.ts'
import { checkMac, refuseInvalid } from '../route/check-route.ts'
import { formatForwardingEntry, formatNeighbour } from '../route/format-ip.ts'
import type { ForwardingEntry, Neighbour } from '../route/route-table.ts'
import type { FakeLinks } from './fake-links.ts'

export class FakeNeighbours {
  readonly #links: FakeLinks
  readonly #neighbours = new Map<string, Neighbour>()
  readonly #entries = new Map<string, ForwardingEntry>()

  constructor(links: FakeLinks) {
    this.#links = links
  }

  listOf(device: string, operation: string): readonly Neighbour[] {
    this.#links.need(device, operation)
    return [...this.#neighbours.values()].filter((entry) => entry.device === device)
  }

  replace(neighbour: Neighbour, operation: string): void {
    checkMac(neighbour.mac, operation)
    refuseInvalid(operation, () => parseAddress(neighbour.address))
    const { device } = neighbour
    const address = usualAddress(neighbour.address)
    this.#links.needUp(device, operation)
    if (!this.#links.carries(device, familyOf(address))) {
      throw new KernelError('EINVAL', operation, `the MTU of ${device} is too small`)
    }
    this.#neighbours.set(`${device}|${address}`, { ...neighbour, address })
  }

  delete({ device, address }: Neighbour, operation: string): void {
    refuseInvalid(operation, () => parseAddress(address))
    this.#links.need(device, operation)
    if (this.#neighbours.delete(`${device}|${usualAddress(address)}`)) return
    throw new KernelError('ENOENT', operation, 'no such neighbour')
  }

  entriesOf(device: string, operation: string): readonly ForwardingEntry[] {
    this.#links.need(device, operation)
    return [...this.#entries.values()].filter((entry) => entry.device === device)
  }

  replaceEntry(entry: ForwardingEntry, operation: string): void {
    checkMac(entry.mac, operation)
    refuseInvalid(operation, () => parseAddress(entry.destination))
    if (this.#links.need(entry.device, operation).kind !== 'vxlan') {
      throw new KernelError('EOPNOTSUPP', operation, 'not a vxlan device')
    }
    this.#entries.set(`${entry.device}|${entry.mac}`, entry)
  }

  deleteEntry({ device, mac, destination }: ForwardingEntry, operation: string): void {
    this.#links.need(device, operation)
    const present = this.#entries.get(`${device}|${mac}`)
    if (present?.destination !== destination) throw new KernelError('ENOENT', operation, 'no such entry')
    this.#entries.delete(`${device}|${mac}`)
  }

  /** The device has stopped, or carries the family no more. */
  forget(device: string, family: Family): void {
    for (const [key, entry] of this.#neighbours) {
      if (entry.device === device && familyOf(entry.address) === family) this.#neighbours.delete(key)
    }
  }

  /** The device has gone. */
  forgetEntries(device: string): void {
    for (const [key, entry] of this.#entries) if (entry.device === device) this.#entries.delete(key)
  }

  commands(): readonly string[] {
    return [
      ...[...this.#neighbours.values()].map(formatNeighbour),
      ...[...this.#entries.values()].map(formatForwardingEntry),
    ]
  }
}
