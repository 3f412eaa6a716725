/** The devices of the route table tests, and the function that removes them. */
import { formatRoute } from '../../kernel/route/format-ip.ts'
import type { NewLink, Route, RouteTable } from '../../kernel/route/route-table.ts'

export const wire: NewLink = { kind: 'bridge', name: 'sl-wire', mtu: 1500 }
export const vxlan: NewLink = {
  kind: 'vxlan',
  name: 'sl-vx',
  vni: 7399,
  port: 4811,
  local: '192.0.2.1',
  mac: '0a:5e:c0:00:02:01',
  mtu: 1450,
}
/** Adds a bridge with 192.0.2.1/24 and a vxlan device on it, both up. */
export async function underlay(table: RouteTable): Promise<void> {
  await table.addLink(wire)
  await table.setLink('sl-wire', { up: true })
  await table.addAddress({ device: 'sl-wire', address: '192.0.2.1/24' })
  await table.addLink(vxlan)
  await table.setLink('sl-vx', { up: true })
}

export async function clear(table: RouteTable): Promise<void> {
  for (const rule of await table.rules()) await table.deleteRule(rule)
  for (const route of await table.routes()) await table.deleteRoute(route)
  for (const link of await table.links()) if (/^sl-/.test(link.name)) await table.deleteLink(link.name)
}

/** Sorts routes by their commands, because listings come in no particular order. */
export function sorted(routes: readonly Route[]): readonly Route[] {
  return [...routes].sort((a, b) => (formatRoute(a) < formatRoute(b) ? -1 : 1))
}
