/** Devices and builders for the tests of next hops. */
import { NEXT_HOP_IDS_NODE } from '../../model/kernel-ids.ts'
import type { GroupMember, NextHopObject, PlainGroup, ResilientGroup } from '../../kernel/route/next-hop-table.ts'
import type { Route } from '../../kernel/route/route-table.ts'
import type { NextHopNode } from './next-hop-table.ts'
import { clear } from './route-table-stage.ts'

export function id(number: number): number {
  return NEXT_HOP_IDS_NODE.first + number
}

export function hop(number: number, device: string, rest: Partial<NextHopObject> = {}): NextHopObject {
  return { id: id(number), family: 4, device, ...rest }
}

export function hop6(number: number, device: string, rest: Partial<NextHopObject> = {}): NextHopObject {
  return hop(number, device, { family: 6, ...rest })
}

export function group(number: number, members: readonly GroupMember[]): PlainGroup {
  return { kind: 'plain', id: id(number), members }
}

/** Returns a resilient group, with 32 buckets by default. */
export function resilient(
  number: number,
  members: readonly GroupMember[],
  rest: Partial<ResilientGroup> = {},
): ResilientGroup {
  const usual = { buckets: 32, idleTimerMs: 10_000, unbalancedTimerMs: 15_000 }
  return { kind: 'resilient', id: id(number), members, ...usual, ...rest }
}

export function route(destination: string, number: number, rest: Partial<Route> = {}): Route {
  return { table: 7312, destination, type: 'unicast', nextHops: [], nextHopId: id(number), ...rest }
}

/** Adds two devices, both up: sl-a with 192.0.2.1/24 and fd00:7::1/64, and sl-b without addresses. */
export async function wires({ routes }: NextHopNode): Promise<void> {
  for (const name of ['sl-a', 'sl-b']) {
    await routes.addLink({ kind: 'bridge', name, mtu: 1500 })
    await routes.setLink(name, { up: true })
  }
  await routes.addAddress({ device: 'sl-a', address: '192.0.2.1/24' })
  await routes.addAddress({ device: 'sl-a', address: 'fd00:7::1/64' })
}

export async function clearNextHops({ hops, routes }: NextHopNode): Promise<void> {
  await clear(routes)
  const left = await hops.list()
  for (const one of [...left.groups, ...left.hops]) await hops.remove(one.id)
}
