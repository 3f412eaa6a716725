/** Kinds of NAT in memory, for stories without a kernel. */

/** RFC 4787: how a NAT maps (section 4.1) and whom it lets in (section 5). */
export interface NatKind {
  readonly maps: 'alike' | 'each'
  readonly lets: 'anyone' | 'address' | 'port'
}

export const OPEN: NatKind = { maps: 'alike', lets: 'anyone' }
export const ADDRESS: NatKind = { maps: 'alike', lets: 'address' }
export const PORT: NatKind = { maps: 'alike', lets: 'port' }
export const SYMMETRIC: NatKind = { maps: 'each', lets: 'port' }
export const MAPPING_OF = { alike: 'endpointIndependent', each: 'addressDependent' } as const

/** A NAT in memory. Places are texts such as 192.0.2.1:4500. */
export class FakeNat {
  readonly #kind: NatKind
  #address: string
  /** Mapped ports, by destination; one for all where the NAT maps alike. */
  readonly #mapped = new Map<string, number>()
  /** Destinations of packets, by mapped port. */
  readonly #sent = new Map<number, Set<string>>()
  #led: number | undefined
  #firstPort = 20_000

  constructor(kind: NatKind, address: string) {
    this.#kind = kind
    this.#address = address
  }

  /** Where a packet to this destination comes from. `inner`: the port inside, if there is more than one. */
  out(to: string, inner?: number): string {
    const from = inner === undefined ? '' : ` ${inner}`
    const name = `${this.#kind.maps === 'alike' ? '' : to}${from}`
    const port = this.#mapped.get(name) ?? this.#firstPort + this.#mapped.size
    this.#mapped.set(name, port)
    this.#sent.set(port, (this.#sent.get(port) ?? new Set()).add(to))
    return `${this.#address}:${port}`
  }

  /** It forgets all mappings, and gives other ports from now on. Another address: the node behind it has moved. */
  restart(address = this.#address): void {
    this.#address = address
    this.#firstPort += 1000
    this.#mapped.clear()
    this.#sent.clear()
    this.#led = undefined
  }

  /** A router's mapping: whoever sends to this port outside gets through, and is answered from there. */
  leads(port: number): void {
    this.#led = port
  }

  lets(from: string, to: string): boolean {
    const [address = '', port] = to.split(':')
    if (this.#led !== undefined && to === `${this.#address}:${this.#led}`) {
      this.#mapped.set(from, this.#led)
      return true
    }
    const sent = this.#sent.get(Number(port))
    if (address !== this.#address || sent === undefined) return false
    const isKnown = [...sent].some((one) => one.split(':')[0] === from.split(':')[0])
    return this.#kind.lets === 'anyone' || (this.#kind.lets === 'address' ? isKnown : sent.has(from))
  }
}
