/** What both drivers refuse before they ask anything: items that could not be printed or sent. KernelError EINVAL. */
import { InvalidAddressError, parseAddress, parsePrefix } from '../model/ip.ts'
import { KernelError } from './errors.ts'
import { formatRoute } from './format-ip.ts'
import type { InterfaceAddress, Route } from './route-table.ts'

export function checkRoute(route: Route): void {
  const operation = formatRoute(route)
  refuseInvalid(operation, () => {
    parsePrefix(route.destination, 'destination')
    if (route.source !== undefined) parseAddress(route.source, 'source')
    for (const hop of route.nextHops) if (hop.via !== undefined) parseAddress(hop.via, 'via')
  })
  const problem =
    route.type === 'unicast' && route.nextHops.length === 0 ? 'a unicast route needs a next hop'
    : route.type === 'unreachable' && route.nextHops.length > 0 ? 'an unreachable route has no next hop'
    : !Number.isInteger(route.table) || route.table < 1 || route.table > 0xffffffff ? `table ${route.table}: expected 1 to 4294967295`
    : route.nextHops.some((hop) => hop.weight !== undefined && !(hop.weight >= 1 && hop.weight <= 256)) ? 'weight: expected 1 to 256'
    : undefined
  if (problem !== undefined) throw new KernelError('EINVAL', operation, problem)
}

export function checkInterfaceAddress(address: InterfaceAddress, operation: string): void {
  refuseInvalid(operation, () => {
    const [host = '', length = ''] = address.address.split('/')
    const family = parseAddress(host, 'address').family
    if (!/^\d{1,3}$/.test(length) || Number(length) > (family === 4 ? 32 : 128)) {
      throw new InvalidAddressError('address', address.address, 'address/length such as 10.0.0.1/24')
    }
  })
}

/** Turns what model/ip.ts says about text into a KernelError. */
export function refuseInvalid<T>(operation: string, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    if (error instanceof InvalidAddressError) throw new KernelError('EINVAL', operation, error.message, { cause: error })
    throw error
  }
}
