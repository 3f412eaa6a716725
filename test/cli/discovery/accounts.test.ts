/** The full description of each kind of cluster. */
import t from 'tap'
import { advice } from '../../../cli/discovery/advice/advice.ts'
import { describeAdvice, describeDiscovery } from '../../../cli/discovery/describe.ts'
import { discover } from '../../../cli/discovery/discover.ts'
import { FIXTURES, fixture } from './support/fixtures.ts'
import { equalsGolden } from '../../support/golden.ts'

for (const name of FIXTURES) {
  t.test(name, async (t) => {
    const discovery = discover(fixture(name))
    const lines = [...describeDiscovery(discovery), '', ...describeAdvice(advice(discovery), { all: true })]
    equalsGolden(t, `${lines.join('\n')}\n`, `discovery/${name}.txt`)
    t.ok(
      lines.every((line) => !/[\n\r]/.test(line)),
      'lines are lines',
    )
  })
}
