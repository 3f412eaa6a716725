import tap from 'tap'
import type { LaneState } from '../../../gateway/cable/cable-driver.ts'
import { type LanePlan, isMade } from '../../../gateway/links/plan-lanes.ts'

const plan = (remoteLane: number, port: number, clusters: readonly string[] = ['paris']): LanePlan =>
  ({ remoteLane, port, links: clusters.map((cluster) => ({ cluster, remoteLane })) }) as unknown as LanePlan
const state = (port?: number): LaneState => ({
  identity: 'k',
  links: new Map(),
  ...(port === undefined ? {} : { port }),
})

const rows: readonly {
  readonly name: string
  readonly lanes: readonly LanePlan[]
  readonly states: readonly (readonly [number, LaneState])[]
  readonly want: boolean
}[] = [
  { name: 'nothing is due', lanes: [], states: [], want: true },
  { name: 'one is due and there', lanes: [plan(0, 4500)], states: [[0, state(4500)]], want: true },
  { name: 'a cable without ports of its own', lanes: [plan(0, 4500)], states: [[0, state()]], want: true },
  { name: 'one is due, none is there', lanes: [plan(0, 4500)], states: [], want: false },
  { name: 'it listens elsewhere', lanes: [plan(0, 4500)], states: [[0, state(0)]], want: false },
  {
    name: 'one of three is there',
    lanes: [plan(0, 4500), plan(1, 4510), plan(2, 4520)],
    states: [
      [0, state(0)],
      [2, state(4520)],
    ],
    want: true,
  },
  { name: 'only one that is not due is there', lanes: [plan(1, 4510)], states: [[0, state(4500)]], want: false },
  {
    name: 'paris is reached by another one, tokyo is not',
    lanes: [plan(0, 4500, ['paris', 'tokyo']), plan(1, 4501)],
    states: [
      [0, state(0)],
      [1, state(4501)],
    ],
    want: false,
  },
  {
    name: 'both are reached by another one',
    lanes: [plan(0, 4500, ['paris', 'tokyo']), plan(1, 4501, ['tokyo', 'paris'])],
    states: [
      [0, state(0)],
      [1, state(4501)],
    ],
    want: true,
  },
]
for (const { name, lanes, states, want } of rows) {
  tap.test(name, (t) => {
    t.equal(isMade(lanes, new Map(states)), want)
    t.end()
  })
}
