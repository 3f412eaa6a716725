/** Generated plans of next hops and of routes over them. */
import fc from 'fast-check'
import type { RoutingPlan } from '../../kernel/apply/apply-routing.ts'
import type { NextHopGroup, NextHopObject } from '../../kernel/route/next-hop-table.ts'
import { group, hop, hop6, id, resilient, route } from './next-hop-stage.ts'

export function plan(
  hops: readonly NextHopObject[],
  groups: readonly NextHopGroup[],
  ...routes: RoutingPlan['routes']
): RoutingPlan {
  return { routes, rules: [], nextHops: { hops, groups } }
}

const few = fc.integer({ min: 1, max: 6 })
const anyGroup = fc.record({
  number: few,
  take: fc.uniqueArray(fc.nat(5), { minLength: 1, maxLength: 4 }),
  weight: fc.integer({ min: 1, max: 3 }),
  buckets: fc.constantFrom(0, 8, 16),
})
const anyRoute = fc.record({ destination: fc.nat(3), is6: fc.boolean(), way: fc.nat(11) })

/** Generates any plan that the kernel accepts. Hops and groups share few ids, so an id often changes its meaning. */
export function anyPlan(devices: readonly string[]): fc.Arbitrary<RoutingPlan> {
  const anyHop = fc.record({ number: few, device: fc.constantFrom(...devices), is6: fc.boolean() })
  return fc
    .tuple(
      fc.uniqueArray(anyHop, { selector: ({ number }) => number, maxLength: 5 }),
      fc.uniqueArray(anyGroup, { selector: ({ number }) => number, maxLength: 4 }),
      fc.uniqueArray(anyRoute, { selector: ({ destination, is6 }) => `${destination} ${is6}`, maxLength: 5 }),
    )
    .map(([someHops, someGroups, someRoutes]) => {
      const hops = someHops.map(({ number, device, is6 }) => (is6 ? hop6(number, device) : hop(number, device)))
      const isFree = ({ number }: { readonly number: number }): boolean => !hops.some((one) => one.id === id(number))
      const groups = (hops.length === 0 ? [] : someGroups.filter(isFree)).map(({ number, take, weight, buckets }) => {
        const ids = [...new Set(take.map((index) => hops[index % hops.length]!.id))]
        const members = ids.map((one) => ({ id: one, ...(weight === 1 ? {} : { weight }) }))
        return buckets === 0 ? group(number, members) : resilient(number, members, { buckets })
      })
      const ways = [
        ...hops.map((one) => [one]),
        ...groups.map((one) => hops.filter((h) => one.members.some((m) => m.id === h.id))),
      ]
      const items = [...hops, ...groups]
      const routes = (items.length === 0 ? [] : someRoutes).flatMap(({ destination, is6, way }) => {
        const index = way % items.length
        if (is6 && ways[index]!.some(({ family }) => family === 4)) return []
        const prefix = is6 ? `fd01:${destination + 1}::/32` : `244.${destination}.0.0/16`
        return [route(prefix, items[index]!.id - id(0))]
      })
      return plan(hops, groups, ...routes)
    })
}
