/** Which Nodes of a real cluster are gateways, and on which lane: stated on the Node itself, by an operator or by join. */
import { classifyAddress, parseAddress } from './ip.ts'
import type { Node } from './objects.ts'

/** Its value is the lane's number: `sealane.io/gateway=0`. */
export const LABEL_GATEWAY = 'sealane.io/gateway'
/** Where other clusters may call this gateway, when that is no address of its own (port forwarding, 1:1 NAT). */
export const ANNOTATION_PUBLIC_ADDRESS = 'sealane.io/public-address'

const MAX_LANE = 255

export interface GatewayLane {
  readonly lane: number
  readonly publicAddress?: string
}

export class GatewayNodeError extends Error {
  constructor(node: string, problem: string) {
    super(`Node ${node}: ${problem}`)
    this.name = 'GatewayNodeError'
  }
}

/** Undefined when the Node is no gateway. Throws GatewayNodeError naming the label or annotation and its value. */
export function gatewayLane({ metadata }: Node): GatewayLane | undefined {
  const label = metadata.labels?.[LABEL_GATEWAY]
  if (label === undefined) return undefined
  const lane = Number(label)
  if (!/^\d{1,3}$/.test(label) || lane > MAX_LANE) {
    const said = `label ${LABEL_GATEWAY} ${JSON.stringify(label)}`
    throw new GatewayNodeError(metadata.name, `${said}: expected the number of a lane, 0 to ${MAX_LANE}`)
  }
  const publicAddress = metadata.annotations?.[ANNOTATION_PUBLIC_ADDRESS]
  if (publicAddress === undefined) return { lane }
  return { lane, publicAddress: checkedAddress(metadata.name, publicAddress) }
}

function checkedAddress(node: string, text: string): string {
  const field = `annotation ${ANNOTATION_PUBLIC_ADDRESS}`
  try {
    const kind = classifyAddress(parseAddress(text, field))
    if (kind !== 'usable') throw new Error(`${field} ${JSON.stringify(text)}: it is ${kind}`)
  } catch (error) {
    throw new GatewayNodeError(node, (error as Error).message)
  }
  return text
}
