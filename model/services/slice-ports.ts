/**
 * The ports that an EndpointSlice serves, by protocol and name: by these a cluster exposes a port of
 * a service. Pure.
 */
import type { EndpointSlice, ImportPort } from '../model.ts'

/** A port by protocol and name: `TCP/http`, or `TCP/` without a name. */
export function portId({ protocol, name }: Pick<ImportPort, 'name'> & { readonly protocol?: string }): string {
  return `${protocol ?? 'TCP'}/${name ?? ''}`
}

/** The target ports by portId(). The first of several ports of one name counts, whatever its number is. */
export function targetPorts({ ports = [] }: Pick<EndpointSlice, 'ports'>): ReadonlyMap<string, number> {
  const targets = new Map<string, number>()
  for (const one of ports) {
    const id = portId(one)
    if (one.port !== undefined && !targets.has(id)) targets.set(id, one.port)
  }
  return targets
}

/** Whether a target port is one: other members send these numbers. */
export function isPortNumber(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65_535
}

/** Whether the endpoints of the slice serve all these ports. */
export function servesAll(slice: Pick<EndpointSlice, 'ports'>, wanted: readonly ImportPort[]): boolean {
  const { ports = [] } = slice
  // Nearly all slices list the ports as the import does.
  const isAlike = ports.length === wanted.length && wanted.every((one, i) => isServedBy(one, ports[i]))
  if (isAlike) return true
  const targets = targetPorts(slice)
  return wanted.every((one) => isPortNumber(targets.get(portId(one)) ?? 0))
}

function isServedBy(wanted: ImportPort, port: NonNullable<EndpointSlice['ports']>[number] | undefined): boolean {
  if (port?.port === undefined || !isPortNumber(port.port)) return false
  return (port.name ?? '') === (wanted.name ?? '') && (port.protocol ?? 'TCP') === wanted.protocol
}
