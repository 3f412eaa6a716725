/** UDP flows to what has gone. All drivers are fakes; test/lanes/udp-stale-endpoint.test.ts has the packets. */
import fc from 'fast-check'
import t from 'tap'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import type { TranslatedFlow } from '../../../kernel/nfnetlink/connection-table.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import { StaleFlowLoop, staleness, takesTargets } from '../../../routeagent/balance/stale-flows.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { Machine } from '../support/machine.ts'
import { SERVICE_CONTEXT, gateway, serviceImport, slice } from '../support/site.ts'

const VIP = '245.0.0.7'
const DNS = { name: 'dns', protocol: 'UDP', port: 53 } as const
const TARGET = { ...DNS, port: 5353 }
const ALL = parsePrefix('0.0.0.0/0')

function flow(called: string, server: string): TranslatedFlow {
  const end = (text: string): TranslatedFlow['client'] => {
    const [address = '', port] = text.split(':')
    return { address, port: Number(port) }
  }
  return { client: end('10.42.1.5:7000'), called: end(called), server: end(server), id: 1, zone: 0 }
}

t.test('which flows go to what has gone', async (t) => {
  const web = serviceImport('web', VIP, { ports: [DNS] })
  type Case = readonly [say: string, endpoints: readonly string[], server: string, isStale: boolean]
  const rows: readonly Case[] = [
    ['its endpoint is ready', ['244.1.0.5'], '244.1.0.5:5353', false],
    ['its endpoint has left', ['244.1.0.6'], '244.1.0.5:5353', true],
    ['none is left', [], '244.1.0.5:5353', true],
    [
      'its endpoint serves while it terminates, beside a ready one',
      ['244.1.0.5~', '244.1.0.6'],
      '244.1.0.5:5353',
      false,
    ],
    ['its endpoint does not serve', ['244.1.0.5!', '244.1.0.6'], '244.1.0.5:5353', true],
    ['its endpoint has another port now', ['244.1.0.5'], '244.1.0.5:5354', true],
    ['it was never translated', ['244.1.0.5'], `${VIP}:53`, true],
  ]
  for (const [say, endpoints, server, isStale] of rows) {
    const planner = new BalancePlanner(SERVICE_CONTEXT)
    planner.replaceAll([web], [slice('web', 'paris', endpoints, [TARGET])])
    planner.takeChanges()
    t.equal(staleness(planner, new Set())(flow(`${VIP}:53`, server)), isStale, say)
  }

  const planner = new BalancePlanner({ ...SERVICE_CONTEXT, reachable: new Set(['paris']) })
  const here = slice('web', 'milano', ['10.42.9.5 on other in b'], [TARGET])
  const near = serviceImport('web', VIP, { ports: [DNS], internalTrafficPolicy: 'Local' })
  planner.replaceAll([near], [slice('web', 'tokyo', ['244.2.0.5'], [TARGET]), here])
  planner.takeChanges()
  const isStale = staleness(planner, new Set())
  t.equal(isStale(flow(`${VIP}:53`, '244.2.0.5:5353')), false, 'the cluster does not answer, and no other one serves')
  planner.setSlice(slice('web', 'paris', ['244.1.0.5'], [TARGET]))
  planner.takeChanges()
  t.equal(staleness(planner, new Set())(flow(`${VIP}:53`, '244.2.0.5:5353')), true, 'another cluster serves')
  t.equal(staleness(planner, new Set())(flow(`${VIP}:53`, '244.1.0.5:5353')), false, 'policies are about new flows')

  planner.setSlice(slice('web', 'roma', ['244.3.0.5'], [TARGET]))
  planner.setContext(SERVICE_CONTEXT)
  planner.setImport(serviceImport('web', VIP, { ports: [DNS] }))
  planner.takeChanges()
  planner.setTraffic({ of: () => ({ clusterShares: new Map([['roma', 1]]), ended: new Set(['paris']) }) })
  const changes = planner.takeChanges()
  t.ok(changes.some(takesTargets), 'a drain now takes targets')
  t.equal(staleness(planner, new Set())(flow(`${VIP}:53`, '244.1.0.5:5353')), true, 'its cluster is drained now')
  t.equal(staleness(planner, new Set())(flow(`${VIP}:53`, '244.3.0.5:5353')), false, 'and this one is not')

  const gone = new Set(['245.0.0.9 . udp . 53'])
  t.equal(staleness(planner, gone)(flow('245.0.0.9:53', '244.1.0.5:5353')), true, 'its import was seen to go')
  t.equal(staleness(planner, gone)(flow('245.0.0.9:54', '244.1.0.5:5353')), false, 'of another port nothing is known')
  t.equal(staleness(planner, gone)(flow('245.0.0.8:53', '244.1.0.5:5353')), false, 'this process did not see it go')
})

