/**
 * Computes the UDP port of a link. One link joins gateway i of one cluster and gateway j of another: on i it is on the
 * device towards remote lane j, on j on the device towards remote lane i. Each device listens on its own port, which is
 * the gateway's base port plus the number of the far gateways that it serves. The port that a gateway states in its
 * configuration and in the candidates of its Endpoint is the port for far gateways of its own number. A gateway of a
 * release with a single device states the same port. Pure.
 */

interface LinkPortInit {
  /** The port that the gateway states. */
  readonly stated: number
  /** The lane number of the gateway that states it. */
  readonly of: number
  /** The lane number of the gateway at the other end. */
  readonly from: number
}

/**
 * The port on which a gateway takes packets of far gateways with the lane number `from`. It may be outside 1 to 65535,
 * because it is checked after this.
 */
export function linkPort({ stated, of, from }: LinkPortInit): number {
  return stated - of + from
}
