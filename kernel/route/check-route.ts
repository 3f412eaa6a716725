/**
 * Checks of routes, rules and addresses that both drivers make before any request: they refuse items that could not be
 * printed or sent (KernelError EINVAL).
 */
import {
  familyOf,
  InvalidAddressError,
  parseAddress,
  parsePrefix,
  type Family,
} from '../../model/addresses/addresses.ts'
import { usualAddress, usualPrefix } from './address-text.ts'
import { KernelError } from '../kernel.ts'
import { formatRoute } from './format-ip.ts'
import type { InterfaceAddress, NextHop, Route, Rule } from './route-table.ts'

export function checkRoute(route: Route): void {
  const operation = formatRoute(route)
  refuseInvalid(operation, () => {
    const { family } = parsePrefix(route.destination, 'destination')
    if (route.source !== undefined) checkFamily('source', route.source, family)
    for (const hop of route.nextHops) if (hop.via !== undefined) checkFamily('via', hop.via, family)
  })
  const problem = wayProblem(route) ?? fieldProblem(route)
  if (problem !== undefined) throw new KernelError('EINVAL', operation, problem)
}

function wayProblem({ type, nextHops, nextHopId }: Route): string | undefined {
  if (type !== 'unicast') {
    return nextHops.length > 0 || nextHopId !== undefined ? `a route of type ${type} has no next hop` : undefined
  }
  if (nextHopId === undefined) return nextHops.length === 0 ? 'a unicast route needs a next hop' : undefined
  if (nextHops.length > 0) return 'next hops beside the id of one: expected either'
  return isNumberOf32Bits(nextHopId) ? undefined : `next-hop id ${nextHopId}: expected 1 to 4294967295`
}

function fieldProblem({ table, destination, nextHops }: Route): string | undefined {
  if (!isNumberOf32Bits(table)) return `table ${table}: expected 1 to 4294967295`
  if (nextHops.some(({ weight }) => weight !== undefined && !(weight >= 1 && weight <= 256))) {
    return 'weight: expected 1 to 256'
  }
  const needsGateways = familyOf(destination) === 6 && nextHops.length > 1
  return needsGateways && nextHops.some((hop) => hop.via === undefined)
    ? 'device only next hops: IPv6 takes several only if each has a gateway'
    : undefined
}

function isNumberOf32Bits(number: number): boolean {
  return Number.isInteger(number) && number >= 1 && number <= 0xffffffff
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

/** Accepts six bytes, separated by colons, in lower case. */
export function checkMac(mac: string, operation: string): void {
  if (/^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/.test(mac)) return
  throw new KernelError('EINVAL', operation, `MAC ${JSON.stringify(mac)}: expected six bytes such as 0a:5e:c0:00:02:01`)
}

/** Accepts 1 to 15 characters without '/', ':' or space (net/core/dev.c dev_valid_name). */
export function checkDeviceName(name: string, operation: string): void {
  if (!/^[^\s/:]{1,15}$/.test(name) || name === '.' || name === '..') {
    throw new KernelError(
      'EINVAL',
      operation,
      `device name ${JSON.stringify(name)}: expected 1 to 15 characters without space, / or :`,
    )
  }
}

function checkFamily(field: string, text: string, family: Family): void {
  if (parseAddress(text, field).family === family) return
  throw new InvalidAddressError(field, text, `an IPv${family} address, as the destination is one`)
}

/** The metric of an IPv6 route without a metric: IPv6 has no metric 0. linux/ipv6_route.h IP6_RT_PRIO_USER. */
export const IPV6_DEFAULT_METRIC = 1024

/** Returns the metric that the kernel uses: 0 and absent mean the default. */
export function routeMetric({ destination, metric = 0 }: Pick<Route, 'destination' | 'metric'>): number {
  return familyOf(destination) === 6 && metric === 0 ? IPV6_DEFAULT_METRIC : metric
}

/**
 * Returns the route as it is listed: without default values and fields that have no effect, with addresses in canonical
 * form.
 */
export function normalRoute(route: Route): Route {
  const { metric: _, source, ...rest } = route
  const metric = routeMetric(route)
  const isDefault = metric === routeMetric({ destination: route.destination })
  const destination = usualPrefix(route.destination)
  const several = route.nextHops.length > 1
  const nextHops = route.nextHops.map(({ device, via, onlink, weight }): NextHop => ({
    device,
    ...(via === undefined ? {} : { via: usualAddress(via) }),
    ...(onlink === true ? { onlink } : {}),
    ...(several && weight !== undefined && weight !== 1 ? { weight } : {}),
  }))
  return {
    ...rest,
    destination,
    nextHops,
    ...(isDefault ? {} : { metric }),
    ...(source === undefined ? {} : { source: usualAddress(source) }),
  }
}

/** Converts an InvalidAddressError of `parse` to a KernelError. */
export function refuseInvalid<T>(operation: string, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    if (error instanceof InvalidAddressError)
      throw new KernelError('EINVAL', operation, error.message, { cause: error })
    throw error
  }
}

/** An exception inverts all selectors of a rule (linux/fib_rules.h FIB_RULE_INVERT), so it must be the only one. */
export function checkRule(rule: Rule, operation: string): void {
  const { source, destination, withoutMark, inputDevice, exceptInputDevice, exceptMark, protocol } = rule
  const { sourcePort, destinationPort } = rule
  const ports = [sourcePort, destinationPort].filter((port) => port !== undefined)
  for (const device of [inputDevice, exceptInputDevice]) if (device !== undefined) checkDeviceName(device, operation)
  if (source !== undefined) refuseInvalid(operation, () => checkFamily('source', source, rule.family ?? 4))
  if (destination !== undefined) checkDestination(destination, rule.family ?? 4, operation)
  if (withoutMark !== undefined && !isNumberOf32Bits(withoutMark))
    throw new KernelError('EINVAL', operation, `mark ${withoutMark}: expected 1 to 4294967295`)
  if (rule.action !== undefined && rule.exceptDefault === true)
    throw new KernelError('EINVAL', operation, 'an action beside exceptDefault: expected either')
  if ((rule.action === undefined) !== rule.table > 0)
    throw new KernelError('EINVAL', operation, `table ${rule.table}: expected one, or an action and table 0`)
  const all = [source, destination, withoutMark, inputDevice, exceptInputDevice, exceptMark, protocol]
  const selectors = all.filter((one) => one !== undefined)
  for (const port of ports) {
    if (protocol === undefined)
      throw new KernelError('EINVAL', operation, `port ${port} without a protocol: expected one`)
    if (Number.isInteger(port) && port > 0 && port <= 0xffff) continue
    throw new KernelError('EINVAL', operation, `port ${port}: expected a number from 1 to 65535`)
  }
  const hasException = exceptInputDevice !== undefined || exceptMark !== undefined
  if (!hasException || selectors.length === 1) return
  throw new KernelError('EINVAL', operation, 'an exception beside another selector: expected it alone')
}

function checkDestination(text: string, family: Family, operation: string): void {
  const prefix = refuseInvalid(operation, () => parsePrefix(text, 'destination'))
  if (prefix.family !== family)
    throw new KernelError('EINVAL', operation, `destination ${text}: expected one of IPv${family}`)
  // The kernel would list the rule as one without a destination.
  if (prefix.length === 0) throw new KernelError('EINVAL', operation, `destination ${text}: expected none instead`)
}
