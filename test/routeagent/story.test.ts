/** One routeagent through its life: joined, balanced, disturbed, restarted, gone. All drivers are fakes. */
import t from 'tap'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { FakeForwardPolicies } from '../../kernel/fake/fake-forward-policies.ts'
import { KernelError } from '../../kernel/errors.ts'
import { NFT_TABLE_NODE, ROUTE_TABLE_PROBES, VXLAN_DEVICE } from '../../model/kernel-ids.ts'
import type { RouteAgent } from '../../model/objects.ts'
import { planRouteAgent } from '../../routeagent/main.ts'
import { eventually } from '../support/eventually.ts'
import { loopRuns } from './support/loop-runs.ts'
import { Machine } from './support/machine.ts'
import { endpoint, gateway, membership, node, routeAgent, serviceImport, slice } from './support/site.ts'

/**
 * A table that has grown keeps the chains of service sizes that no longer occur; a table built from nothing does not
 * have them.
 */
function withoutPicks(kernel: string): string {
  return kernel.replaceAll(/\tchain pick-[\d-]+ \{\n(?:\t\t.*\n)*\t\}\n\n?/g, '')
}

t.test('a life', async (t) => {
  const machine = new Machine(t)
  const { api, nft, routes } = machine
  const first = machine.start(t)
  await eventually(() =>
    machine.status.notReady().some((r) => r === 'routes: waiting for this site to join a clusterset'),
  )
  t.equal(machine.kernel(), machine.before, 'nothing is touched before the site has joined')

  machine.join()
  await machine.ready()
  t.match(
    routes.toString(),
    'ip route replace 244.1.0.0/16 via 192.168.7.1 dev sealane-vx onlink table 7312',
    'before any report: by the node that serves a lane',
  )
  t.equal(await machine.sysctl.read('net/ipv4/ip_forward'), '1')
  const status = (): RouteAgent['status'] => api.get('RouteAgent', 'worker')?.status
  t.strictSame(status(), {
    version: '1.2.3',
    clusters: [{ cluster: 'paris', gateways: ['gw'], mtu: 1420 }],
    reached: '1/1',
    podRanges: ['10.42.1.0/24'],
    underlay: ['192.168.7.0/24'],
    overlayPort: 4810,
  })

  api.put(gateway('gw', { paris: 'up' }))
  await eventually(() => status()?.clusters[0]?.mtu === 1440)

  api.put(serviceImport('web', '245.0.0.7'))
  await eventually(async () => (await nft.elements(NFT_TABLE_NODE, 'no-backends')).length === 1, {
    say: 'refused while nobody serves',
  })
  api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6']))
  await machine.serves('245.0.0.7', '244.1.0.5', '244.1.0.6')
  t.strictSame(await nft.elements(NFT_TABLE_NODE, 'no-backends'), [])

  const sent = nft.accepted.length
  api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.9']))
  await machine.serves('245.0.0.7', '244.1.0.5', '244.1.0.9')
  t.strictSame(
    nft.accepted.slice(sent),
    [
      [
        {
          verb: 'delete-elements',
          table: NFT_TABLE_NODE,
          map: 'slots',
          elements: [{ key: '245.0.0.7 . tcp . 80 . 1' }],
        },
        {
          verb: 'add-elements',
          table: NFT_TABLE_NODE,
          map: 'slots',
          elements: [{ key: '245.0.0.7 . tcp . 80 . 1', value: '244.1.0.9' }],
        },
      ],
    ],
    'one changed endpoint is one transaction of two elements',
  )

  api.put(slice('web', 'milano', ['10.42.1.5']))
  await machine.serves('245.0.0.7', '10.42.1.5', '244.1.0.5', '244.1.0.9')
  t.strictSame(await nft.elements(NFT_TABLE_NODE, 'hairpin'), [{ key: '10.42.1.5 . 10.42.1.5' }])
  api.put(gateway('gw', { paris: 'down' }))
  await machine.serves('245.0.0.7', '10.42.1.5')
  await eventually(() => !routes.toString().includes('244.1.0.0/16 via'), { say: 'no way to paris' })
  t.match(routes.toString(), 'ip route replace unreachable 244.1.0.0/16')
  api.put(gateway('gw', { paris: 'up' }))
  await machine.serves('245.0.0.7', '10.42.1.5', '244.1.0.5', '244.1.0.9')

  await first.stop()
  const unchanged = machine.kernel()
  t.match(unchanged, 'sealane-vx', 'stopping leaves the data path as it is')
  const second = machine.start(t)
  await machine.ready()
  t.equal(withoutPicks(machine.kernel()), withoutPicks(unchanged), 'a restart comes to the same')

  api.put(membership('leaving'))
  await second.ended
  t.equal(machine.kernel(), machine.before, 'leaving takes everything out')
  t.equal(api.get('RouteAgent', 'worker'), undefined)
})

