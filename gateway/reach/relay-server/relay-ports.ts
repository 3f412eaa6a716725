/**
 * Which ports of a relay its ends have: an end has each port once, for one of its far ends, and ends share ports if every
 * one is in use.
 */

export interface PortRange {
  readonly first: number
  readonly last: number
}

export class RelayPorts<End extends object> {
  readonly #range: PortRange
  /** How many ends have a port. */
  readonly #sidesOfPort = new Map<number, number>()
  /** The ports that an end has, one for each of its pairs. */
  readonly #portsOfEnd = new Map<End, Set<number>>()
  #next: number

  constructor(range: PortRange) {
    this.#range = range
    this.#next = range.first
  }

  /** The ports that ends have, each once. */
  all(): readonly number[] {
    return [...this.#sidesOfPort.keys()]
  }

  /** How many ports the end has. */
  countOf(end: End): number {
    return this.#portsOfEnd.get(end)?.size ?? 0
  }

  /**
   * A port that the end does not have, and that is none of `taken`: one that no end has, or else one that the fewest
   * have. A port that was given back is the last to be used again.
   */
  free(end: End, taken: ReadonlySet<number>): number | undefined {
    const { first, last } = this.#range
    const own = this.#portsOfEnd.get(end)
    const count = last - first + 1
    let best: { readonly port: number; readonly sides: number } | undefined
    for (let i = 0; i < count && best?.sides !== 0; i++) {
      const port = first + ((this.#next - first + i) % count)
      const sides = this.#sidesOfPort.get(port) ?? 0
      if (own?.has(port) === true || taken.has(port) || sides >= (best?.sides ?? Infinity)) continue
      best = { port, sides }
    }
    if (best !== undefined) this.#next = best.port >= last ? first : best.port + 1
    return best?.port
  }

  /** The end has the port from now on. */
  hold(end: End, port: number): void {
    this.#sidesOfPort.set(port, (this.#sidesOfPort.get(port) ?? 0) + 1)
    const ports = this.#portsOfEnd.get(end) ?? new Set<number>()
    this.#portsOfEnd.set(end, ports.add(port))
  }

  /** The end gives the port back. */
  drop(end: End, port: number): void {
    const left = (this.#sidesOfPort.get(port) ?? 0) - 1
    if (left > 0) this.#sidesOfPort.set(port, left)
    else this.#sidesOfPort.delete(port)
    const ports = this.#portsOfEnd.get(end)
    ports?.delete(port)
    if (ports?.size === 0) this.#portsOfEnd.delete(end)
  }
}
