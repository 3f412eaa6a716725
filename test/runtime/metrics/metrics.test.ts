import t from 'tap'
import { createMetrics, lintMetric } from '../../../runtime/metrics/prometheus-metrics.ts'

t.test('counts, in the exposition format, with the component on every series', async (t) => {
  const metrics = createMetrics('gateway')
  const probes = metrics.counter({ name: 'sealane_gateway_probes_total', help: 'Probes sent.', labels: ['lane'] })
  probes.inc({ lane: '0' })
  probes.inc({ lane: '0' }, 2)
  const lanes = metrics.gauge({ name: 'sealane_gateway_lanes', help: 'Lanes.', labels: ['state'] })
  lanes.set(3, { state: 'up' })
  lanes.reset()
  lanes.set(1, { state: 'down' })
  const rtt = metrics.histogram({ name: 'sealane_gateway_rtt_seconds', help: 'Round trips.', buckets: [0.01, 0.1] })
  rtt.observe(0.05)
  const text = await metrics.text()
  t.match(text, 'sealane_gateway_probes_total{lane="0",component="gateway"} 3')
  t.match(text, 'sealane_gateway_lanes{state="down",component="gateway"} 1')
  t.notMatch(text, 'state="up"')
  t.match(text, 'sealane_gateway_rtt_seconds_bucket{le="0.1",component="gateway"} 1')
  t.match(text, /process_resident_memory_bytes\{component="gateway"\} \d{7,}/)
})

t.test('registries are private; a second declaration gives the first metric', async (t) => {
  const init = { name: 'sealane_dns_queries_total', help: 'Queries.' }
  const one = createMetrics('dns')
  one.counter(init).inc()
  one.counter(init).inc()
  t.match(await one.text(), 'sealane_dns_queries_total{component="dns"} 2')
  t.match(await createMetrics('dns').text(), /^(?!.*queries)/s)
  t.throws(() => one.counter({ ...init, labels: ['zone'] }), { message: /declared twice/ })
  t.same(one.describe(), [{ name: 'sealane_dns_queries_total', type: 'counter', help: 'Queries.', labels: [] }])
})

t.test('lint', async (t) => {
  const rows = [
    { type: 'counter', name: 'sealane_x_total', want: undefined },
    { type: 'gauge', name: 'sealane_build_info', want: undefined },
    { type: 'counter', name: 'sealane_x', want: 'expected a counter to end in _total' },
    { type: 'gauge', name: 'sealane_x_total', want: 'expected only counters to end in _total, this is a gauge' },
    { type: 'gauge', name: 'lanes', want: 'expected sealane_ and then lower-case words joined by _' },
    { type: 'gauge', name: 'sealane_Lanes', want: 'expected sealane_ and then lower-case words joined by _' },
    { type: 'histogram', name: 'sealane_rtt_ms', want: 'expected the base unit seconds instead of ms' },
    {
      type: 'gauge',
      name: 'sealane_queue_count',
      want: 'expected no _count at the end: the exposition format uses it',
    },
    { type: 'gauge', name: 'sealane_x', help: ' ', want: 'expected a help text' },
    {
      type: 'gauge',
      name: 'sealane_x',
      labels: ['le'],
      want: 'label le: expected lower-case words, not le or component',
    },
  ] as const
  for (const row of rows) {
    const init = { help: 'Help.', labels: [], ...row }
    t.equal(lintMetric(row.type, init), row.want, row.name)
  }
  t.throws(() => createMetrics('x').gauge({ name: 'lanes', help: 'x' }), {
    message: /^metric lanes: expected sealane_/,
  })
})
