/** Ranges that should never have been told, at clusters that hear them all the same: real processes, a real kernel. */
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { DATABASE_FILE, openBrokerStore } from '../../broker/state/broker-store.ts'
import { openSqliteLog } from '../../broker/log/sqlite/sqlite-log.ts'
import { FileCluster } from '../../kubeapi/files/file-cluster.ts'
import { planCandidates } from '../../gateway/reach/plan-candidates.ts'
import { planLanes } from '../gateway/support/wireguard-plans.ts'
import { LANE_MARK, ROUTE_PROTOCOL, ROUTE_TABLE_NODE, RULE_NODE } from '../../model/kernel-ids.ts'
import type { Cluster } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { SiteFolder } from '../cli/site-folder.ts'
import { cluster, endpoint, world } from '../gateway/support/worlds.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'

const SEALANE = join(import.meta.dirname, '../../bin/sealane')
const BROKER = '203.0.113.2'
const AROUND_BROKER = '203.0.113.0/28'

await attack('range-gateway-of-another', (t) => {
  const own = cluster('milano', 1, '10.42.0.0/16')
  const paris = cluster('paris', 2, '10.44.0.0/16')
  const told = ['public 198.51.100.20:4500', 'private 192.168.9.2:4500']
  const called = (
    ...others: Cluster[]
  ): { readonly called: readonly string[]; readonly hidden: boolean | undefined } => {
    const endpoints = [endpoint('paris', 'gw', 0, told), endpoint('mallory', 'gw', 0, ['public 203.0.113.7:4500'])]
    const { lanes } = planLanes(world({ own, clusters: [own, paris, ...others], endpoints }))
    const peer = lanes[0]?.links.find((one) => one.cluster === 'paris')
    return { called: peer?.candidates.map(({ address }) => address) ?? [], hidden: peer?.hidden }
  }
  const before = called()
  t.same(before, { called: ['198.51.100.20', '192.168.9.2'], hidden: false })
  t.same(called(cluster('mallory', 3, ['198.51.100.0/24', '192.168.0.0/16'])), before)
  const seen = { clusters: [own, paris, cluster('mallory', 3, '198.51.100.0/24')], observedAddress: '198.51.100.9' }
  t.match(
    planCandidates(world({ own, ...seen }), { lane: 0, port: 4500 }).map(({ kind, address }) => `${kind} ${address}`),
    ['private 192.0.2.10', 'observed 198.51.100.9'],
    'and this cluster tells its own address that the broker saw',
  )
  return Promise.resolve()
})

/** A site of one node in a namespace of its own, 192.168.<n>.10, whose router is the hub, 192.168.<n>.1. */
class NetnsSite {
  readonly id: string
  readonly ns: Netns
  readonly folder: SiteFolder
  said = ''
  readonly #n: number
  #process: ChildProcess | undefined

  constructor(t: Test, id: string, ns: Netns, n: number) {
    this.id = id
    this.ns = ns
    this.#n = n
    this.folder = new SiteFolder(t, id)
    const pods = `[10.${40 + n}.0.0/16, 'fd00:${40 + n}::/48']`
    this.folder.write('site.yaml', this.folder.read('site.yaml').replace('[10.42.0.0/16]', pods))
    this.folder.write(
      'objects/nodes.yaml',
      `apiVersion: v1\nkind: Node\nmetadata: { name: gw }\nstatus:\n  addresses:\n` +
        [`192.168.${n}.10`, `fd00:${n}::a`].map((at) => `    - { type: InternalIP, address: '${at}' }\n`).join(''),
    )
    // `ip netns exec` gives it to what it runs.
    mkdirSync(`/etc/netns/${ns.name}`, { recursive: true })
    writeFileSync(`/etc/netns/${ns.name}/resolv.conf`, 'nameserver 9.9.9.9\n')
    t.teardown(() => rmSync(`/etc/netns/${ns.name}`, { recursive: true, force: true }))
  }