t.test('a gateway node that dies without a word', async (t) => {
  const machine = new Machine(t)
  const { api, routes } = machine
  machine.join()
  api.put(node('gw2', '192.168.7.2', '10.42.2.0/24'))
  api.put(endpoint('milano', 'gw2', 1))
  let beats = 0
  const report = (name: string, lane: number): void => {
    const { status, ...rest } = gateway(name, { paris: lane === 0 ? ['up'] : ['connecting', 'up'] })
    if (status === undefined) throw new Error('no status')
    api.put({ ...rest, status: { ...status, heartbeatTime: new Date((beats += 1)).toISOString() } })
  }
  machine.start(t)
  report('gw', 0)
  report('gw2', 1)
  api.put(serviceImport('web', '245.0.0.7'))
  api.put(slice('web', 'paris', ['244.1.0.5']))
  await machine.serves('245.0.0.7', '244.1.0.5')
  const ways = (): string => api.get('RouteAgent', 'worker')?.status?.clusters[0]?.gateways.join(' ') ?? '?'
  const stale = async (): Promise<string> => {
    const text = await machine.metrics.text()
    return /sealane_routeagent_stale_gateways\S* (\d+)/.exec(text)?.[1] ?? '0'
  }
  /** Lets two seconds pass at a time, in which these gateways report, until the routes use the wanted gateways. */
  const until = (want: string, ...reporting: readonly ('gw' | 'gw2')[]): Promise<unknown> =>
    eventually(
      () => {
        for (const name of reporting) report(name, name === 'gw' ? 0 : 1)
        machine.clock.jump(2000)
        return ways() === want
      },
      { say: `ways are ${want}`, intervalMs: 30 },
    )
  await until('gw gw2', 'gw', 'gw2')
  // Only a machine that has answered before can be found dead.
  await eventually(() => machine.answered.size === 2, { say: 'both have answered a knock' })
  machine.dead.add('192.168.7.1')
  await until('gw2', 'gw2')
  t.match(routes.toString(), /244\.1\.0\.0\/16 via 192\.168\.7\.2 dev sealane-vx/, 'the other one goes on alone')
  t.equal(await stale(), '1')
  await machine.serves('245.0.0.7', '244.1.0.5')
  machine.dead.add('192.168.7.2')
  await until('')
  t.match(routes.toString(), 'ip route replace unreachable 244.1.0.0/16')
  await machine.serves('245.0.0.7')
  t.equal(await stale(), '2')
  await until('gw', 'gw')
  await machine.serves('245.0.0.7', '244.1.0.5')
  t.equal(await stale(), '1')
})

