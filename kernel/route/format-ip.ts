/**
 * Formats links, addresses, routes, rules, neighbours and forwarding entries as the `ip` or `bridge` commands that
 * create them. The texts are never run: they appear in logs, dry runs and golden tests.
 */
import { familyOf } from '../../model/addresses/addresses.ts'
import { ROUTE_PROTOCOL } from '../../model/model.ts'
import type { ForwardingEntry, Neighbour, NewAddress, NewLink, NextHop, Route, Rule } from './route-table.ts'

export function formatLink(link: NewLink): string {
  const head = `ip link add ${link.name}`
  if (link.kind !== 'vxlan') return `${head} mtu ${link.mtu} type ${link.kind}`
  return (
    `${head} address ${link.mac} mtu ${link.mtu} type vxlan id ${link.vni} local ${link.local} ` +
    `dstport ${link.port} nolearning`
  )
}

export function formatLinkChange(name: string, change: { readonly up?: boolean; readonly mtu?: number }): string {
  const mtu = change.mtu === undefined ? '' : ` mtu ${change.mtu}`
  const up = change.up === undefined ? '' : change.up ? ' up' : ' down'
  return `ip link set ${name}${mtu}${up}`
}

export function formatLinkDeletion(name: string): string {
  return `ip link del ${name}`
}

export function formatAddress(address: NewAddress): string {
  // The address is ours alone, on a device of ours, so duplicate address detection would only cause a delay.
  const nodad = familyOf(address.address) === 6 ? ' nodad' : ''
  const scope = address.scope === undefined ? '' : ` scope ${address.scope}`
  return `ip address add ${address.address} dev ${address.device}${scope}${nodad}`
}

/** Returns `ip route replace …` with our protocol number. */
export function formatRoute(route: Route): string {
  const only = route.nextHops.length === 1 ? ` ${formatNextHop(route.nextHops[0] as NextHop)}` : ''
  const named = route.nextHopId === undefined ? '' : ` nhid ${route.nextHopId}`
  const several = route.nextHops.length > 1 ? route.nextHops.map(formatWeightedHop).join('') : ''
  return (
    `${tool(route.destination)} route replace ${routeKey(route)}${only}${named} ` +
    `table ${route.table} proto ${ROUTE_PROTOCOL}` +
    (route.metric === undefined ? '' : ` metric ${route.metric}`) +
    (route.source === undefined ? '' : ` src ${route.source}`) +
    (route.mtu === undefined ? '' : ` mtu ${route.mtu}`) +
    several
  )
}

export function formatRouteDeletion(route: Route): string {
  const metric = route.metric === undefined ? '' : ` metric ${route.metric}`
  return `${tool(route.destination)} route del ${routeKey(route)} table ${route.table} proto ${ROUTE_PROTOCOL}${metric}`
}

export function formatRule(rule: Rule): string {
  return `${ruleTool(rule)} rule add ${ruleWords(rule)}`
}

export function formatRuleDeletion(rule: Rule): string {
  return `${ruleTool(rule)} rule del ${ruleWords(rule)}`
}

export function formatNeighbour(neighbour: Neighbour): string {
  const { address, device, mac } = neighbour
  return `${tool(address)} neighbour replace ${address} lladdr ${mac} dev ${device} nud permanent`
}

export function formatNeighbourDeletion({ address, device }: Pick<Neighbour, 'address' | 'device'>): string {
  return `${tool(address)} neighbour del ${address} dev ${device}`
}

/** Returns `ip route get …`. */
export function formatLookup(destination: string): string {
  return `${tool(destination)} route get ${destination}`
}

/** Returns `ip`, or `ip -6` for IPv6. */
function tool(address: string): string {
  return familyOf(address) === 6 ? 'ip -6' : 'ip'
}

function ruleTool(rule: Rule): string {
  return rule.family === 6 ? 'ip -6' : 'ip'
}

export function formatForwardingEntry(entry: ForwardingEntry): string {
  return `bridge fdb replace ${entry.mac} dev ${entry.device} dst ${entry.destination} self permanent`
}

export function formatForwardingEntryDeletion({ mac, device, destination }: ForwardingEntry): string {
  return `bridge fdb del ${mac} dev ${device} dst ${destination} self`
}

function routeKey(route: Route): string {
  return route.type === 'unicast' ? route.destination : `${route.type} ${route.destination}`
}

function formatNextHop(hop: NextHop): string {
  const via = hop.via === undefined ? '' : `via ${hop.via} `
  return `${via}dev ${hop.device}${hop.onlink === true ? ' onlink' : ''}`
}

function formatWeightedHop(hop: NextHop): string {
  const via = hop.via === undefined ? '' : `via ${hop.via} `
  return ` nexthop ${via}dev ${hop.device} weight ${hop.weight ?? 1}${hop.onlink === true ? ' onlink' : ''}`
}

function ruleWords(rule: Rule): string {
  const from = rule.source === undefined ? '' : ` from ${rule.source}`
  const to = rule.destination === undefined ? '' : ` to ${rule.destination}`
  const without = rule.withoutMark === undefined ? '' : ` fwmark 0/0x${rule.withoutMark.toString(16)}`
  const iif = rule.inputDevice === undefined ? '' : ` iif ${rule.inputDevice}`
  const exceptIif = rule.exceptInputDevice === undefined ? '' : `not iif ${rule.exceptInputDevice} `
  const except = rule.exceptMark === undefined ? '' : `not fwmark 0x${rule.exceptMark.toString(16)} `
  const protocol = rule.protocol === undefined ? '' : ` ipproto ${rule.protocol}`
  const sport = rule.sourcePort === undefined ? '' : ` sport ${rule.sourcePort}`
  const dport = rule.destinationPort === undefined ? '' : ` dport ${rule.destinationPort}`
  const what = `${from}${to}${without}${iif}${protocol}${sport}${dport}`
  const suppressed = rule.exceptDefault === true ? ' suppress_prefixlength 0' : ''
  const lookup = `lookup ${rule.table}${suppressed}`
  const action = rule.action === undefined ? lookup : rule.action
  return `${except}${exceptIif}priority ${rule.priority}${what} ${action} protocol ${ROUTE_PROTOCOL}`
}
