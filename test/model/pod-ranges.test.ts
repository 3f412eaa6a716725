import fc from 'fast-check'
import t from 'tap'
import { type Prefix, containsAddress, formatPrefix, parsePrefix, prefixOf } from '../../model/ip.ts'
import type { Node, RouteAgent } from '../../model/objects.ts'
import {
  type NodeRanges,
  aggregate,
  claimedRanges,
  elsewherePrefixes,
  podPlaces,
  toldOtherRanges,
} from '../../model/pod-ranges.ts'

const texts = (prefixes: readonly Prefix[]): string => prefixes.map(formatPrefix).join(' ')
const ranges = (node: string, text: string): NodeRanges => ({
  node,
  ranges: text.split(' ').flatMap((one) => (one === '' ? [] : [parsePrefix(one)])),
})

t.test('who has what, seen from node a', async (t) => {
  const rows: { say: string; claims: Record<string, string>; elsewhere: string; but?: string; nobody?: string }[] = [
    {
      say: 'a range each',
      claims: { a: '10.42.0.0/24', b: '10.42.1.0/24', c: '10.42.2.0/24' },
      elsewhere: 'b:10.42.1.0/24 c:10.42.2.0/24',
    },
    {
      say: 'a pod of ours with an address of another node',
      claims: { a: '10.42.0.0/26 10.42.1.9/32', b: '10.42.1.0/26' },
      elsewhere: 'b:10.42.1.0/26',
      but: '10.42.1.9/32',
    },
    {
      say: 'and the other way round',
      claims: { a: '10.42.0.0/26', b: '10.42.0.9/32' },
      elsewhere: 'b:10.42.0.9/32',
    },
    {
      say: 'three deep',
      claims: { a: '10.42.0.0/24', b: '10.42.0.0/16 10.42.0.7/32' },
      elsewhere: 'b:10.42.0.0/16 b:10.42.0.7/32',
      but: '10.42.0.0/24',
    },
    {
      say: 'what two claim nobody has',
      claims: { a: '10.32.0.0/12', b: '10.32.0.0/12', c: '10.32.0.0/12' },
      elsewhere: '',
      nobody: '10.32.0.0/12=a,b,c',
    },
    {
      say: 'also inside the range of a third',
      claims: { a: '', b: '10.42.0.0/24', c: '10.42.0.7/32', d: '10.42.0.7/32' },
      elsewhere: 'b:10.42.0.0/24',
      but: '10.42.0.7/32',
      nobody: '10.42.0.7/32=c,d',
    },
  ]
  for (const { say, claims, elsewhere, but = '', nobody = '' } of rows) {
    const places = podPlaces(
      'a',
      Object.entries(claims).map(([node, text]) => ranges(node, text)),
    )
    t.equal(places.elsewhere.map(({ node, prefix }) => `${node}:${formatPrefix(prefix)}`).join(' '), elsewhere, say)
    t.equal(texts(places.exceptions), but, say)
    t.equal(places.contested.map((one) => `${formatPrefix(one.prefix)}=${one.nodes.join()}`).join(' '), nobody, say)
  }
})

