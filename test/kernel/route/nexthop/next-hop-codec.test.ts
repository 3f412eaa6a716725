/** Messages as the kernel writes them; test/netns/kernel-nexthop.test.ts has real ones. */
import fc from 'fast-check'
import t from 'tap'
import { NEXT_HOP_IDS, ROUTE_PROTOCOL } from '../../../../model/kernel-ids.ts'
import { KernelError } from '../../../../kernel/errors.ts'
import { checkGroup, checkHop, normalGroup, normalHop } from '../../../../kernel/route/check-next-hop.ts'
import {
  decodeBucket,
  decodeNextHop,
  encodeGroup,
  encodeHop,
  encodeNextHopDump,
  encodeNextHopId,
} from '../../../../kernel/route/next-hop-codec.ts'
import type { GroupMember, NextHopGroup, NextHopObject } from '../../../../kernel/route/next-hop-table.ts'
import { body, nested, u16, u32 } from '../../../../kernel/route/rtnetlink-codec.ts'

const NAMES: Readonly<Record<number, string>> = { 7: 'sealane0', 8: 'sealane1' }
const name = (index: number): string | undefined => NAMES[index]
const FIRST = NEXT_HOP_IDS.first

const optional = <T>(field: string, value: fc.Arbitrary<T>): fc.Arbitrary<Record<string, T>> =>
  fc.oneof(
    fc.constant({}),
    value.map((one) => ({ [field]: one })),
  )
const anyId = fc.integer({ min: FIRST, max: NEXT_HOP_IDS.last })
const gateway = {
  4: fc.ipV4(),
  6: fc.ipV6().filter((text) => !text.includes('.')),
} as const
const anyHop: fc.Arbitrary<NextHopObject> = fc.constantFrom(4 as const, 6 as const).chain((family) =>
  fc
    .tuple(
      anyId,
      fc.constantFrom(...Object.values(NAMES)),
      fc.oneof(
        fc.constant({}),
        fc.tuple(gateway[family], optional('onlink', fc.boolean())).map(([via, onlink]) => ({ via, ...onlink })),
      ),
    )
    .map(([id, device, way]) => ({ id, family, device, ...way })),
)
const timer = fc.integer({ min: 0, max: 429_496_729 }).map((tenths) => tenths * 100)
const members = fc
  .uniqueArray(anyId, { minLength: 1, maxLength: 8 })
  .chain((ids) =>
    fc.tuple(
      ...ids.map((id) =>
        optional('weight', fc.integer({ min: 1, max: 255 })).map((rest): GroupMember => ({ id, ...rest })),
      ),
    ),
  )
const anyGroup: fc.Arbitrary<NextHopGroup> = fc.oneof(
  fc.record({ kind: fc.constant('plain' as const), id: anyId, members }),
  fc.record({
    kind: fc.constant('resilient' as const),
    id: anyId,
    members,
    buckets: fc.integer({ min: 1, max: 0xffff }),
    idleTimerMs: timer,
    unbalancedTimerMs: timer,
  }),
)

t.test('what is sent is what is read', (t) => {
  fc.assert(
    fc.property(anyHop, (hop) => {
      checkHop(hop)
      const index = Number(Object.keys(NAMES).find((one) => NAMES[Number(one)] === hop.device))
      const listed = decodeNextHop(Buffer.concat(encodeHop(hop, index)), name)
      t.strictSame(listed, { id: hop.id, protocol: ROUTE_PROTOCOL, item: normalHop(hop) })
    }),
    { numRuns: 200 },
  )
  fc.assert(
    fc.property(anyGroup, (group) => {
      if (group.members.some(({ id }) => id === group.id)) return
      checkGroup(group)
      const listed = decodeNextHop(Buffer.concat(encodeGroup(group)), name)
      t.strictSame(listed, { id: group.id, protocol: ROUTE_PROTOCOL, item: normalGroup(group) })
    }),
    { numRuns: 200 },
  )
  t.end()
})

t.test('bytes of each message', (t) => {
  const hex = (parts: readonly Uint8Array[]): string => Buffer.concat(parts).toString('hex')
  const hop = { id: FIRST, family: 4, device: 'sealane0', via: '192.0.2.9', onlink: true } as const
  const ID = '08000100c02c922b'
  t.equal(hex(encodeHop(hop, 7)), `0200ad0004000000${ID}0800050007000000080006` + '00c0000209')
  const resilient = {
    kind: 'resilient',
    id: FIRST,
    buckets: 32,
    idleTimerMs: 10_000,
    unbalancedTimerMs: 15_000,
  } as const
  t.equal(
    hex(encodeGroup({ ...resilient, members: [{ id: FIRST + 1, weight: 3 }] })),
    `0000ad0000000000${ID}0c000200c12c922b02000000` +
      '0600030001000000' +
      '1c000c800600010020000000' +
      '08000200e803000008000300dc050000',
    'the nested attribute says that it is one',
  )
  t.equal(hex(encodeNextHopId(FIRST)), `0000000000000000${ID}`)
  t.equal(hex(encodeNextHopDump()), '0000000000000000')
  t.end()
})

