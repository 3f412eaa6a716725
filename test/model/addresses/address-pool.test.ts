import fc from 'fast-check'
import t from 'tap'
import { allocateAddress, allocateBlock } from '../../../model/addresses/address-pool.ts'
import {
  type Prefix,
  containsAddress,
  containsPrefix,
  formatAddress,
  formatPrefix,
  overlaps,
  parsePrefix,
  prefixOf,
} from '../../../model/values/ip.ts'

t.test('blocks', async (t) => {
  const rows: [range: string, length: number, taken: string, want: string][] = [
    ['244.0.0.0/8', 16, '', '244.0.0.0/16'],
    ['244.0.0.0/8', 16, '244.0.0.0/16', '244.1.0.0/16'],
    ['244.0.0.0/8', 16, '244.1.0.0/16 244.0.0.0/16', '244.2.0.0/16'],
    ['244.0.0.0/8', 16, '244.1.0.0/16', '244.0.0.0/16'],
    ['244.0.0.0/8', 16, '244.0.7.0/24', '244.1.0.0/16'],
    ['244.0.0.0/8', 24, '244.0.0.0/16', '244.1.0.0/24'],
    ['244.0.0.0/8', 16, '244.0.0.0/16 244.0.0.0/24 244.0.1.0/24', '244.1.0.0/16'],
    ['244.0.0.0/8', 8, '', '244.0.0.0/8'],
    ['244.0.0.0/8', 16, '10.0.0.0/8 245.0.0.0/16', '244.0.0.0/16'],
    ['10.0.0.0/30', 32, '10.0.0.0/32 10.0.0.1/32', '10.0.0.2/32'],
    ['fd00::/32', 48, 'fd00::/48', 'fd00:0:1::/48'],
  ]
  for (const [range, length, taken, want] of rows) {
    const claims = taken
      .split(' ')
      .filter(Boolean)
      .map((text) => parsePrefix(text))
    t.equal(
      formatPrefix(allocateBlock(parsePrefix(range), length, claims)),
      want,
      `${range} /${length} without ${taken}`,
    )
  }
})

t.test('a full or unsuitable range', async (t) => {
  const range = parsePrefix('10.0.0.0/30')
  t.throws(() => allocateBlock(range, 31, [parsePrefix('10.0.0.0/32'), parsePrefix('10.0.0.2/31')]), {
    name: 'PoolFullError',
    message: 'address range 10.0.0.0/30 is full: no /31 block is free; release some or configure a larger range',
  })
  t.throws(() => allocateBlock(range, 31, [parsePrefix('10.0.0.0/8')]), { name: 'PoolFullError' })
  t.throws(() => allocateBlock(range, 16, []), new RangeError('block length /16 in 10.0.0.0/30: expected /30 to /32'))
  t.throws(() => allocateBlock(range, 33, []), new RangeError('block length /33 in 10.0.0.0/30: expected /30 to /32'))
  t.throws(() => allocateAddress(range, () => true, 'x'), {
    message: 'address range 10.0.0.0/30 is full: no address is free; release some or configure a larger range',
  })
  t.throws(
    () => allocateAddress(parsePrefix('10.0.0.0/31'), () => false, 'x'),
    new RangeError('range 10.0.0.0/31: expected at least four addresses'),
  )
})

t.test('properties', async (t) => {
  const range = parsePrefix('10.0.0.0/24')
  const arbClaim = fc
    .tuple(fc.integer({ min: 0, max: 255 }), fc.integer({ min: 25, max: 32 }))
    .map(([host, length]): Prefix => prefixOf({ family: 4, value: range.value + BigInt(host) }, length))
  fc.assert(
    fc.property(fc.array(arbClaim, { maxLength: 20 }), fc.integer({ min: 24, max: 32 }), (claims, length) => {
      const free = allBlocks(range, length).filter((block) => !claims.some((claim) => overlaps(claim, block)))
      if (free.length === 0) return throwsFull(() => allocateBlock(range, length, claims))
      const block = allocateBlock(range, length, claims)
      return formatPrefix(block) === formatPrefix(free[0]!) && containsPrefix(range, block)
    }),
    { numRuns: 1000 },
  )
  t.pass('the lowest free block, or full exactly when there is none')

  fc.assert(
    fc.property(fc.array(fc.string(), { minLength: 1, maxLength: 254 }), (hints) => {
      const taken = new Set<string>()
      for (const hint of hints) {
        const address = allocateAddress(range, (one) => taken.has(formatAddress(one)), hint)
        if (taken.has(formatAddress(address)) || !containsAddress(range, address)) return false
        if (formatAddress(address) === '10.0.0.0' || formatAddress(address) === '10.0.0.255') return false
        const again = allocateAddress(range, (one) => taken.has(formatAddress(one)), hint)
        if (formatAddress(again) !== formatAddress(address)) return false
        taken.add(formatAddress(address))
      }
      return true
    }),
    { numRuns: 50 },
  )
  t.pass('never twice, never first or last, the same hint the same address; all 254 can be had')
})

t.test('a service that comes back gets its address back', async (t) => {
  const range = parsePrefix('245.0.0.0/16')
  const before = formatAddress(allocateAddress(range, () => false, 'shop/web'))
  const after = formatAddress(
    allocateAddress(range, (one) => formatAddress(one) !== before && one.value % 7n === 0n, 'shop/web'),
  )
  t.equal(after, before)
})

function allBlocks(range: Prefix, length: number): Prefix[] {
  const size = 1n << BigInt(32 - length)
  return Array.from({ length: 1 << (length - range.length) }, (_, i): Prefix => ({
    family: 4,
    value: range.value + BigInt(i) * size,
    length,
  }))
}

function throwsFull(run: () => unknown): boolean {
  try {
    run()
    return false
  } catch (error) {
    return error instanceof Error && error.name === 'PoolFullError'
  }
}