t.test('what others break is repaired', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.api.put(serviceImport('web', '245.0.0.7'))
  machine.api.put(slice('web', 'paris', ['244.1.0.5']))
  machine.start(t)
  await machine.ready()
  const right = machine.kernel()

  const breakages: { say: string; act: () => Promise<void> }[] = [
    { say: 'the table is gone', act: () => machine.nft.run([{ verb: 'delete-table', table: NFT_TABLE_NODE }]) },
    {
      say: 'a chain was flushed',
      act: () => machine.nft.run([{ verb: 'flush-chain', table: NFT_TABLE_NODE, chain: 'balance-local' }]),
    },
    {
      say: 'an element is gone and another is new',
      act: () =>
        machine.nft.run([
          {
            verb: 'delete-elements',
            table: NFT_TABLE_NODE,
            map: 'slots',
            elements: [{ key: '245.0.0.7 . tcp . 80 . 0' }],
          },
          {
            verb: 'add-elements',
            table: NFT_TABLE_NODE,
            map: 'slots',
            elements: [{ key: '245.0.0.99 . tcp . 80 . 0', value: '1.2.3.4' }],
          },
        ]),
    },
    {
      say: 'a prefix more',
      act: () =>
        machine.nft.run([
          { verb: 'add-elements', table: NFT_TABLE_NODE, map: 'remote', elements: [{ key: '192.0.2.0/24' }] },
        ]),
    },
    {
      say: 'a rule is another one',
      act: () =>
        machine.nft.run([
          { verb: 'flush-chain', table: NFT_TABLE_NODE, chain: 'local-guard' },
          { verb: 'add-rule', table: NFT_TABLE_NODE, chain: 'local-guard', rule: 'ip daddr 192.0.2.1 drop' },
        ]),
    },
    { say: 'the overlay is gone', act: () => machine.routes.deleteLink(VXLAN_DEVICE) },
    { say: 'a rule is gone', act: () => machine.routes.deleteRule({ priority: 75, table: 7312, exceptMark: 0x1073 }) },
    {
      say: 'a neighbour is wrong',
      act: () =>
        machine.routes.replaceNeighbour({ device: VXLAN_DEVICE, address: '192.168.7.1', mac: '02:00:00:00:00:99' }),
    },
    {
      say: 'a route of another cluster',
      act: () =>
        machine.routes.replaceRoute({ table: 7312, destination: '244.9.0.0/16', type: 'unreachable', nextHops: [] }),
    },
  ]
  for (const { say, act } of breakages) {
    await act()
    const repaired = (): boolean => {
      // The clock jumps repeatedly, because a loop that was busy at the first jump sleeps only afterwards.
      machine.clock.jump(31_000)
      return machine.kernel() === right
    }
    await eventually(repaired, { say })
    t.pass(say)
  }
})

t.test('rules of an earlier release', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const { routes } = machine
  const rules = async (): Promise<string> =>
    (await routes.rules())
      .filter(({ table }) => table !== ROUTE_TABLE_PROBES)
      .map(({ priority, table }) => `${priority}:${table}`)
      .join(' ')
  await routes.addRule({ priority: 7310, table: 7310, inputDevice: 'sealane0' })
  await routes.addRule({ priority: 7311, table: 7311 })
  await routes.addRule({ priority: 7312, table: 7312 })
  machine.start(t)
  await machine.ready()
  t.equal(
    await rules(),
    '7311:7311 7312:7312 32764:254 32765:7317',
    'the way over other gateways stays behind the lanes of this node',
  )
  await routes.addRule({ priority: 74, table: 7311, exceptMark: 0x1073 })
  await routes.deleteRule({ priority: 7311, table: 7311 })
  await eventually(async () => (await rules()) === '74:7311 75:7312 32764:254 32765:7317', {
    say: 'the gateway has been upgraded, too',
  })
})

t.test('ranges of the other nodes are read on nodes that serve lanes alone, and followed', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const { api, routes } = machine
  const from = (): string[] => routes.toString().match(/replace .*(?= table 7310)/g) ?? []
  api.put(routeAgent('gw', '10.42.7.0/26'))
  machine.start(t)
  await machine.ready()
  t.strictSame(from(), [])
  api.put(endpoint('milano', 'worker'))
  await eventually(() => from().join() === 'replace 10.42.7.0/26 via 192.168.7.1 dev sealane-vx onlink')
  api.put(routeAgent('gw', '10.42.0.0/16'))
  await eventually(() => from().includes('replace throw 10.42.1.0/24'), { say: 'what is ours stays ours' })
  routes.putMainRoutes([{ destination: '10.42.9.64/26', type: 'blackhole' }])
  await eventually(() => from().includes('replace throw 10.42.9.64/26'), { say: 'the kernel shows another block' })
  t.strictSame(api.get('RouteAgent', 'worker')?.status?.podRanges, ['10.42.1.1/32', '10.42.9.64/26'])
})

