/** The broker's view: `sealane broker gateways|services` and the source of the console, beside a real broker. */
import t from 'tap'
import { planLook } from '../../console/state/state.ts'
import { brokerSource, publishedReader } from '../../cli/status/console/broker-source.ts'
import { StorySite } from '../story/site.ts'
import { eventually } from '../support/eventually.ts'
import { JumpingClock } from '../support/jumping-clock.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli } from './run-cli.ts'

const SHOP = `
apiVersion: v1
kind: Namespace
metadata: { name: shop }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ name: http, port: 80 }] }
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: web, namespace: shop }
`

t.test('members, gateways and services at their broker, running and stopped', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const [milano, paris] = [
    await StorySite.join(t, 'milano', broker, ['10.50.0.0/16']),
    await StorySite.join(t, 'paris', broker, ['10.51.0.0/16']),
  ]
  await Promise.all([milano.start(), paris.start()])
  milano.write('shop.yaml', SHOP)
  paris.write('shop.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n')
  await milano.gateway(`${'m'.repeat(42)}A=`)
  const shown = async (what: string, ...words: string[]) => {
    const { code, stdout, stderr } = await runCli(['broker', what, '--state', broker.state, ...words])
    t.equal(code, 0, stderr)
    return { stdout: stdout.replaceAll(/ +/g, ' '), stderr }
  }
  const line = /^shop web 245\.0\.\d+\.\d+ milano paris$/m
  await eventually(async () => line.test((await shown('services')).stdout), {
    deadlineMs: 20_000,
    say: 'paris imports',
  })
  await eventually(async () => /^milano gw 0 /m.test((await shown('gateways')).stdout), { say: 'a gateway' })
  t.match((await shown('services', '-o', 'json')).stdout, /"importersCount": 1/)

  const output = { answer: () => undefined, remark: () => undefined }
  const context = { signal: new AbortController().signal, output, env: {}, terminal: null }
  const clock = new JumpingClock()
  const source = brokerSource(
    {
      ...{ kube: undefined, state: broker.state, clusterset: undefined },
      ...{ everyMs: 2000, timeoutMs: 10_000, clock },
    },
    context,
  )
  const look = async () => planLook(await source.facts(context.signal)).state
  // The broker stores contacts a second later.
  const heard = async () => {
    const state = await look()
    return state.about.counts.clustersReached === 2 ? state : undefined
  }
  const state = await eventually(heard, { deadlineMs: 20_000, say: 'both are in contact' })
  t.match(state.about, { clusterset: 'demo', counts: { clusters: 2, clustersReached: 2, services: 1 } })
  t.match(state.about.broker, { accessDefault: 'allow', topology: 'full' })
  t.match(state.services.rows, [{ name: 'web', exporters: ['milano'], importers: ['paris'] }])
  t.match(state.gateways.rows, [{ cluster: 'milano', state: 'published' }])
  t.same(
    state.clusters.rows.map(({ cluster, state }) => [cluster, state]),
    [
      ['milano', 'in contact'],
      ['paris', 'in contact'],
    ],
  )
  await runCli(['cluster', 'drain', 'paris', '--state', broker.state])
  t.equal((await look()).clusters.rows.find(({ cluster }) => cluster === 'paris')?.drained, true)

  await broker.stop()
  const stopped = await look()
  t.equal(stopped.about.health, 'down')
  t.equal(stopped.problems.rows[0]?.reason, 'BrokerSilent')
  const kept = await source.facts(context.signal)
  t.equal(await source.facts(context.signal), kept, 'it is not opened again at once')
  clock.jump(30_000)
  t.not(await source.facts(context.signal), kept)
  const { stdout, stderr } = await shown('services')
  t.match(stdout, line, 'from the stored state')
  t.match(stderr, /^no broker runs with /)
})

t.test('a clusterset without members', async (t) => {
  const broker = await LoopbackBroker.start(t)
  for (const what of ['gateways', 'services']) {
    t.same(await runCli(['broker', what, '--state', broker.state]), { code: 0, stdout: '', stderr: 'none\n' })
  }
  const { code, stderr } = await runCli(['broker', 'services', '--state', broker.state, '--clusterset', 'nowhere'])
  t.equal(code, 1)
  t.match(stderr, /nowhere/)
})

t.test('a broker that answers late about services: the rest is shown, and the last answer stays', async (t) => {
  const clock = new JumpingClock()
  const read = publishedReader(clock, 20)
  const none = { gateways: [], gatewaysCount: 0, services: [], servicesCount: 0 }
  const late = { published: () => new Promise<never>(() => undefined) }
  t.match(await publishedReader(clock, 20)(late), { t: 'none', why: /no answer within/ })
  t.match(await read({ published: () => Promise.resolve(none) }), { t: 'known', value: none })
  clock.jump(10_000)
  t.match(await read(late), { t: 'known', value: none, why: /no answer within/ })
})
