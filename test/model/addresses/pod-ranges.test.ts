import fc from 'fast-check'
import t from 'tap'
import {
  type Address,
  type Prefix,
  addressBits,
  containsAddress,
  formatPrefix,
  parsePrefix,
  prefixOf,
} from '../../../model/values/ip.ts'
import type { Node, RouteAgent } from '../../../model/objects.ts'
import {
  type NodeRanges,
  elsewherePrefixes,
  nodeClaim,
  ownerOf,
  podPlaces,
  reportedOtherRanges,
} from '../../../model/addresses/pod-ranges.ts'
import { nodeObject, routeAgentObject } from '../../support/objects/node-objects.ts'

const texts = (prefixes: readonly Prefix[]): string => prefixes.map(formatPrefix).join(' ')
/**
 * Prefixes with a `!` are confirmed: Node.spec has them, and the node reports them. `spec` means that Node.spec has
 * others.
 */
const ranges = (node: string, text: string): NodeRanges => {
  const words = text.split(' ').filter((one) => one !== '' && one !== 'spec')
  return {
    node,
    ranges: words.map((one) => parsePrefix(one.replace('!', ''))),
    confirmed: words.filter((one) => one.endsWith('!')).map((one) => parsePrefix(one.replace('!', ''))),
    hasSpec: /!|spec/.test(text),
  }
}

t.test('who has what, seen from node a', async (t) => {
  const rows: {
    say: string
    claims: Record<string, string>
    elsewhere: string
    but?: string
    nobody?: string
    refused?: string
  }[] = [
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
      say: 'and the other way round: our kernel knows',
      claims: { a: '10.42.0.0/26', b: '10.42.0.9/32' },
      elsewhere: '',
    },
    {
      say: 'an address inside the range of another goes to neither where nothing is confirmed',
      claims: { a: '10.42.0.0/26', b: '10.42.1.0/26', c: '10.42.1.9/32' },
      elsewhere: 'b:10.42.1.0/26',
      but: '10.42.1.9/32',
      nobody: '10.42.1.9/32=b,c',
    },
    {
      say: 'pods of another whose Node and word agree cannot be claimed, one by one or all at once',
      claims: { a: '10.42.0.0/24!', b: '10.42.1.0/24!', c: '10.42.2.0/24! 10.42.0.7/32 10.42.1.9/32 10.42.1.128/25' },
      elsewhere: 'b:10.42.1.0/24 c:10.42.2.0/24',
      refused: 'c:a:10.42.0.7/32*1 c:b:10.42.1.9/32*2',
    },
    {
      say: 'not even by a range around them',
      claims: { a: '10.42.0.0/24!', b: '10.42.1.0/24!', c: 'spec 10.42.0.0/16' },
      elsewhere: 'c:10.42.0.0/16 b:10.42.1.0/24',
      but: '10.42.0.0/24',
      refused: 'c:a:10.42.0.0/24*1 c:b:10.42.1.0/24*1',
    },
    {
      say: 'what a node tells beside its own is not confirmed by that',
      claims: { a: '10.42.0.0/24!', b: '10.42.2.0/23 10.42.2.0/24!', c: '10.42.3.0/24!' },
      elsewhere: 'b:10.42.2.0/23 c:10.42.3.0/24',
      refused: 'b:c:10.42.3.0/24*1',
    },
    {
      say: 'a range around those of nodes whose CNI keeps its own books takes nothing',
      claims: { a: '10.42.0.0/26', b: '10.42.1.0/26', c: '10.42.0.0/16' },
      elsewhere: 'c:10.42.0.0/16',
      but: '10.42.0.0/26 10.42.1.0/26',
      nobody: '10.42.1.0/26=b,c',
    },
    {
      say: 'two Nodes with one range',
      claims: { a: '', b: '10.42.1.0/24!', c: '10.42.1.0/24!' },
      elsewhere: '',
      nobody: '10.42.1.0/24=b,c',
    },
    {
      say: 'the Node of one alone has a range, around those of nodes without: it takes none of theirs',
      claims: { a: '10.42.0.0/26', b: '10.42.1.0/26', c: '10.42.0.0/16!' },
      elsewhere: 'c:10.42.0.0/16',
      but: '10.42.0.0/26 10.42.1.0/26',
      nobody: '10.42.1.0/26=b,c',
    },
    {
      say: 'three deep',
      claims: { a: '10.42.0.0/24', b: '10.42.0.0/16 10.42.0.7/32' },
      elsewhere: 'b:10.42.0.0/16',
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
      nobody: '10.42.0.7/32=b,c,d',
    },
  ]
  for (const { say, claims, elsewhere, but = '', nobody = '', refused = '' } of rows) {
    const places = podPlaces(
      'a',
      Object.entries(claims).map(([node, text]) => ranges(node, text)),
    )
    t.equal(places.elsewhere.map(({ node, prefix }) => `${node}:${formatPrefix(prefix)}`).join(' '), elsewhere, say)
    t.equal(texts(places.exceptions), but, say)
    t.equal(places.contested.map((one) => `${formatPrefix(one.prefix)}=${one.nodes.join()}`).join(' '), nobody, say)
    const reported = places.refused.map(
      ({ node, owner, prefix, count }) => `${node}:${owner}:${formatPrefix(prefix)}*${count}`,
    )
    t.equal(reported.join(' '), refused, say)
  }
})