t.test('entries of TCP connections that a drain has ended are forgotten, and those of others are not', async (t) => {
  const http = { name: 'http', protocol: 'TCP', port: 80 } as const
  const clock = new FakeClock()
  const flows = new FakeConnections()
  const planner = new BalancePlanner({ ...SERVICE_CONTEXT, reachable: undefined })
  const [key, target] = [`${VIP} . tcp . 80`, '244.1.0.5 . 8080']
  planner.replaceAll(
    [serviceImport('web', VIP, { ports: [http] })],
    [slice('web', 'paris', ['244.1.0.5']), slice('web', 'roma', ['244.3.0.5'])],
  )
  const deps = { flows, clock, logger: new CapturingLogger() }
  const metrics = routeAgentMetrics(createMetrics('routeagent'))
  const loop = new StaleFlowLoop({ ...deps, metrics }, 'stale-flows', () => planner)
  const replan = (ended: readonly string[]): void => {
    planner.setTraffic({ of: () => ({ clusterShares: new Map([['roma', 1]]), ended: new Set(ended) }) })
    const changes = planner.takeChanges()
    t.same(changes.at(-1)?.key, key)
    t.same(planner.ports().get(key)?.ended, ended.length === 0 ? undefined : [target])
    loop.planned(changes)
    loop.applied(true)
  }
  const open = (port: number, server: string, idleSeconds?: number): void => {
    flows.openCall(`10.42.1.5:${port}`, `${VIP}:80`, `${server}:8080`, 'answered')
    if (idleSeconds !== undefined) flows.idleSeconds.set(`10.42.1.5:${port}`, idleSeconds)
  }
  const left = async (): Promise<string> => {
    const ports: number[] = []
    const init = { called: ALL, state: 'answered', limit: 100 } as const
    await flows.calls(init, ({ client }) => ports.push(client.port))
    return ports.join()
  }
  const stopping = new AbortController()
  const running = loop.run(stopping.signal).catch(() => undefined)
  replan([])
  await clock.advance(90_000)
  replan(['paris'])
  // As they are one minute after the drain.
  open(1, '244.1.0.5', 50) // it was reset 10 s after the drain
  open(2, '244.1.0.5', 65) // its client has sent nothing since
  open(3, '244.1.0.5', 5) // the server sends still
  open(4, '244.1.0.5') // not known
  open(5, '244.3.0.5', 50) // another cluster
  await clock.advance(30_000)
  t.equal(await left(), '1,2,3,4,5', 'not at once: packets of the client may be under way')
  const calls = flows.calls.bind(flows)
  let isRefused = false
  flows.calls = () => {
    isRefused = true
    flows.calls = calls
    return Promise.reject(new KernelError('EBUSY', 'list connections', 'busy'))
  }
  await clock.advance(32_000)
  t.ok(isRefused)
  t.equal(await left(), '2,3,4,5', 'what failed is tried again soon')
  for (const port of [2, 3]) flows.idleSeconds.set(`10.42.1.5:${port}`, 40)
  await clock.advance(60_000)
  t.equal(await left(), '4,5', 'they have heard it meanwhile')
  open(6, '244.1.0.5', 50)
  replan([])
  await clock.advance(300_000)
  t.equal(await left(), '4,5,6', 'the drain is over')
  replan(['paris'])
  loop.unplanned()
  planner.setTraffic({ of: () => undefined })
  planner.takeChanges()
  loop.planned([{ key, before: undefined, after: planner.ports().get(key) }])
  loop.applied(true)
  await clock.advance(300_000)
  t.equal(await left(), '4,5,6', 'it was over before the first look at a new plan')
  stopping.abort()
  await running
})