t.test('what the node tells goes with its Node, and comes back with it', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.start(t)
  await machine.ready()
  const { api } = machine
  const owner = (): string | undefined => api.get('RouteAgent', 'worker')?.metadata.ownerReferences?.[0]?.uid
  const first = api.get('Node', 'worker')?.metadata.uid
  t.equal(owner(), first)
  const kernel = machine.kernel()
  api.drop('Node', 'worker')
  // The garbage collector removes objects like this.
  await api.remove('RouteAgent', 'worker')
  await eventually(() => machine.logger.messages('warn').length > 0, { say: 'it has noticed' })
  machine.clock.jump(30_000)
  await eventually(() => machine.status.plans().get('routeagent')?.includes('Node worker does not exist'))
  t.equal(api.get('RouteAgent', 'worker'), undefined, 'it does not come back alone')
  t.equal(machine.kernel(), kernel, 'the ways stay')
  api.put(node('worker', '192.168.7.11', '10.42.1.0/24'))
  await eventually(() => owner() !== undefined, { say: 'it tells again' })
  t.equal(owner(), api.get('Node', 'worker')?.metadata.uid)
  t.not(owner(), first)
})

t.test('what the node tells is there again where somebody took it away', async (t) => {
  const machine = new Machine(t)
  machine.join()
  // A gateway node that never answers is reported after a while, and the clock jumps.
  machine.probes.alive.add('192.168.7.1')
  machine.start(t)
  await machine.ready()
  const { api } = machine
  const status = (): RouteAgent['status'] => api.get('RouteAgent', 'worker')?.status
  await eventually(() => status()?.conditions?.[0]?.status === 'True', { say: 'the gateway node answers' })
  const reported = status()
  // The object disappears with its CRD: the Node stays, and nothing else changes.
  await api.remove('RouteAgent', 'worker')
  const isThere = (): boolean => {
    machine.clock.jump(30_000)
    return api.get('RouteAgent', 'worker')?.status !== undefined
  }
  await eventually(isThere, { intervalMs: 100, say: 'it is there again' })
  t.strictSame(api.get('RouteAgent', 'worker')?.status, reported)
})

t.test('a refusal by the kernel is tried again, from nothing known', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.api.put(serviceImport('web', '245.0.0.7'))
  machine.nft.failNext(new KernelError('EBUSY', 'nft', 'not now'))
  machine.routes.failNext(new KernelError('EBUSY', 'ip', 'not now '.repeat(1000)))
  const failures: string[] = []
  machine.api.cache('RouteAgent').onChange((change) => {
    if (change?.type === 'set') failures.push(change.object.status?.failure ?? '')
  })
  machine.start(t)
  await machine.ready()
  t.match(machine.logger.messages('error').join(), 'a round failed; retrying')
  t.equal(
    failures.find((text) => text.startsWith('RoundFailed: ip: not now'))?.length,
    4096,
    'as long as the CRD lets it be',
  )
  machine.nft.failNext(new KernelError('UNKNOWN', 'nft', 'odd'))
  machine.api.put(slice('web', 'paris', ['244.1.0.5']))
  await machine.serves('245.0.0.7', '244.1.0.5')
})

t.test('a node that gets another pod network gets other local backends', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.api.put(serviceImport('web', '245.0.0.7'))
  machine.api.put(slice('web', 'milano', ['10.42.9.5']))
  machine.start(t)
  await machine.ready()
  t.strictSame(await machine.nft.elements(NFT_TABLE_NODE, 'hairpin'), [])
  machine.routes.putMainRoutes([])
  machine.api.put(node('worker', '192.168.7.11', '10.42.9.0/24'))
  const hairpin = async (): Promise<boolean> =>
    (await machine.nft.elements(NFT_TABLE_NODE, 'hairpin'))[0]?.key === '10.42.9.5 . 10.42.9.5'
  await eventually(hairpin, { say: 'the pod counts as local' })
})

