/** The addresses of other clusters that a policy would have to allow. */
import t from 'tap'
import { otherRanges, rangesText } from '../../../explain/packet-filter/network-policy.ts'
import type { World } from '../../../explain/facts/world.ts'
import type { ClusterSpec } from '../../../model/objects.ts'

function world(...specs: readonly Partial<ClusterSpec>[]): World {
  const Cluster = specs.map((spec) => ({ object: { spec: { podCIDRs: [], globalCIDRs: [], ...spec } } }))
  return { self: 'milano', objects: { Cluster } } as unknown as World
}

t.test('those of the others, of the families of pods here', async (t) => {
  const dual = ['10.52.0.0/16', 'fd52::/48']
  const paris = { id: 'paris', podCIDRs: dual }
  const rows: readonly (readonly [name: string, world: World, want: string])[] = [
    ['IPv4 here', world({ id: 'milano', podCIDRs: ['10.42.0.0/16'] }, paris), '10.52.0.0/16 (paris)'],
    [
      'both here',
      world({ id: 'milano', podCIDRs: ['10.42.0.0/16', 'fd42::/48'] }, paris),
      '10.52.0.0/16 (paris), fd52::/48 (paris)',
    ],
    ['not known here yet', world(paris), '10.52.0.0/16 (paris)'],
    [
      'global addresses there',
      world({ id: 'milano' }, { id: 'tokyo', podCIDRs: ['10.42.0.0/16'], globalCIDRs: ['244.7.0.0/16'] }),
      '244.7.0.0/16 (tokyo)',
    ],
    ['no CIDR', world({ id: 'milano' }, { id: 'oslo', podCIDRs: ['x'] }, paris), '10.52.0.0/16 (paris)'],
    ['no CIDR here', world({ id: 'milano', podCIDRs: ['x'] }, paris), ''],
    ['nobody else', world({ id: 'milano', podCIDRs: dual }), ''],
  ]
  for (const [name, given, want] of rows) t.equal(rangesText(otherRanges(given)), want, name)
})