t.test('UDP flows are removed also while connections that a drain has ended cannot be listed', async (t) => {
  const clock = new FakeClock()
  const [flows, logger] = [new FakeConnections(), new CapturingLogger()]
  const planner = new BalancePlanner({ ...SERVICE_CONTEXT, reachable: undefined })
  const http = { name: 'http', protocol: 'TCP', port: 80 } as const
  const ports = [{ ...http, port: 8080 }, TARGET]
  planner.replaceAll(
    [serviceImport('web', VIP, { ports: [http, DNS] })],
    [slice('web', 'paris', ['244.1.0.5'], ports), slice('web', 'roma', ['244.3.0.5'], ports)],
  )
  const metrics = routeAgentMetrics(createMetrics('routeagent'))
  const loop = new StaleFlowLoop({ flows, clock, logger, metrics }, 'stale-flows', () => planner)
  flows.calls = () => Promise.reject(new KernelError('EPERM', 'list connections', 'not permitted'))
  const stopping = new AbortController()
  const running = loop.run(stopping.signal)
  const apply = (ended: readonly string[]): void => {
    planner.setTraffic({ of: () => ({ clusterShares: new Map([['roma', 1]]), ended: new Set(ended) }) })
    loop.planned(planner.takeChanges())
    loop.applied(true)
  }
  apply([])
  apply(['paris'])
  await clock.advance(200_000)
  const warnings = () => logger.lines.filter(({ level }) => level === 'warn').length
  t.equal(warnings(), 1, 'told once')
  const scans = flows.scans
  flows.openFlow('10.42.1.5:7000', `${VIP}:53`, '244.1.0.5:5353')
  await clock.advance(60_000)
  t.ok(flows.scans - scans < 20, `${flows.scans - scans} rounds in a minute`)
  const left: TranslatedFlow[] = []
  await flows.flows(ALL, 10, (one) => left.push(one))
  t.same(left, [])
  t.equal(warnings(), 1)
  stopping.abort()
  await running
})

t.test('a flow stays exactly if a served endpoint answers it', async () => {
  const number = fc.integer({ min: 1, max: 6 })
  fc.assert(
    fc.property(fc.uniqueArray(number, { maxLength: 6 }), fc.array(number, { maxLength: 6 }), (served, flows) => {
      const planner = new BalancePlanner(SERVICE_CONTEXT)
      const endpoints = served.map((n) => `244.1.0.${n}`)
      planner.replaceAll([serviceImport('web', VIP, { ports: [DNS] })], [slice('web', 'paris', endpoints, [TARGET])])
      const changes = planner.takeChanges()
      const isStale = staleness(planner, new Set())
      const emptied = changes.map(({ key, after }) => ({ key, before: after, after: undefined }))
      return (
        flows.every((n) => isStale(flow(`${VIP}:53`, `244.1.0.${n}:5353`)) === !served.includes(n)) &&
        !changes.some(takesTargets) &&
        emptied.some(takesTargets) === served.length > 0
      )
    }),
  )
})

