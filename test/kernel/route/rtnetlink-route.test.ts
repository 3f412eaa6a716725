/** Routes as messages; test/netns/kernel-route-table.test.ts has real ones. */
import fc from 'fast-check'
import t from 'tap'
import { familyOf } from '../../../model/values/ip.ts'
import { checkRoute, normalRoute } from '../../../kernel/route/check-route.ts'
import type { NextHop, Route } from '../../../kernel/route/route-table.ts'
import { body, u32 } from '../../../kernel/route/rtnetlink-codec.ts'
import { decodeMainRoute, decodeRoute, encodeRoute } from '../../../kernel/route/rtnetlink-route.ts'

const DEVICES = ['sealane0', 'sealane1', 'sealane-vx']
const index = (device: string): number => DEVICES.indexOf(device) + 1
const name = (number: number): string | undefined => DEVICES[number - 1]

const WAYS = {
  4: { destination: ['244.1.0.0/16', '0.0.0.0/0', '10.42.5.9/32'], via: ['192.0.2.2', '192.0.2.3'] },
  6: { destination: ['fd01::/48', '::/0', 'fd01::9/128'], via: ['fe80::1', 'fd00:7::2'] },
} as const

const anyRoute: fc.Arbitrary<Route> = fc.constantFrom(4 as const, 6 as const).chain((family) => {
  const { destination, via } = WAYS[family]
  const hop: fc.Arbitrary<NextHop> = fc.record(
    {
      device: fc.constantFrom(...DEVICES),
      via: fc.constantFrom(...via),
      onlink: fc.boolean(),
      weight: fc.integer({ min: 1, max: 256 }),
    },
    { requiredKeys: ['device', 'via'] },
  )
  const way = fc.oneof(
    fc.array(hop, { minLength: 1, maxLength: 4 }).map((nextHops) => ({ nextHops })),
    fc.integer({ min: 1, max: 0xffffffff }).map((nextHopId) => ({ nextHops: [], nextHopId })),
  )
  const rest = fc.record(
    {
      metric: fc.integer({ min: 0, max: 0xffffffff }),
      mtu: fc.integer({ min: 68, max: 65_535 }),
      source: fc.constantFrom(...via),
    },
    { requiredKeys: [] },
  )
  const table = fc.integer({ min: 1, max: 0xffffffff })
  return fc
    .tuple(table, fc.constantFrom(...destination), way, rest)
    .map(([table, destination, way, rest]) => ({ table, destination, type: 'unicast' as const, ...way, ...rest }))
})

t.test('what is sent is what is read: several next hops with weights, or the id of one', (t) => {
  fc.assert(
    fc.property(anyRoute, (route) => {
      checkRoute(route)
      const decoded = decodeRoute(Buffer.concat(encodeRoute(route, index)), familyOf(route.destination), name)
      t.strictSame(decoded, normalRoute(route))
    }),
    { numRuns: 300 },
  )
  t.end()
})

t.test('beside an id, the hops of that object are not the route’s own', (t) => {
  const [DST, OIF, NH_ID] = [1, 4, 30]
  const message = (protocol: number, attributes: Parameters<typeof body>[1]): Buffer => {
    const head = Buffer.from([2, 16, 0, 0, 254, protocol, 0, 1, 0, 0, 0, 0])
    return Buffer.concat(body(head, [[DST, Buffer.from([10, 1, 0, 0])], ...attributes]))
  }
  const id = [NH_ID, u32(5)] as const
  const known = { table: 254, destination: '10.1.0.0/16', type: 'unicast' }
  t.strictSame(decodeRoute(message(173, [id, [OIF, u32(1)]]), 4, name), { ...known, nextHops: [], nextHopId: 5 })
  t.strictSame(decodeRoute(message(173, [[OIF, u32(1)]]), 4, name), { ...known, nextHops: [{ device: 'sealane0' }] })
  const ofOthers = { destination: '10.1.0.0/16', type: 'unicast' }
  t.strictSame(decodeMainRoute(message(3, [id, [OIF, u32(1)]]), 4, name), { ...ofOthers, device: 'sealane0' })
  t.strictSame(decodeMainRoute(message(3, [id]), 4, name), ofOthers)
  t.end()
})
