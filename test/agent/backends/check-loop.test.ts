/** The loop that checks backends, with a clock of the test and checks that the test answers. */
import t, { type Test } from 'tap'
import { BackendCheckLoop, MAX_CHECKS_AT_ONCE } from '../../../agent/backends/check-loop.ts'
import type { CheckResult } from '../../../agent/backends/check-backend.ts'
import { agentConfig } from '../../../agent/loop/config.ts'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../agent/loop/mirror-writer.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { EndpointSlice } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { sliceObject } from '../../support/objects/service-objects.ts'

class Bench {
  readonly clock = new FakeClock()
  readonly api: MemoryApi
  readonly logger = new CapturingLogger()
  metrics = createMetrics('agent')
  /** What the backend at an address answers; a pending one never does. */
  readonly answers = new Map<string, 'up' | 'down' | 'pending' | 'not run'>()
  readonly asked: string[] = []
  atOnce = 0
  mostAtOnce = 0
  #stop = new AbortController()
  #run: Promise<void> = Promise.resolve()

  constructor(t: Test, api = new MemoryApi()) {
    this.api = api
    t.teardown(() => this.stop())
  }

  start(): void {
    this.#stop = new AbortController()
    this.metrics = createMetrics('agent')
    const parts = { api: this.api, clock: this.clock, logger: this.logger, metrics: agentMetrics(this.metrics) }
    const writer = new MirrorWriter(parts)
    const deps = { ...parts, writer, registry: this.metrics, check: this.#check.bind(this) }
    this.#run = new BackendCheckLoop(deps, agentConfig('unused')).run(this.#stop.signal)
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#run
  }

  #check({ address, port }: { address: string; port: number }, signal: AbortSignal): Promise<CheckResult> {
    this.asked.push(`${address}:${port}`)
    this.atOnce += 1
    this.mostAtOnce = Math.max(this.mostAtOnce, this.atOnce)
    return new Promise((resolve) => {
      const end = (result: CheckResult): void => {
        this.atOnce -= 1
        resolve(result)
      }
      const answer = this.answers.get(address) ?? 'up'
      if (answer === 'pending') signal.addEventListener('abort', () => end(undefined), { once: true })
      else if (answer === 'not run') end(undefined)
      else end(answer === 'up' ? { passed: true } : { passed: false, message: 'connection refused' })
    })
  }

  /** The endpoints as every part of the site sees them: `10.42.0.1 !10.42.0.2`. */
  shown(name = 'web-1'): string {
    const endpoints = this.api.get('EndpointSlice', name, 'shop')?.endpoints ?? []
    return endpoints.map((one) => `${one.conditions?.ready === false ? '!' : ''}${one.addresses.join()}`).join(' ')
  }

  health(name = 'web-1'): string {
    const { backends = [] } = this.api.get('EndpointSlice', name, 'shop')?.status ?? {}
    return backends.map(({ address, up }) => `${address} ${up ? 'up' : 'down'}`).join(', ')
  }

  async gauge(state: string): Promise<number> {
    const line = (await this.metrics.text())
      .split('\n')
      .find((one) => one.startsWith('sealane_agent_backends{') && one.includes(`"${state}"`))
    return Number(line?.split(' ').at(-1) ?? NaN)
  }
}

function slice(addresses: readonly string[], check: string | undefined = 'tcp', name = 'web-1'): EndpointSlice {
  const annotations = check === '' ? {} : { annotations: { 'sealane.io/check': check } }
  const parts = { ports: [{ port: 8080 }], endpoints: addresses.map((address) => ({ addresses: [address] })) }
  return sliceObject({ name, labels: { 'kubernetes.io/service-name': 'web' }, ...annotations }, parts)
}

t.test('a backend that dies is not ready within its interval, and ready again with one success', async (t) => {
  const bench = new Bench(t)
  bench.api.put(slice(['10.42.0.1', '10.42.0.2']))
  bench.start()
  await bench.clock.advance(2100)
  t.equal(bench.shown(), '10.42.0.1 10.42.0.2')
  t.equal(bench.health(), '10.42.0.1 up, 10.42.0.2 up')
  t.equal(await bench.gauge('up'), 2)
  bench.answers.set('10.42.0.2', 'down')
  const asked = (): number => bench.asked.filter((one) => one === '10.42.0.2:8080').length
  const before = asked()
  for (let ms = 0; ms < 2000 && asked() === before; ms += 20) await bench.clock.advance(20)
  await bench.clock.advance(100)
  t.equal(bench.shown(), '10.42.0.1 10.42.0.2', 'one failure is not enough')
  await bench.clock.advance(200)
  t.equal(asked() - before, 2, 'the first failure is confirmed at once')
  t.equal(bench.shown(), '10.42.0.1 !10.42.0.2')
  t.equal(await bench.gauge('down'), 1)
  t.match(bench.logger.lines, [{ message: 'a backend is down' }], 'one line')
  const writes = bench.api.writes.length
  await bench.clock.advance(60_000)
  t.equal(bench.api.writes.length, writes, 'a state that stays is not written again')
  bench.answers.set('10.42.0.2', 'up')
  await bench.clock.advance(2100)
  t.equal(bench.shown(), '10.42.0.1 10.42.0.2')
  t.match(bench.logger.lines.at(-1), { message: 'a backend is up again' })
})

