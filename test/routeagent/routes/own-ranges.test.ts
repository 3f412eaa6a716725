/**
 * The ranges of a node's pods, by what CNIs leave in its kernel: listings as `ip` prints them, with the expected
 * ranges.
 */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import type { InterfaceAddress, Link, MainRoute } from '../../../kernel/route/route-table.ts'
import {
  type Family,
  type Prefix,
  addressBits,
  containsPrefix,
  formatPrefix,
  parsePrefix,
  prefixOf,
  prefixSize,
} from '../../../model/values/ip.ts'
import { MAX_POD_RANGES } from '../../../model/values/limits.ts'
import { ownRanges, rangeTexts } from '../../../routeagent/world/plan-own-ranges.ts'

const FIXTURES = join(import.meta.dirname, '..', 'fixtures')

interface Fixture {
  readonly podCIDRs: readonly Prefix[]
  readonly spec: readonly Prefix[]
  readonly underlay: string
  readonly facts: Parameters<typeof ownRanges>[0]['facts']
  readonly ranges: string
  readonly scattered: boolean
}

function readFixture(text: string): Fixture {
  const sections = new Map<string, string[]>([['', []]])
  let current = ''
  for (const line of text.split('\n').filter((one) => one.trim() !== '' && !one.startsWith('#'))) {
    if (line.startsWith('$ ')) sections.set((current = line.slice(2)), [])
    else if (/^(ranges|scattered)/.test(line)) sections.get('')?.push(line)
    else sections.get(current)?.push(line)
  }
  const said = (word: string): string[] => {
    const line = sections.get('')?.find((one) => one.split(' ')[0] === word)
    return line?.split(' ').slice(1) ?? []
  }
  const section = (...names: string[]): string[] => names.flatMap((name) => sections.get(name) ?? [])
  const addresses = section('ip -4 -br address', 'ip -6 -br address').map(readAddress)
  const internal = said('internal')[0] ?? ''
  return {
    podCIDRs: said('cluster').map((one) => parsePrefix(one)),
    spec: said('spec').map((one) => parsePrefix(one)),
    underlay: addresses.find((entry) => entry.address.startsWith(`${internal}/`))?.device ?? '',
    facts: {
      links: section('ip -d -br link').map(readLink),
      addresses,
      mainRoutes: [
        ...section('ip route').map((line) => readRoute(line, 4)),
        ...section('ip -6 route').map((line) => readRoute(line, 6)),
      ],
      bridgeNetfilter: '1',
    },
    ranges: said('ranges').join(' '),
    scattered: sections.get('')?.includes('scattered') === true,
  }
}

function readLink(line: string, index: number): Link {
  const [name = '', kind = ''] = line.split(' ')
  return { name: name.split('@')[0] ?? '', index, kind, mtu: 1500, up: true, mac: '' }
}

function readAddress(line: string): InterfaceAddress {
  const [device = '', address = ''] = line.split(' ')
  return { device: device.split('@')[0] ?? '', address }
}

function readRoute(line: string, family: Family): MainRoute {
  const words = line.split(' ')
  const after = (word: string): string | undefined =>
    words.includes(word) ? words[words.indexOf(word) + 1] : undefined
  const blackhole = words[0] === 'blackhole'
  const to = words[blackhole ? 1 : 0] ?? ''
  const [device, via] = [after('dev'), after('via')]
  return {
    destination: to === 'default' ? (family === 4 ? '0.0.0.0/0' : '::/0') : whole(to, family),
    type: blackhole ? 'blackhole' : 'unicast',
    ...(device === undefined ? {} : { device }),
    ...(via === undefined ? {} : { via }),
  }
}

function whole(to: string, family: Family): string {
  return to.includes('/') ? to : `${to}/${addressBits(family)}`
}

for (const file of readdirSync(FIXTURES)) {
  t.test(file, async (t) => {
    const fixture = readFixture(readFileSync(join(FIXTURES, file), 'utf8'))
    t.not(fixture.underlay, '', 'the node has its InternalIP')
    const found = ownRanges(fixture)
    t.equal(rangeTexts(found.ranges).join(' '), fixture.ranges)
    t.equal(found.scattered, fixture.scattered)
    t.equal(found.cut, 0)
  })
}

t.test('too many are cut, the widest stay', async (t) => {
  const pods = Array.from({ length: 2 * MAX_POD_RANGES }, (_, i): MainRoute => ({
    destination: `10.42.${(2 * i) >> 8}.${(2 * i) & 255}/32`,
    type: 'unicast',
    device: 'eni0',
  }))
  const found = ownRanges({
    facts: {
      links: [{ name: 'eni0', index: 2, kind: 'veth', mtu: 1500, up: true, mac: '' }],
      addresses: [],
      mainRoutes: [...pods, { destination: '10.42.200.0/26', type: 'blackhole' }],
      bridgeNetfilter: undefined,
    },
    spec: [],
    podCIDRs: [parsePrefix('10.42.0.0/16')],
    underlay: 'eth0',
  })
  t.equal(found.ranges.length, MAX_POD_RANGES)
  t.equal(found.cut, MAX_POD_RANGES + 1)
  t.ok(rangeTexts(found.ranges).includes('10.42.200.0/26'))
})

const NETWORKS = [parsePrefix('10.42.0.0/16'), parsePrefix('fd00:10:42::/112')]
const prefix = fc
  .tuple(fc.constantFrom(...NETWORKS), fc.nat(0xffff), fc.integer({ min: 0, max: 24 }))
  .map(([{ family, value }, low, bits]) => prefixOf({ family, value: value + BigInt(low) }, addressBits(family) - bits))
const route = fc.record({
  destination: prefix.map(formatPrefix),
  type: fc.constantFrom('unicast' as const, 'blackhole' as const, 'other' as const),
  device: fc.constantFrom('eth0', 'cni0', 'veth0', 'none'),
})

t.test('whatever the kernel holds, ranges lie inside the pod CIDRs, sorted and disjoint', async (t) => {
  const families = [
    [parsePrefix('10.42.0.0/17'), parsePrefix('10.42.192.0/20')],
    [parsePrefix('fd00:10:42::/113'), parsePrefix('fd00:10:42::c000/116')],
  ]
  fc.assert(
    fc.property(
      fc.constantFrom(...families),
      fc.array(route),
      fc.array(prefix),
      fc.array(prefix),
      (podCIDRs, routes, addresses, spec) => {
        const facts = {
          links: ['eth0', 'cni0', 'veth0'].map((name, index): Link => {
            const kind = { eth0: '', cni0: 'bridge', veth0: 'veth' }[name] ?? ''
            return { name, index, kind, mtu: 1500, up: true, mac: '' }
          }),
          addresses: addresses.map((one) => ({ device: 'cni0', address: formatPrefix(one) })),
          mainRoutes: routes.filter((one) => one.type === 'unicast').concat(routes),
          bridgeNetfilter: undefined,
        }
        const inside = spec.filter((one) => podCIDRs.some((cidr) => containsPrefix(cidr, one)))
        const { ranges } = ownRanges({ facts, spec: inside, podCIDRs, underlay: 'eth0' })
        const ends = ranges.map((one) => one.value + prefixSize(one))
        return (
          ranges.every((one) => podCIDRs.some((cidr) => containsPrefix(cidr, one))) &&
          ranges.every((one, i) => i === 0 || one.value >= (ends[i - 1] ?? 0n))
        )
      },
    ),
  )
  t.end()
})
