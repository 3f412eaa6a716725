/**
 * The UDP ports of links. Gateway i of one cluster and gateway j of another are joined by one link: on i it is on the
 * device towards remote lane j, on j on that towards remote lane i. Each device listens on a port of its own, which is
 * the gateway's base port plus the number of the far gateways that it is for. What a gateway states, in its
 * configuration and as candidates of its Endpoint, is the port for far gateways of its own number: what a gateway of a
 * release with one device stated. Pure.
 */

export interface LinkPortInit {
  /** The port that the gateway states. */
  readonly stated: number
  /** The lane number of the gateway that states it. */
  readonly of: number
  /** The lane number of the gateway at the other end. */
  readonly from: number
}

/**
 * Where a gateway takes packets of far gateways with the lane number `from`. It may be no port (below 1, above 65535):
 * what others state is checked after this.
 */
export function linkPort({ stated, of, from }: LinkPortInit): number {
  return stated - of + from
}
