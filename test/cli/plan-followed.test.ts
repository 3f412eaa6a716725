/** Which machines follow the packets of a probe, and that those which do not are named. */
import fc from 'fast-check'
import t from 'tap'
import { planFollowed, unnamedSides } from '../../cli/status/path/plan-followed.ts'
import { explained } from '../explain/path/two-members.ts'

const pod = (node: string) => ({ node, pod: `agent-${node}` })
const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `w${i}`)
const FAR = { cluster: 'paris', isFar: true, sender: undefined, steps: [] } as const

/** The nodes that follow, and what is said of the others. */
function planned(init: Partial<Parameters<typeof planFollowed>[0]>): readonly string[] {
  const { followed, notAsked } = planFollowed({ ...FAR, pods: [], nodes: [], ...init })
  return [...followed.map(({ node }) => node), ...notAsked.map(({ place, why }) => `${place.source} (${why})`)]
}

t.test('all machines, or the names of those that are not asked', async (t) => {
  t.same(planned({ pods: names(3).map(pod), nodes: names(3) }), ['w0', 'w1', 'w2'])
  t.same(planned({ pods: names(3).map(pod), nodes: names(3), sender: 'w1' }), ['w0', 'w2'])
  t.same(planned({ pods: names(10).map(pod), nodes: names(10) }), [
    ...names(8),
    '2 more nodes: w8, w9 (the limit is 8 of a cluster)',
  ])
  t.same(planned({ pods: [pod('w0')], nodes: ['w0', 'a', 'b', 'c', 'd\u001b'] }), [
    'w0',
    '4 nodes: a, b, c and others (no route agent runs there)',
  ])
  t.same(planned({ pods: [pod('w0')], nodes: 'forbidden' }), ['w0', 'nodes without a route agent (forbidden)'])
})

t.test('gateways on the way are not crowded out', async (t) => {
  const [step] = explained().steps
  if (step === undefined) throw new Error('no step')
  const at = { ...step, cluster: 'paris' }
  const steps = [
    { ...at, station: 'far-pod' as const, node: names(9).join(', ') },
    { ...at, station: 'far-gateway' as const, node: 'gw1' },
  ]
  const seen = planned({ pods: [...names(12), 'gw0', 'gw1'].map(pod), steps })
  t.equal(seen[0], 'gw1')
  t.same(seen.slice(1, 8), names(7))
})

t.test('each node follows or is counted', async (t) => {
  const nodes = fc.uniqueArray(fc.constantFrom(...names(20)))
  fc.assert(
    fc.property(nodes, nodes, (all, running) => {
      const { followed, notAsked } = planFollowed({ ...FAR, pods: running.map(pod), nodes: all })
      const counted = notAsked.map(({ place }) => Number(/^\d+/.exec(place.source)?.[0] ?? 0))
      const sum = counted.reduce((one, other) => one + other, followed.length)
      if (followed.length > 8 || sum !== new Set([...all, ...running]).size) throw new Error(`${sum}`)
    }),
  )
  t.pass()
})

t.test('clusters that no option has named', async (t) => {
  const clusterOf = new Map([
    ...([
      ['10.0.0.1', 'paris'],
      ['10.0.0.2', 'torino'],
      ['10.0.0.3', 'milano'],
    ] as const),
  ])
  const of = (asked: readonly string[]) =>
    unnamedSides({ clusterOf }, 'milano', asked).map(({ place }) => place.cluster)
  t.same(of([]), ['paris', 'torino'])
  t.same(of(['paris']), ['torino'], 'another one was named')
  t.same(of(['torino', 'paris']), [])
  const many = new Map(names(12).map((name) => [name, name]))
  const unnamed = unnamedSides({ clusterOf: many }, 'milano', [])
  t.equal(unnamed.length, 9)
  t.match(unnamed.at(-1), { place: { source: '4 more clusters' } })
})