t.test('nothing is planned on half a view', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.api.put(serviceImport('web', '245.0.0.7'))
  machine.api.put(slice('web', 'paris', ['244.1.0.5']))
  const first = machine.start(t)
  await machine.ready()
  await first.stop()
  const unchanged = machine.kernel()

  const half = new MemoryApi({ hold: true })
  half.put(membership())
  const second = machine.start(t, half)
  await eventually(() =>
    machine.status.notReady().some((r) => r.startsWith('routes: waiting for first reading of memberships')),
  )
  half.release()
  await eventually(() =>
    machine.status.notReady().some((r) => r.includes("waiting for Cluster milano, this cluster's own")),
  )
  t.equal(machine.kernel(), unchanged)
  await second.stop()
})

t.test('a membership that vanishes is a leave, and leaving waits until it has worked', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const run = machine.start(t)
  await machine.ready()
  machine.nft.failNext(new KernelError('EBUSY', 'nft', 'not now'))
  machine.api.drop('Membership', 'self')
  await run.ended
  t.equal(machine.kernel(), machine.before)
  t.match(machine.logger.messages('error').join(), 'leaving failed; retrying')
})

t.test('leaving: the table stays as long as XFRM policies may be left, which would block everything', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const policies = (machine.forwardPolicies = new FakeForwardPolicies())
  const run = machine.start(t)
  await machine.ready()
  await policies.add({ source: '244.1.0.0/16', destination: '10.42.0.0/16', action: 'block' })
  policies.failure = new KernelError('EINTR', 'ip xfrm policy list dir fwd', 'the list changed')
  machine.api.drop('Membership', 'self')
  await eventually(() => machine.logger.messages('error').join().includes('leaving failed; retrying'))
  t.match(machine.nft.toString(), 'sealane_node')
  policies.failure = undefined
  await run.ended
  t.strictSame((await policies.list()).ours, [])
  t.equal(machine.kernel(), machine.before)
})

t.test('failClosed: false leaves pods open while tables are missing, which is logged once', async (t) => {
  const machine = new Machine(t)
  machine.join()
  machine.failClosed = false
  machine.forwardPolicies = new FakeForwardPolicies()
  const open = (): string[] => machine.logger.messages('info').filter((text) => text.includes('failClosed'))
  const all = machine.start(t)
  await machine.ready()
  t.strictSame(open(), [], 'all pods are exposed anyway')
  const closed = (): unknown => {
    const conditions = machine.api.get('RouteAgent', 'worker')?.status?.conditions ?? []
    return conditions
      .filter(({ type }) => type === 'ClosedWithoutTables')
      .map(({ status, reason }) => `${status} ${reason}`)
  }
  t.strictSame(closed(), [])
  await all.stop()
  const joined = membership()
  machine.api.put({ ...joined, spec: { ...joined.spec, exposure: 'exports' } })
  const stated = machine.start(t)
  await machine.ready()
  machine.api.put(serviceImport('web', '245.0.0.7'))
  await eventually(() => open().length > 0)
  t.strictSame(open(), ['spec.failClosed is false: pods are open while nft tables are missing'])
  await eventually(() => String(closed()) === 'False OpenWithoutTables')
  const since = (): unknown => {
    const { conditions } = machine.api.get('RouteAgent', 'worker')?.status ?? {}
    return conditions?.find(({ type }) => type === 'ClosedWithoutTables')?.lastTransitionTime
  }
  const first = since()
  for (let i = 1; i <= 2; i += 1) {
    const runs = await loopRuns(machine.metrics, 'routes')
    machine.clock.now = () => Date.now() + i * 60_000
    machine.clock.jump(60_000)
    await eventually(async () => (await loopRuns(machine.metrics, 'routes')) > runs)
    t.strictSame(since(), first, 'another round changes nothing')
  }
  await stated.stop()
  machine.failClosed = true
  machine.start(t)
  await machine.ready()
  await eventually(() => String(closed()) === '')
})

t.test('a dry run changes nothing', async (t) => {
  const machine = new Machine(t)
  machine.join()
  const text = await planRouteAgent(machine, { node: 'worker' }, new AbortController().signal)
  t.match(text, 'ip link add sealane-vx')
  t.match(text, 'add table ip sealane_node')
  t.equal(machine.kernel(), machine.before)
})