t.test('who of several has a prefix', async (t) => {
  const rows: [say: string, prefix: string, claims: Record<string, string>, owner: string | undefined][] = [
    ['the only one', '10.42.1.0/26', { b: '10.42.1.0/26' }, 'b'],
    ['the only one, confirmed', '10.42.1.0/24', { b: '10.42.1.0/24!' }, 'b'],
    ['none is confirmed', '10.42.1.0/26', { b: 'spec 10.42.1.0/26', c: 'spec 10.42.1.0/24' }, undefined],
    ['one is', '10.42.1.9/32', { b: '10.42.1.0/24!', c: 'spec 10.42.1.9/32' }, 'b'],
    ['in another prefix only', '10.42.1.9/32', { b: '10.42.2.0/24! 10.42.1.9/32', c: 'spec 10.42.1.0/24' }, undefined],
    ['in a part of it only', '10.42.0.0/16', { b: '10.42.0.0/16 10.42.1.0/24!', c: 'spec 10.42.0.0/16' }, undefined],
    ['both are', '10.42.1.0/24', { b: '10.42.1.0/24!', c: '10.42.0.0/16!' }, undefined],
    ['one of three', '10.42.1.9/32', { b: 'spec 10.42.1.9/32', c: 'spec 10.42.1.0/25', d: '10.42.1.0/24!' }, 'd'],
    ['the other Node has no range', '10.42.1.0/26', { b: '10.42.1.0/26', c: '10.42.0.0/16!' }, undefined],
    [
      'one of the others has none',
      '10.42.1.0/26',
      { b: '10.42.1.0/26', c: '10.42.0.0/16!', d: 'spec 10.42.1.0/26' },
      undefined,
    ],
    ['nobody', '10.42.1.0/26', {}, undefined],
  ]
  for (const [say, text, claims, owner] of rows) {
    const claimants = Object.entries(claims).map(([node, words]) => ranges(node, words))
    t.equal(ownerOf(parsePrefix(text), claimants), owner, say)
    t.equal(ownerOf(parsePrefix(text), claimants.toReversed()), owner, `${say}, in another order`)
  }
})