t.test('one early check only: more failures take an interval each', async (t) => {
  const bench = new Bench(t)
  bench.api.put(slice(['10.42.0.2'], 'tcp fall=4'))
  bench.start()
  await bench.clock.advance(2100)
  bench.answers.set('10.42.0.2', 'down')
  await bench.clock.advance(4200)
  t.equal(bench.shown(), '10.42.0.2')
  await bench.clock.advance(2300)
  t.equal(bench.shown(), '!10.42.0.2')
})

t.test('a restart keeps what is known: no state changes before new results', async (t) => {
  const bench = new Bench(t)
  bench.api.put(slice(['10.42.0.1', '10.42.0.2']))
  bench.answers.set('10.42.0.2', 'down')
  bench.start()
  await bench.clock.advance(5000)
  t.equal(bench.shown(), '10.42.0.1 !10.42.0.2')
  await bench.stop()
  t.equal(bench.shown(), '10.42.0.1 !10.42.0.2', 'a stopped agent removes nothing')
  await bench.clock.advance(600_000)
  bench.answers.set('10.42.0.1', 'pending').set('10.42.0.2', 'pending')
  bench.start()
  await bench.clock.advance(10_000)
  t.equal(bench.shown(), '10.42.0.1 !10.42.0.2', 'no result, no change')
  t.equal(await bench.gauge('down'), 1)
})

t.test('this machine cannot check: nothing is said about the backend', async (t) => {
  const bench = new Bench(t)
  bench.api.put(slice(['10.42.0.1']))
  bench.answers.set('10.42.0.1', 'not run')
  bench.start()
  await bench.clock.advance(60_000)
  t.equal(bench.shown(), '10.42.0.1')
  t.equal(bench.health(), '')
  t.equal(await bench.gauge('unchecked'), 1)
  t.ok(bench.asked.length > 20, 'it tries again')
})

t.test('changes of the slice: backends, check, removal', async (t) => {
  const bench = new Bench(t)
  bench.answers.set('10.42.0.1', 'down')
  bench.api.put(slice(['10.42.0.1']))
  bench.start()
  await bench.clock.advance(5000)
  t.equal(bench.shown(), '!10.42.0.1')
  bench.api.put(slice(['10.42.0.1', '10.42.0.3']))
  await bench.clock.advance(2100)
  t.equal(bench.health(), '10.42.0.1 down, 10.42.0.3 up', 'another backend keeps the states of the rest')
  bench.api.put(slice(['10.42.0.3']))
  await bench.clock.advance(2100)
  t.equal(bench.health(), '10.42.0.3 up', 'a removed one is forgotten')
  bench.api.put(slice(['10.42.0.1'], 'tcp:9000'))
  await bench.clock.advance(100)
  t.equal(bench.shown(), '10.42.0.1', 'another check begins without the results of the first')
  await bench.clock.advance(5000)
  t.equal(bench.shown(), '!10.42.0.1')
  t.equal(bench.asked.at(-1), '10.42.0.1:9000')
  bench.api.put(slice(['10.42.0.1'], ''))
  await bench.clock.advance(100)
  t.equal(bench.shown(), '10.42.0.1', 'without a check, the slice says what is ready')
  const asked = bench.asked.length
  bench.api.put(slice(['10.42.0.1'], 'tcp', 'web-2'))
  bench.api.drop('EndpointSlice', 'web-2', 'shop')
  await bench.clock.advance(60_000)
  t.equal(bench.asked.length, asked, 'nothing is left that is checked')
})

t.test('many backends: spread over the interval, and bounded', async (t) => {
  const bench = new Bench(t)
  const addresses = Array.from({ length: 1000 }, (_, i) => `10.42.${1 + Math.floor(i / 250)}.${1 + (i % 250)}`)
  for (let i = 0; i < 10; i++) bench.api.put(slice(addresses.slice(100 * i, 100 * (i + 1)), 'tcp', `web-${i}`))
  bench.start()
  await bench.clock.advance(500)
  t.ok(bench.asked.length > 150 && bench.asked.length < 350, `${bench.asked.length} in the first quarter`)
  await bench.clock.advance(1600)
  t.equal(new Set(bench.asked).size, 1000)
  for (const address of addresses) bench.answers.set(address, 'pending')
  await bench.clock.advance(4000)
  t.equal(bench.mostAtOnce, MAX_CHECKS_AT_ONCE)
})
