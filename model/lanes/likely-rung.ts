/** By which rung of reach the links of a cluster will likely go, before it joins. Pure. */
import { UNGRANTED_SPACE, classifyAddress, containsAddress, isAddress, parseAddress } from '../addresses/addresses.ts'
import { printable } from '../model.ts'

/** A gateway that is to be. */
export interface PlannedGateway {
  readonly node: string
  /** An address or a name at which others call it, as its operator or its Node states. Absent: none is stated. */
  readonly publicAddress?: string | undefined
  /** Addresses of the Node itself. Absent: not known. */
  readonly addresses?: readonly string[]
}

/**
 * One line for a user. Nothing has been tried yet, and NATs of other members are not known, so it promises nothing.
 */
export function likelyRungText(gateways: readonly PlannedGateway[]): string {
  const stated = gateways.find(({ publicAddress }) => publicAddress !== undefined)
  if (stated !== undefined) {
    const at = printable(stated.publicAddress ?? '')
    return `links will likely be direct: others can call ${printable(stated.node)} at ${at}, if its UDP ports are open`
  }
  for (const { node, addresses = [] } of gateways) {
    const open = addresses.find(isPublic)
    if (open !== undefined)
      return `links will likely be direct: ${printable(node)} has the address ${open}, if its UDP ports are open`
  }
  const own = gateways.flatMap(({ addresses = [] }) => addresses).slice(0, 3)
  const some = own.map(printable).join(', ')
  const why = own.length === 0 ? 'no public address is stated' : `only private addresses (${some})`
  return (
    `${why}: links will likely be direct with members of the same network, or that can be called from outside; ` +
    'with others punched through the NATs, else relayed if a relay is there'
  )
}

function isPublic(text: string): boolean {
  if (!isAddress(text)) return false
  const address = parseAddress(text)
  if (address.family !== 4 || classifyAddress(address) !== 'usable') return false
  return !UNGRANTED_SPACE.some((space) => containsAddress(space, address))
}