t.test('what a node says about itself', async (t) => {
  const podCIDRs = [parsePrefix('10.42.0.0/16')]
  const node = (spec: Node['spec']): Node => ({
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'a' },
    ...(spec === undefined ? {} : { spec }),
  })
  const agent = (podRanges?: readonly string[]): RouteAgent => ({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'RouteAgent',
    metadata: { name: 'a' },
    status: { version: '1', clusters: [], ...(podRanges === undefined ? {} : { podRanges }) },
  })
  const claimed = (spec: Node['spec'], told?: readonly string[]): string =>
    texts(claimedRanges(node(spec), told === undefined ? undefined : agent(told), podCIDRs))
  t.equal(claimed({ podCIDR: '10.42.1.0/24' }), '10.42.1.0/24')
  t.equal(claimed({ podCIDR: '10.42.1.0/24', podCIDRs: ['10.42.2.0/24', 'fd00::/64'] }), '10.42.2.0/24')
  t.equal(claimed({ podCIDR: '10.42.1.0/24', podCIDRs: [] }), '10.42.1.0/24')
  t.equal(claimed({ podCIDR: '10.42.1.0/24' }, ['10.42.7.0/26']), '10.42.7.0/26', 'its RouteAgent knows better')
  t.equal(claimed({ podCIDR: '10.42.1.0/24' }, []), '10.42.1.0/24', 'unless it knows nothing')
  t.equal(
    claimed(undefined, ['0.0.0.0/0', '10.0.0.0/8', '192.168.0.1/32', '10.42.0.1/24', 'x', '10.42.3.0/24']),
    '10.42.3.0/24',
    'nobody claims what is not of this cluster',
  )
  t.equal(claimed({ podCIDR: '10.99.0.0/24' }), '')
  t.throws(() => claimed({ podCIDR: '10.42.1.1/24' }), { name: 'InvalidAddressError' })
  t.equal(toldOtherRanges({ type: 'set', object: agent(['10.42.1.0/24']), previous: agent(['10.42.1.0/24']) }), false)
  t.equal(toldOtherRanges({ type: 'set', object: agent(['10.42.1.0/24']), previous: agent() }), true)
  t.equal(toldOtherRanges({ type: 'removed' }), true)
})

const prefix = fc
  .tuple(fc.nat(255), fc.integer({ min: 24, max: 32 }))
  .map(([low, length]) => prefixOf({ family: 4, value: 0x0a2a0000n + BigInt(low) }, length))
const claims = fc.uniqueArray(
  fc.record({ node: fc.constantFrom('a', 'b', 'c'), ranges: fc.array(prefix, { maxLength: 6 }) }),
  { selector: (one) => one.node, maxLength: 3 },
)

/** The plain way: of all claims that hold the address, those with the longest prefix; one owner, or nobody. */
function ownerOf(value: bigint, all: readonly NodeRanges[]): string | undefined {
  const holding = all.flatMap(({ node, ranges: list }) =>
    list.filter((one) => containsAddress(one, { family: 4, value })).map((one) => ({ node, length: one.length })),
  )
  const longest = Math.max(...holding.map((one) => one.length))
  const owners = new Set(holding.filter((one) => one.length === longest).map((one) => one.node))
  return owners.size === 1 ? [...owners][0] : undefined
}

t.test('every address has the owner with the longest prefix, in the routes and in the set', async (t) => {
  fc.assert(
    fc.property(claims, fc.nat(255), (all, low) => {
      const value = 0x0a2a0000n + BigInt(low)
      const places = podPlaces('a', all)
      const routed = [
        ...places.elsewhere.map((one) => ({ ...one.prefix, node: one.node })),
        ...places.exceptions.map((one) => ({ ...one, node: undefined })),
      ]
        .filter((one) => containsAddress(one, { family: 4, value }))
        .sort((x, y) => y.length - x.length)[0]?.node
      const owner = ownerOf(value, all)
      const inSet = elsewherePrefixes(places).filter((one) => containsAddress(one, { family: 4, value })).length
      const away = owner !== undefined && owner !== 'a'
      return routed === (away ? owner : undefined) && inSet === (away ? 1 : 0)
    }),
    { numRuns: 2000 },
  )
  t.end()
})

t.test('aggregation keeps every address and adds none', async (t) => {
  t.equal(texts(aggregate([])), '')
  t.equal(
    texts(aggregate(ranges('a', '10.42.0.0/25 10.42.0.128/25 10.42.1.0/24 10.42.3.0/24').ranges)),
    '10.42.0.0/23 10.42.3.0/24',
  )
  t.equal(texts(aggregate([parsePrefix('0.0.0.0/1'), parsePrefix('128.0.0.0/1')])), '0.0.0.0/0')
  fc.assert(
    fc.property(fc.array(prefix), fc.nat(255), (list, low) => {
      const address = { family: 4, value: 0x0a2a0000n + BigInt(low) } as const
      const held = (all: readonly Prefix[]): boolean => all.some((one) => containsAddress(one, address))
      const short = aggregate(list)
      return held(short) === held(list) && short.length <= Math.max(list.length, 0)
    }),
  )
  t.end()
})
