import t from 'tap'
import { DropCounts } from '../../../gateway/nft/drop-counts.ts'
import { gatewayMetrics } from '../../../gateway/world/metrics.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'

const TABLE = 'sealane_gateway'
const COUNTER = 'dropped-in-no-pod'
const signal = new AbortController().signal

t.test('what the kernel drops is seen in the metrics, over replaced tables', async (t) => {
  const nft = new FakeNft()
  const clock = new FakeClock()
  const registry = createMetrics('gateway')
  const nft6 = new FakeNft({ family: 'ip6' })
  let nfts = [nft]
  const drops = new DropCounts({ nfts: () => nfts, clock, metrics: gatewayMetrics(registry) })
  const shown = async (): Promise<string | undefined> =>
    /^sealane_gateway_packets_dropped_total\{reason="in-no-pod",.*\} (\d+)$/m.exec(await registry.text())?.[1]
  const make = (family = nft): Promise<void> =>
    family.run([
      { verb: 'add-table', table: TABLE },
      { verb: 'delete-table', table: TABLE },
      { verb: 'add-table', table: TABLE },
      { verb: 'add-counter', table: TABLE, counter: COUNTER },
    ])
  t.equal(await shown(), '0', 'there from the start')
  await t.rejects(drops.look(signal), { code: 'ENOENT' }, 'no table yet')
  await make()
  const steps: { say: string; act: () => unknown; want: string }[] = [
    { say: 'five packets', act: () => nft.count(TABLE, COUNTER, 5), want: '5' },
    { say: 'two more', act: () => nft.count(TABLE, COUNTER, 2), want: '7' },
    { say: 'a new table', act: () => make(), want: '7' },
    { say: 'and one packet', act: () => nft.count(TABLE, COUNTER, 1), want: '8' },
  ]
  for (const { say, act, want } of steps) {
    await clock.advance(10_000)
    await act()
    await drops.look(signal)
    t.equal(await shown(), want, say)
  }
  nfts = [nft, nft6]
  await make(nft6)
  nft6.count(TABLE, COUNTER, 3)
  await clock.advance(10_000)
  await drops.look(signal)
  t.equal(await shown(), '11', 'what IPv6 drops is added')
  nft.count(TABLE, COUNTER, 1)
  await drops.look(signal)
  t.equal(await shown(), '11', 'not looked at more often than every ten seconds')
})