t.test('what a node says about itself', async (t) => {
  const podCIDRs = [parsePrefix('10.42.0.0/16')]
  const node = (spec: Node['spec']): Node => nodeObject('a', spec === undefined ? {} : { spec })
  const agent = (podRanges?: readonly string[]): RouteAgent => routeAgentObject('a', podRanges ? { podRanges } : {})
  const claim = (spec: Node['spec'], reported?: readonly string[]): NodeRanges =>
    nodeClaim(node(spec), reported === undefined ? undefined : agent(reported), podCIDRs)
  const claimed = (...said: Parameters<typeof claim>): string => texts(claim(...said).ranges)
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
  t.equal(claimed({ podCIDR: '10.42.1.0/24' }, ['10.42.1.0/32']), '10.42.1.0/24', 'its own address in it is no pod')
  const confirmed = (...said: Parameters<typeof claim>): string => texts(claim(...said).confirmed ?? [])
  t.equal(confirmed({ podCIDR: '10.42.1.0/24' }, ['10.42.0.0/23', '10.42.9.9/32']), '10.42.1.0/24')
  t.equal(confirmed({ podCIDR: '10.42.1.0/24' }, ['10.42.1.0/25']), '', 'a part of it does not hold')
  t.equal(confirmed({ podCIDR: '10.42.1.0/24' }), '', 'nobody has said that it holds')
  t.equal(confirmed({ podCIDR: '10.42.1.0/24' }, []), '')
  t.equal(confirmed(undefined, ['10.42.1.0/24']), '')
  t.equal(claim({ podCIDR: '10.42.1.0/24' }).hasSpec, true)
  t.equal(claim({ podCIDR: '10.99.0.0/24' }).hasSpec, false, 'a range of no cluster')
  t.equal(claim(undefined, ['10.42.1.0/24']).hasSpec, false)
  t.equal(
    reportedOtherRanges({ type: 'set', object: agent(['10.42.1.0/24']), previous: agent(['10.42.1.0/24']) }),
    false,
  )
  t.equal(reportedOtherRanges({ type: 'set', object: agent(['10.42.1.0/24']), previous: agent() }), true)
  t.equal(reportedOtherRanges({ type: 'removed' }), true)
})

t.test('each family is judged by itself', async (t) => {
  const claim = (podCIDR: string, podRanges: readonly string[]): string => {
    const {
      ranges: said,
      confirmed,
      hasSpec,
    } = nodeClaim(
      nodeObject('a', { spec: { podCIDRs: ['10.42.1.0/24', 'fd00:10:42:1::/64'] } }),
      routeAgentObject('a', { podRanges }),
      [parsePrefix(podCIDR)],
    )
    return `${texts(said)} confirmed ${texts(confirmed ?? [])} ${hasSpec}`
  }
  const early = ['10.42.1.0/24']
  t.equal(claim('10.42.0.0/16', early), '10.42.1.0/24 confirmed 10.42.1.0/24 true', 'a release that tells IPv4 alone')
  t.equal(claim('fd00:10:42::/48', early), 'fd00:10:42:1::/64 confirmed  true', 'has the word of its Node for IPv6')
  const both = ['10.42.1.0/24', 'fd00:10:42:7::/64']
  t.equal(claim('10.42.0.0/16', both), '10.42.1.0/24 confirmed 10.42.1.0/24 true')
  t.equal(claim('fd00:10:42::/48', both), 'fd00:10:42:7::/64 confirmed  true')
})

t.test('a node without pods takes none of another, whose CNI gave it a block of the same range', async (t) => {
  const podCIDRs = [parsePrefix('10.42.0.0/16')]
  const claim = (name: string, podCIDR: string, podRanges: readonly string[]): NodeRanges =>
    nodeClaim(nodeObject(name, { spec: { podCIDR } }), routeAgentObject(name, { podRanges }), podCIDRs)
  const b = claim('b', '10.42.2.0/24', ['10.42.1.64/26'])
  // Node a reports nothing, its own address, or the block that it happened to get (test/routeagent/fixtures).
  for (const reported of [[], ['10.42.1.0/32'], ['10.42.1.128/26']]) {
    const places = podPlaces('c', [claim('a', '10.42.1.0/24', reported), b])
    t.strictSame(places.refused, [], reported.join())
    t.strictSame(
      places.elsewhere.map(({ node, prefix: one }) => `${node} ${formatPrefix(one)}`),
      ['a 10.42.1.0/24'],
    )
    t.equal(texts(places.exceptions), '10.42.1.64/26', 'the main table decides')
  }
})