  async wire(hub: Netns): Promise<void> {
    const n = this.#n
    const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))
    for (const ns of [hub, this.ns]) await ns.exec('sysctl', ['-qw', 'net.ipv6.conf.default.accept_dad=0'])
    await ip(this.ns, `link add lan type veth peer name to-${this.id} netns ${hub.name}`)
    await ip(hub, `address add 192.168.${n}.1/24 dev to-${this.id}`)
    await ip(hub, `link set to-${this.id} up`)
    await ip(this.ns, `address add 192.168.${n}.10/24 dev lan`)
    await ip(this.ns, `address add fd00:${n}::a/64 dev lan`)
    await ip(this.ns, 'link set lan up')
    await ip(this.ns, `route add default via 192.168.${n}.1`)
  }

  async join(token: string): Promise<void> {
    await this.ns.exec(SEALANE, ['join', '--site', this.folder.file, '--token-file', '-'], { input: token })
  }

  /** As the agent and the routeagent of the last release left it: the object, and the routes in the kernel. */
  async takeInAsBefore(spec: Cluster['spec']): Promise<void> {
    const object: Cluster = { apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster', metadata: { name: spec.id }, spec }
    await this.withObjects((objects) => objects.apply(object))
    const rule = ['not', 'fwmark', String(LANE_MARK), 'priority', String(RULE_NODE), 'lookup', String(ROUTE_TABLE_NODE)]
    await this.ns.exec('ip', ['rule', 'add', ...rule, 'protocol', String(ROUTE_PROTOCOL)])
    for (const range of spec.podCIDRs) {
      const route = ['unreachable', range, 'table', String(ROUTE_TABLE_NODE), 'protocol', String(ROUTE_PROTOCOL)]
      await this.ns.exec('ip', ['route', 'add', ...route])
    }
  }

  start(): void {
    const parts = ['--component', 'agent', '--component', 'routeagent']
    const child = this.ns.spawn(SEALANE, ['up', '--site', this.folder.file, '--node', 'gw', ...parts])
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text: Buffer) => (this.said += String(text)))
    this.#process = child
  }

  stop(): void {
    this.#process?.kill('SIGTERM')
  }

  async hearsBroker(): Promise<boolean> {
    return (await this.ns.tryExec('ping', ['-c', '1', '-W', '1', BROKER])).code === 0
  }

  /** `mallory 244.0.0.0/28` for each other cluster that it knows: under which addresses. */
  known(): Promise<string[]> {
    return this.withObjects((objects) =>
      Promise.resolve(
        objects
          .cache('Cluster')
          .list()
          .filter(({ spec }) => spec.id !== this.id)
          .map(({ spec }) => `${spec.id} ${(spec.globalCIDRs.length > 0 ? spec.globalCIDRs : spec.podCIDRs).join()}`)
          .sort(),
      ),
    )
  }

  async routes(): Promise<string> {
    const show = (family: string): Promise<string> =>
      this.ns.tryExec('ip', [family, 'route', 'show', 'table', String(ROUTE_TABLE_NODE)]).then(({ stdout }) => stdout)
    return (await show('-4')) + (await show('-6'))
  }

  async withObjects<T>(work: (objects: FileCluster) => Promise<T>): Promise<T> {
    const init = { objects: this.folder.path('objects'), state: this.folder.path('state') }
    const objects = new FileCluster({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
    try {
      await objects.cache('Cluster').whenSynced(AbortSignal.timeout(5000))
      return await work(objects)
    } finally {
      await objects.close()
    }
  }
}

class HubBroker {
  readonly state: string
  readonly #ns: Netns
  #said = ''
  #process: ChildProcess | undefined

  constructor(t: Test, ns: Netns) {
    this.#ns = ns
    this.state = join(temporaryFolder(t), 'broker')
  }

  async start(): Promise<void> {
    await this.#ns.exec('ip', ['address', 'add', `${BROKER}/32`, 'dev', 'lo'])
    const serve = [
      'broker',
      'serve',
      '--state',
      this.state,
      '--listen',
      '0.0.0.0:7443',
      '--advertise',
      `${BROKER}:7443`,
    ]
    const child = this.#ns.spawn(SEALANE, serve)
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (text: Buffer) => (this.#said += String(text)))
    this.#process = child
    await eventually(() => this.#said.includes('listening'), { deadlineMs: 30_000, say: 'the broker listens' })
  }

  stop(): void {
    this.#process?.kill('SIGTERM')
  }

  async store<T>(work: (store: Awaited<ReturnType<typeof openBrokerStore>>) => Promise<T>): Promise<T> {
    const store = await openBrokerStore(this.state, new SystemClock())
    try {
      return await work(store)
    } finally {
      await store.close()
    }
  }

  async token(...allowedCIDRs: string[]): Promise<string> {
    return (await this.store((store) => store.create({ allowedCIDRs }))).text
  }

  /** What a member has told of its machines. */
  async needsOf(member: string): Promise<readonly string[]> {
    const log = openSqliteLog({ file: join(this.state, DATABASE_FILE), create: false })
    try {
      return log.get('member', member)?.facts.neededCIDRs ?? []
    } finally {
      await log.close()
    }
  }

  /** Tells everybody of a cluster that no admission has seen. */
  async tell(...specs: Cluster['spec'][]): Promise<void> {
    const log = openSqliteLog({ file: join(this.state, DATABASE_FILE), create: false })
    try {
      await log.transact((tx) => {
        for (const spec of specs)
          tx.put('record', `${spec.id}/Cluster//${spec.id}`, {
            createdAtMs: Date.now(),
            body: { kind: 'Cluster', spec },
          })
      })
    } finally {
      await log.close()
    }
  }
}

// Whole sites are started, as users start them.
t.setTimeout(170_000 * SLOWNESS)
const skip = netnsMissing()
if (skip !== undefined) t.test('in network namespaces', { skip }, () => undefined)
else await withNetns((hub) => withNetns((one) => withNetns((two) => story(hub, [one, two]))))

async function story(hub: Netns, namespaces: readonly Netns[]): Promise<void> {
  await hub.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
  const broker = new HubBroker(t, hub)
  await broker.start()
  const sites = namespaces.map((ns, i) => new NetnsSite(t, ['milano', 'paris'][i] ?? '', ns, i + 1))
  await Promise.all(
    sites.map(async (site) => {
      await site.wire(hub)
      await site.join(await broker.token())
    }),
  )
  const mallory = { podCIDRs: [AROUND_BROKER], serviceCIDRs: [], labels: {}, globalCIDRs: [] }
  try {
    await attack('range-correction-arrives', async (t) => {
      await joinAs(broker, hub, 'mallory', [AROUND_BROKER])
      for (const site of sites) {
        await site.takeInAsBefore({ ...mallory, id: 'mallory', index: 3 })
        t.notOk(await site.hearsBroker(), `${site.id} is cut off: this is what the attack did`)
        site.start()
      }
      for (const site of sites) {
        await eventually(() => site.hearsBroker(), {
          deadlineMs: 20_000,
          say: `${site.id} hears the broker: ${site.said}`,
        })
        const corrected = (known: string[]): boolean => known.includes('mallory 244.0.0.0/28')
        await eventually(async () => corrected(await site.known()), {
          deadlineMs: 20_000,
          say: `${site.id} is corrected`,
        })
        t.notMatch(await site.routes(), AROUND_BROKER)
        t.match(site.said, `${AROUND_BROKER} holds ${BROKER}, the broker`, `${site.id} says why`)
      }
      await broker.store((store) => store.evict({ cluster: 'mallory', force: true }))
      for (const site of sites) {
        const gone = async (): Promise<boolean> => !(await site.known()).some((line) => line.startsWith('mallory'))
        await eventually(gone, { deadlineMs: 20_000, say: `${site.id} hears of the eviction` })
        t.ok(await site.hearsBroker(), `${site.id} hears the broker still`)
      }
    })
    await attack('range-importer-refuses', async (t) => {
      const bad = [
        AROUND_BROKER,
        '192.168.1.0/28',
        '192.168.1.1/32',
        '192.168.1.128/28',
        '192.168.0.0/16',
        '9.9.9.0/24',
        'fd00:1::/80',
        'fd00:1:0:0:1::/80',
      ]
      const specs = bad.map((range, i) => {
        const podCIDRs = range.includes(':') ? [`10.${90 + i}.0.0/16`, range] : [range]
        return { ...mallory, podCIDRs, id: `bad${i}`, index: 20 + i }
      })
      await broker.tell(...specs, { ...mallory, podCIDRs: ['10.77.0.0/16'], id: 'honest', index: 40 })
      const [milano] = sites
      if (milano === undefined) throw new Error('no site')
      // The honest one came with the others: they were looked at.
      const arrived = async (): Promise<boolean> => (await milano.routes()).includes('10.77.0.0/16')
      await eventually(arrived, { deadlineMs: 20_000, say: `an honest cluster is routed: ${milano.said}` })
      const known = await milano.known()
      t.same(
        known.filter((line) => line.startsWith('bad')),
        [],
      )
      const routes = await milano.routes()
      for (const range of bad) t.notOk(routes.includes(range.replace('/32', '')), `${range} is not routed`)
      for (const reason of ['the broker', 'a default gateway', 'a name server', 'a network of this node'])
        t.match(milano.said, reason, 'each with its reason')
      t.ok(await milano.hearsBroker())
      const told = ['9.9.9.9/32', '192.168.1.0/24', '203.0.113.2/32', 'fd00:1::/64']
      const heard = async (): Promise<boolean> => (await broker.needsOf('milano')).join() === told.join()
      await eventually(heard, { deadlineMs: 20_000, say: 'the broker is told what its machines need' })
    })
  } finally {
    for (const one of [...sites, broker]) one.stop()
  }
}

/** A member that only joins; it calls from the hub itself. */
async function joinAs(broker: HubBroker, hub: Netns, clusterId: string, podCIDRs: string[]): Promise<void> {
  const folder = new SiteFolder(t, clusterId)
  folder.write('site.yaml', folder.read('site.yaml').replace('[10.42.0.0/16]', JSON.stringify(podCIDRs)))
  const args = ['join', '--site', folder.file, '--token-file', '-']
  await hub.exec(SEALANE, args, { input: await broker.token(...podCIDRs), timeoutMs: 30_000 * SLOWNESS })
}
