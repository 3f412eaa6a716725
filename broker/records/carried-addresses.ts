/** Pod CIDRs of one member that are carried, while its Publish stream lasts. */

export class CarriedAddresses {
  /** Were carried during this stream and are not now: what the member published in them is gone. */
  readonly #lost = new Set<string>()
  #carried: readonly string[]

  constructor(podCIDRs: readonly string[]) {
    this.#carried = podCIDRs
  }

  /** Takes those that are carried now. Gives those among them that were not for some time. */
  regained(now: readonly string[]): readonly string[] {
    for (const cidr of this.#carried) if (!now.includes(cidr)) this.#lost.add(cidr)
    this.#carried = now
    return now.filter((cidr) => this.#lost.has(cidr))
  }
}