/** An address in the last byte of a network of either family. */
const address = fc
  .tuple(fc.constantFrom(parsePrefix('10.42.0.0/24'), parsePrefix('fd00:10:42::/120')), fc.nat(255))
  .map(([network, low]): Address => ({ family: network.family, value: network.value + BigInt(low) }))
const prefix = fc
  .tuple(address, fc.integer({ min: 0, max: 8 }))
  .map(([one, bits]) => prefixOf(one, addressBits(one.family) - bits))
const claims = fc.uniqueArray(
  fc.record({
    node: fc.constantFrom('a', 'b', 'c'),
    ranges: fc.array(prefix, { maxLength: 6 }),
    confirmed: fc.array(prefix, { maxLength: 2 }),
    hasSpec: fc.boolean(),
  }),
  { selector: (one) => one.node, maxLength: 3 },
)

/**
 * The owner by the simple rule, address by address: the only claimant, or of several the one whose claim is confirmed.
 */
function expectedOwner(address: Address, all: readonly NodeRanges[]): string | undefined {
  const holds = (list: readonly Prefix[] = []): boolean => list.some((one) => containsAddress(one, address))
  const confirmed = all.filter((claim) => holds(claim.confirmed))
  const claimants = all.filter((claim) => holds(claim.ranges) || holds(claim.confirmed))
  if (claimants.some(({ node }) => node === 'a')) return 'a'
  if (claimants.length === 1) return claimants[0]?.node
  return confirmed.length === 1 && claimants.every(({ hasSpec }) => hasSpec) ? confirmed[0]?.node : undefined
}

t.test('every address has its owner, in the routes and in the set', async (t) => {
  fc.assert(
    fc.property(claims, address, (all, value) => {
      const places = podPlaces('a', all)
      const routed = [
        ...places.elsewhere.map((one) => ({ ...one.prefix, node: one.node })),
        ...places.exceptions.map((one) => ({ ...one, node: undefined })),
      ]
        .filter((one) => containsAddress(one, value))
        .sort((x, y) => y.length - x.length)[0]?.node
      const owner = expectedOwner(value, all)
      const inSet = elsewherePrefixes(places).filter((one) => containsAddress(one, value)).length
      const away = owner !== undefined && owner !== 'a'
      return routed === (away ? owner : undefined) && inSet === (away ? 1 : 0)
    }),
    { numRuns: 2000 },
  )
  t.end()
})

t.test('where all Nodes have ranges, nobody gets what is confirmed of another, whatever it claims', async (t) => {
  fc.assert(
    fc.property(
      fc.array(prefix, { maxLength: 8 }),
      fc.array(prefix, { maxLength: 3 }),
      address,
      (greed, own, value) => {
        const inside = (list: readonly Prefix[]): boolean => list.some((one) => containsAddress(one, value))
        if (!inside(own)) return true
        const { elsewhere, exceptions } = podPlaces('a', [
          { node: 'b', ranges: own, confirmed: own, hasSpec: true },
          { node: 'c', ranges: greed, hasSpec: true },
        ])
        const meant = [
          ...elsewhere.map(({ node, prefix: one }) => ({ node, one })),
          ...exceptions.map((one) => ({ one, node: '' })),
        ]
          .filter(({ one }) => inside([one]))
          .sort((x, y) => y.one.length - x.one.length)[0]
        return meant?.node === 'b'
      },
    ),
    { numRuns: 2000 },
  )
  t.end()
})