t.test('what others make is read as far as it can be', (t) => {
  const message = (family: number, attributes: Parameters<typeof body>[1], protocol = 3): Buffer =>
    Buffer.concat(body(Buffer.from([family, 0, protocol, 0, 0, 0, 0, 0]), [[1, u32(5)], ...attributes]))
  const unknown = { id: 5, protocol: 3, item: undefined }
  t.strictSame(decodeNextHop(message(2, [[4, Buffer.alloc(0)]]), name), unknown, 'a blackhole')
  t.strictSame(
    decodeNextHop(
      message(0, [
        [2, Buffer.concat([u32(1), u32(0)])],
        [3, u16(9)],
      ]),
      name,
    ),
    unknown,
    'a new kind',
  )
  t.strictSame(decodeNextHop(message(7, [[5, u32(7)]]), name), unknown, 'of a bridge')
  t.strictSame(
    decodeNextHop(
      message(2, [
        [5, u32(7)],
        [6, Buffer.alloc(16)],
      ]),
      name,
    ),
    unknown,
    'another gateway',
  )
  const heavy = Buffer.concat([u32(1), Buffer.from([0xff, 1, 0, 0])])
  t.strictSame(
    decodeNextHop(
      message(0, [
        [2, heavy],
        [3, u16(0)],
      ]),
      name,
    )?.item,
    { kind: 'plain', id: 5, members: [{ id: 1, weight: 512 }] },
    'a weight of Linux 6.12',
  )
  t.strictSame(
    decodeNextHop(
      message(2, [
        [5, u32(99)],
        [0x8003, u16(1)],
      ]),
      name,
    )?.item,
    { id: 5, family: 4, device: 'if99' },
    'a device that has gone',
  )
  t.end()
})

const bucket = Buffer.concat(
  body(Buffer.alloc(8), [
    [1, u32(FIRST)],
    [
      nested(13),
      [
        [1, u16(3)],
        [3, u32(FIRST + 1)],
        [2, Buffer.from('e803000000000000', 'hex')],
      ],
    ],
  ]),
)

t.test('buckets', (t) => {
  t.strictSame(decodeBucket(bucket, FIRST), { index: 3, member: FIRST + 1, idleMs: 10_000 })
  t.equal(decodeBucket(bucket, FIRST + 1), undefined, 'of another group')
  t.end()
})

t.test('cut or changed anywhere, nothing is read beyond and nothing is thrown', (t) => {
  const hop = { id: FIRST, family: 6, device: 'sealane0', via: 'fe80::1', onlink: true } as const
  const group = { kind: 'resilient', id: FIRST, buckets: 32, idleTimerMs: 100, unbalancedTimerMs: 100 } as const
  const seeds = [
    Buffer.concat(encodeHop(hop, 7)),
    Buffer.concat(encodeGroup({ ...group, members: [{ id: FIRST + 1 }, { id: FIRST + 2 }] })),
    bucket,
  ]
  const read = (data: Buffer): void => {
    const listed = decodeNextHop(data, name)
    decodeBucket(data, FIRST)
    if (listed?.item === undefined) return
    if (!('members' in listed.item)) t.match(listed.item.device, /^(sealane\d|if\d+)$/)
    else if (listed.item.members.length === 0) t.fail('a group without members')
  }
  for (const seed of seeds) for (let length = 0; length <= seed.length; length++) read(seed.subarray(0, length))
  const change = fc.record({ at: fc.nat(200), byte: fc.integer({ min: 0, max: 255 }) })
  fc.assert(
    fc.property(fc.constantFrom(...seeds), fc.array(change, { maxLength: 6 }), fc.nat(200), (seed, changes, length) => {
      const data = Buffer.from(seed)
      for (const { at, byte } of changes) data[at % data.length] = byte
      read(data.subarray(0, length))
    }),
    { numRuns: 5_000 },
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 120 }), (bytes) => read(Buffer.from(bytes))),
    { numRuns: 5_000 },
  )
  t.end()
})

t.test('what cannot be encoded is refused', (t) => {
  const numbers = fc.oneof(fc.double(), fc.integer(), fc.constantFrom(0, -1, 256, 65_536, 0xffffffff, 2 ** 32))
  fc.assert(
    fc.property(numbers, numbers, numbers, numbers, (id, weight, buckets, timer) => {
      const group: NextHopGroup = {
        kind: 'resilient',
        id,
        members: [{ id: FIRST + 1, weight }],
        buckets,
        idleTimerMs: timer,
        unbalancedTimerMs: timer,
      }
      try {
        checkGroup(group)
      } catch (error) {
        return error instanceof KernelError && error.code === 'EINVAL'
      }
      const listed = decodeNextHop(Buffer.concat(encodeGroup(group)), name)
      return JSON.stringify(listed?.item) === JSON.stringify(normalGroup(group))
    }),
    { numRuns: 1_000 },
  )
  t.end()
})
