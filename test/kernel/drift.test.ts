/** How repairs are told from changes of the plan, and changes by others from our own. */
import t from 'tap'
import { Drift } from '../../kernel/drift.ts'
import { ReportRateLimiter, changeOf } from '../../kernel/nft/nft-watch.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'

function stage() {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const metrics = createMetrics('test')
  const repairs = metrics.counter({ name: 'sealane_test_total', help: 'x', labels: ['what', 'reason'] })
  return { clock, logger, metrics, drift: new Drift({ clock, logger, repairs }) }
}

t.test('only what was there before is a repair', async (t) => {
  const { drift } = stage()
  t.strictSame(drift.had('route', ['a']), [], 'a first round repairs nothing')
  t.strictSame(drift.neverHad('route', ['x']), [], 'and what an earlier process left is no stranger')
  drift.settle('route', ['a', 'b'])
  t.strictSame(drift.had('route', ['a', 'c']), ['a'], 'c is new in the plan')
  t.strictSame(drift.neverHad('route', ['b', 'x']), ['x'], 'b was ours, the plan no longer wants it')
  drift.forget('route')
  t.strictSame(drift.had('route', ['a']), [], 'what went by our own hand is made anew in silence')
})

t.test('each is counted, and the log is bounded', async (t) => {
  const { drift, logger, metrics, clock } = stage()
  drift.repaired('rule', 'Missing', [])
  t.equal(logger.lines.length, 0, 'nothing to tell')
  for (let i = 0; i < 20; i++) drift.repaired('rule', 'Missing', Array<string>(100).fill('r'.repeat(999)))
  t.equal(logger.lines.length, 5, 'so many lines in ten seconds')
  const { items, count } = logger.lines[0]?.fields as { items: string[]; count: number }
  t.strictSame([items.length, items[0]?.length, count], [8, 200, 100])
  t.match(await metrics.text(), /sealane_test_total\{.*what="rule".*\} 20|sealane_test_total\{.*\} 20/)
  drift.repaired('route', 'Foreign', ['x'])
  t.equal(logger.lines.length, 6, 'other kinds have lines of their own')
  await clock.advance(10_000)
  drift.repaired('rule', 'Missing', ['r'])
  t.equal(logger.lines.length, 7, 'and later there are lines again')
})

t.test('notifications of nftables', async (t) => {
  const named = (family: number, name: string): Buffer => {
    const value = Buffer.from(`${name}\0`)
    const attribute = Buffer.alloc(4 + Math.ceil(value.length / 4) * 4)
    attribute.writeUInt16LE(4 + value.length, 0)
    attribute.writeUInt16LE(1, 2)
    value.copy(attribute, 4)
    return Buffer.concat([Buffer.from([family, 0, 0, 0]), attribute])
  }
  const rows = [
    ['a chain of ours went', 0xa05, named(2, 'sealane_node'), 'structure'],
    ['our table went', 0xa02, named(2, 'sealane_node'), 'gone'],
    ['an element of ours came', 0xa0c, named(2, 'sealane_node'), 'elements'],
    ['a table of the other family', 0xa02, named(10, 'sealane_node'), undefined],
    ["somebody else's table", 0xa02, named(2, 'sealane_nodes'), undefined],
    ['the end of a transaction', 0xa0f, named(2, 'sealane_node'), undefined],
    ['another subsystem', 0x105, named(2, 'sealane_node'), undefined],
    ['too short', 0xa05, Buffer.from([2]), undefined],
  ] as const
  for (const [say, type, data, want] of rows) t.equal(changeOf({ type, data }, 'ip', 'sealane_node'), want, say)
})

t.test(
  'who goes on changing our table is answered ever more slowly, and at once again after a quiet time',
  async (t) => {
    const clock = new FakeClock()
    const pace = new ReportRateLimiter(clock)
    const waits: number[] = []
    for (let i = 0; i < 8; i += 1) {
      const waitMs = pace.waitMs()
      waits.push(waitMs)
      await clock.advance(waitMs)
      pace.reported()
    }
    t.strictSame(waits, [0, 0, 100, 200, 400, 800, 1000, 1000])
    await clock.advance(2000)
    t.equal(pace.waitMs(), 0)
    pace.reported()
    t.equal(pace.waitMs(), 0, 'also the one after it')
  },
)
