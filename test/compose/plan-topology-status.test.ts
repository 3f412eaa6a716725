/** What an object Topology says of itself, by what the broker made of it. */
import t from 'tap'
import { type TopologyOutcome, planTopologyStatus } from '../../compose/broker/plan-topology-status.ts'
import type { TopologyObject } from '../../model/objects.ts'

const OBJECT: TopologyObject = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Topology',
  metadata: { name: 'default', generation: 3 },
  spec: { mode: 'full' },
}
const STAYS = 'the topology that counted before stays'

const ROWS: readonly (readonly [TopologyOutcome, readonly string[]])[] = [
  [
    { t: 'applied', number: 7 },
    ['Accepted True TopologyAccepted ', 'Applied True TopologyApplied change 7 of the topology at the broker'],
  ],
  [
    { t: 'refused', reason: 'TopologyInvalid', message: 'hubs: expected none with mode full' },
    ['Accepted False TopologyInvalid hubs: expected none with mode full', `Applied False TopologyInvalid ${STAYS}`],
  ],
  [
    { t: 'refused', reason: 'TopologyNotSupported', message: 'mode: expected full' },
    ['Accepted True TopologyAccepted ', `Applied False TopologyNotSupported mode: expected full; ${STAYS}`],
  ],
  [
    { t: 'refused', reason: 'TopologyNotFollowed', message: 'none is followed' },
    ['Accepted True TopologyAccepted ', `Applied False TopologyNotFollowed none is followed; ${STAYS}`],
  ],
  [
    { t: 'ignored' },
    [
      'Accepted False TopologyNameUnknown metadata.name: expected default',
      'Applied False TopologyNameUnknown metadata.name: expected default',
    ],
  ],
]

t.test('conditions by outcome, each once', async (t) => {
  for (const [outcome, want] of ROWS) {
    const planned = planTopologyStatus(OBJECT, outcome, 0)
    const conditions = planned?.status?.conditions ?? []
    t.same(
      conditions.map(({ type, status, reason, message }) => `${type} ${status} ${reason} ${message}`),
      want,
    )
    t.same(new Set(conditions.map(({ observedGeneration }) => observedGeneration)), new Set([3]))
    t.equal(planTopologyStatus(planned ?? OBJECT, outcome, 60_000), undefined, 'the second round writes nothing')
    for (const [other] of ROWS) {
      const next = planTopologyStatus(planned ?? OBJECT, other, 60_000)
      t.equal(next === undefined, other === outcome, `${outcome.t} to ${other.t}`)
      t.equal(next?.status?.conditions?.length ?? 2, 2, 'nothing is left of the former')
    }
  }
})
