/** Checks and look-ups of the fake route table, without state of their own. */
import {
  addressBits,
  classifyAddress,
  containsAddress,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../model/addresses/ip.ts'
import { KernelError } from '../errors.ts'
import { normalRoute, routeMetric } from '../route/check-route.ts'
import type { InterfaceAddress, Route, Rule } from '../route/route-table.ts'

export function routeKey(route: Route): string {
  return `${route.table}|${normalRoute(route).destination}|${routeMetric(route)}`
}

export function ruleKey(rule: Rule): string {
  return `${rule.family ?? 4}|${rule.priority}|${rule.inputDevice ?? ''}|${rule.table}|${rule.exceptMark ?? ''}|${rule.exceptInputDevice ?? ''}|${rule.source ?? ''}|${rule.protocol ?? ''}|${rule.sourcePort ?? ''}|${rule.destinationPort ?? ''}`
}

/** Whether `address` is on a network that one of the device's addresses is in. Link-local IPv6 is on every device. */
function isConnected(addresses: readonly InterfaceAddress[], device: string, address: string): boolean {
  const wanted = parseAddress(address)
  if (wanted.family === 6 && classifyAddress(wanted) === 'linkLocal') return true
  return addresses.some((entry) => entry.device === device && containsAddress(networkOf(entry.address), wanted))
}

/** Throws KernelError where no network of the device has the gateway in it. */
export function needReach(
  addresses: readonly InterfaceAddress[],
  device: string,
  via: string,
  operation: string,
): void {
  if (isConnected(addresses, device, via)) return
  const code = parseAddress(via).family === 4 ? 'ENETUNREACH' : 'EHOSTUNREACH'
  throw new KernelError(code, operation, `no address of ${device} reaches ${via}`)
}

/** The device whose connected network holds the address, longest prefix first. */
export function connectedDevice(
  addresses: readonly InterfaceAddress[],
  destination: string,
): InterfaceAddress | undefined {
  const wanted = parseAddress(destination)
  return addresses
    .filter((entry) => containsAddress(networkOf(entry.address), wanted))
    .sort((a, b) => networkOf(b.address).length - networkOf(a.address).length)[0]
}

/** Longest prefix, then lowest metric, within one table. */
export function bestRoute(routes: readonly Route[], table: number, destination: string): Route | undefined {
  const wanted = parseAddress(destination)
  return routes
    .filter((route) => route.table === table && containsAddress(parsePrefix(route.destination), wanted))
    .sort(
      (a, b) =>
        parsePrefix(b.destination).length - parsePrefix(a.destination).length || routeMetric(a) - routeMetric(b),
    )[0]
}

function networkOf(address: string): ReturnType<typeof prefixOf> {
  const [host = '', length] = address.split('/')
  const parsed = parseAddress(host)
  return prefixOf(parsed, Number(length ?? addressBits(parsed.family)))
}