t.test('a node forgets them at once, after a restart too, and nothing that it has not seen go', async (t) => {
  const machine = new Machine(t)
  const flows = new FakeConnections()
  machine.connections = flows
  machine.join()
  const ports = [DNS, { name: 'http', protocol: 'TCP', port: 80 } as const]
  machine.api.put(gateway('gw', { paris: 'up' }))
  machine.api.put(serviceImport('web', VIP, { ports }))
  machine.api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6'], [TARGET]))
  const servers = async (): Promise<string> => {
    const found: string[] = []
    const { scans } = flows
    await flows.flows(ALL, 10_000, ({ called, server }) => found.push(`${called.address}>${server.address}`))
    flows.scans = scans
    return found.sort().join(' ')
  }
  const becomes = async (want: string, say: string): Promise<void> => {
    await eventually(async () => (await servers()) === want, { say: `${say}: ${await servers()}` })
  }
  const open = (server: string, called = VIP): void =>
    void flows.openFlow('10.42.1.5:7000', `${called}:53`, `${server}:5353`)

  // While no process ran, 244.1.0.4 left, and the import of 245.0.0.9 too.
  for (const server of ['244.1.0.4', '244.1.0.5', '244.1.0.6']) open(server)
  open('244.1.0.9', '245.0.0.9')
  open('8.8.8.8', '192.0.2.1')
  let running = machine.start(t)
  await machine.ready()
  const others = '192.0.2.1>8.8.8.8 245.0.0.7>244.1.0.5 245.0.0.7>244.1.0.6 245.0.0.9>244.1.0.9'
  await becomes(others, 'after the first plan')

  machine.api.put(slice('web', 'paris', ['244.1.0.6'], [TARGET]))
  await becomes('192.0.2.1>8.8.8.8 245.0.0.7>244.1.0.6 245.0.0.9>244.1.0.9', 'one left')
  machine.api.put(slice('web', 'paris', [], [TARGET]))
  await becomes('192.0.2.1>8.8.8.8 245.0.0.9>244.1.0.9', 'none is left')
  t.match(await machine.metrics.text(), /^sealane_routeagent_flows_forgotten_total(\{.*\})? 3$/m)

  machine.api.put(slice('web', 'paris', ['244.1.0.7'], [TARGET]))
  await eventually(() => machine.nft.toString().includes('244.1.0.7'), { say: 'web-2 is in the table' })
  open('244.1.0.7')
  machine.api.drop('ServiceImport', 'web', 'shop')
  await becomes('192.0.2.1>8.8.8.8 245.0.0.9>244.1.0.9', 'the import was seen to go')

  // The kernel refuses: said once, tried again, and no other part depends on it.
  machine.api.put(serviceImport('web', VIP, { ports }))
  await eventually(() => machine.nft.toString().includes('244.1.0.7'), { say: 'the import is back' })
  open('244.1.0.7')
  flows.failure = new KernelError('EPERM', 'conntrack -L -p udp', 'not permitted')
  machine.api.put(slice('web', 'paris', ['244.1.0.8'], [TARGET]))
  const warned = (): number =>
    machine.logger.messages('warn').filter((text) => text.includes('flows to endpoints')).length
  await eventually(() => warned() === 1, { say: 'told' })
  t.same(machine.status.notReady(), [])
  flows.failure = undefined
  await eventually(
    async () => {
      machine.clock.jump(1000)
      return !(await servers()).includes('244.1.0.7')
    },
    { say: 'tried again' },
  )
  t.equal(warned(), 1)
  await running.stop()

  // A restart into a cluster whose API has not been read yet: nothing is removed.
  machine.api.drop('Cluster', 'milano')
  open('244.1.0.1')
  running = machine.start(t)
  await eventually(async () => /run_seconds_count\{.*stale-flows/.test(await machine.metrics.text()), {
    say: 'it runs',
  })
  t.match(await servers(), /245\.0\.0\.7>244\.1\.0\.1/, 'old state removes nothing')
  await running.stop()
})

t.test('5,000 endpoints that leave at once', async (t) => {
  const machine = new Machine(t)
  const flows = new FakeConnections()
  machine.connections = flows
  machine.join()
  machine.api.put(gateway('gw', { paris: 'up' }))
  const endpoints = Array.from({ length: 5000 }, (_, i) => `244.1.${i >> 8}.${i & 255}`)
  machine.api.put(serviceImport('web', VIP, { ports: [DNS] }))
  machine.api.put(slice('web', 'paris', endpoints, [TARGET]))
  const running = machine.start(t)
  await machine.ready()
  for (const [i, server] of endpoints.entries())
    for (const client of [1, 2, 3]) flows.openFlow(`10.42.1.${client}:${1024 + i}`, `${VIP}:53`, `${server}:5353`)
  machine.api.put(slice('web', 'paris', ['244.9.0.1'], [TARGET]))
  const left = async (): Promise<number> => {
    let count = 0
    await flows.flows(ALL, 100_000, () => (count += 1))
    return count
  }
  await eventually(async () => (await left()) === 0, { say: '15,000 flows are gone, in several runs' })
  await running.stop()
})
