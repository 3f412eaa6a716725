/**
 * Four sites: milano calls a service of paris, roma and tokyo a hundred times a second while its policies change, a
 * cluster is drained, it gets endpoints of its own, others call too, and one is cut off, comes back and loses its power. No call
 * fails but those that were under way to the lost cluster.
 */
import type { ChildProcess } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(280_000 * SLOWNESS)

const CALLER = join(import.meta.dirname, 'support', 'steady-caller.ts')
const TALKER = join(import.meta.dirname, '../routeagent/support/talker.ts')
const NAMES = ['milano', 'paris', 'roma', 'tokyo'] as const
type Name = (typeof NAMES)[number]

const PLANS: readonly SitePlan[] = NAMES.map((name, i) => ({
  ...{ name, uplinks: `198.5${i}`, pods: `10.${i + 4}2`, nodes: ['gw1'] },
  // The servers are no pods, but programs of the node.
  spec: `  gateways: [{ node: gw1, publicAddress: 198.5${i}.11.2 }]\n  openHostPorts: [tcp/80]\n`,
}))
const LONG = { deadlineMs: 60_000, intervalMs: 100 }

t.test('calls follow the policies', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(temporaryFolder(t), PLANS, async (sites, { broker }) => {
    const calls = new Calls(sites)
    try {
      await story(t, calls, broker)
    } catch (error) {
      t.comment(calls.lines.join('\n'))
      for (const site of sites) t.comment(site.said())
      throw error
    } finally {
      calls.stop()
    }
  })
})

async function story(t: Test, calls: Calls, broker: Machine): Promise<void> {
  const { milano } = calls
  // A policy that is there before its service has its say from the first call on.
  milano.write('policy', [policy([{ clusters: ['roma'] }, { any: {} }])])
  await calls.start()
  await calls.settled(['roma'])

  const canary = [[1], [10], [50], [100], [0]] as const
  for (const [percent] of canary) {
    milano.write('policy', [policy([{ any: {}, weights: { paris: 100 - percent, tokyo: percent, roma: 0 } }])])
    const names: Name[] = percent === 100 ? ['tokyo'] : percent === 0 ? ['paris'] : ['paris', 'tokyo']
    await calls.settled(names)
    if (percent !== 50) continue
    const seen = await calls.caller.next(400)
    const tokyo = seen.filter((one) => one === 'tokyo').length
    // Of 400 draws of a half, 200 with a standard deviation of 10.
    t.ok(tokyo > 150 && tokyo < 250, `a half: ${tokyo} of 400`)
  }

  milano.write('policy', [policy([{ any: {} }], { sessionAffinity: { clientIP: { timeoutSeconds: 600 } } })])
  const [kept] = await calls.caller.settledOn(1)
  milano.write('policy', [
    policy([{ any: {}, weights: { milano: 0, paris: 100, roma: 300, tokyo: 500 } }], {
      sessionAffinity: { clientIP: { timeoutSeconds: 600 } },
    }),
  ])
  t.same(new Set(await calls.caller.next(200)), new Set([kept]), 'a client stays where it is when weights change')

  milano.write('policy', undefined)
  await calls.settled(['paris', 'roma', 'tokyo'])
  await calls.broker(broker, 'drain', 'roma')
  await calls.settled(['paris', 'tokyo'])
  await calls.broker(broker, 'undrain', 'roma')
  await calls.settled(['paris', 'roma', 'tokyo'])
  t.same(calls.caller.errors(), [], 'no call has failed')

  await scaleUp(t, calls)
  await threeImporters(t, calls)

  milano.write('policy', [policy([{ clusters: ['paris'] }, { clusters: ['roma'] }, { any: {} }])])
  await calls.settled(['paris'])
  await lostAndFound(t, calls)
}

/** All lanes of a cluster are cut, once in the network, and once with the power of its machine. */
async function lostAndFound(t: Test, calls: Calls): Promise<void> {
  const paris = calls.site('paris').machine('gw1')
  await nextTier(t, calls, () => paris.cut())
  await paris.reconnect()
  const backAt = Date.now()
  await calls.settled(['paris'])
  const again = calls.caller.since(backAt).find(({ name }) => name === 'paris')
  t.comment(`the first tier answered a call that began ${(again?.at ?? NaN) - backAt} ms after its return`)
  const elsewhere = calls.caller.since((again?.at ?? 0) + 500).filter(({ name }) => name !== 'paris')
  t.same(elsewhere, [], 'calls come back once, not to and fro, and none fails')
  await nextTier(t, calls, () => paris.lose())
}

async function nextTier(t: Test, calls: Calls, lose: () => Promise<void>): Promise<void> {
  const lostAt = Date.now()
  await lose()
  await calls.settled(['roma'])
  const first = calls.caller.since(lostAt).find(({ name }) => name === 'roma')
  t.comment(`the next tier answered a call that began ${(first?.at ?? NaN) - lostAt} ms after the loss`)
  t.ok(first !== undefined && first.at - lostAt < 2000, 'the next tier answers')
  const downAt = await eventually(() => wentDownAt(calls.milano, lostAt), { ...LONG, say: 'the link is down' })
  t.ok((first?.at ?? Infinity) < downAt, 'before the link is down')
  const later = calls.caller.since((first?.at ?? 0) + 500).filter(({ name }) => name !== 'roma')
  t.same(later, [], 'and from then on all calls')
}

/** When the site logged that a link went down, after this moment. */
function wentDownAt(site: PlainSite, after: number): number | undefined {
  const lines = site
    .said()
    .split('\n')
    .filter((line) => line.includes('"to":"down"'))
  const times = lines.map((line) => Date.parse((JSON.parse(line) as { time: string }).time))
  return times.find((time) => time >= after)
}

/** The endpoints that milano gets, on the one node. */
const SCALED = Array.from({ length: 30 }, (_, i) => `10.42.1.${101 + i}`)
/** With as many elsewhere, each has its fair share. */
const ELSEWHERE = 3
const SPILL = 50

/**
 * From 0 to 30 ready endpoints of 30. A second has some three calls for each at the end: by chance, one gets more than
 * its share. What a draw varies is let go in single seconds, and not over all of a step.
 */
async function scaleUp(t: Test, calls: Calls): Promise<void> {
  const { milano } = calls
  await calls.serve(milano.machine('gw1'), SCALED)
  milano.write('web', exported(SCALED, 0))
  milano.write('policy', [policy([{ local: {} }, { any: {} }], { spillBelowPercent: SPILL })])
  await calls.settled(['paris', 'roma', 'tokyo'])
  let before = 0
  for (const ready of [1, 3, 8, 15, 30]) {
    milano.write('web', exported(SCALED, ready))
    const fresh = SCALED.slice(before, ready)
    before = ready
    const seen = await calls.caller.during(2, ({ answer }) => fresh.includes(answer))
    const fair = 1 / (ready + ELSEWHERE)
    for (const [say, some] of [
      ...seen.map((one, i) => [`second ${i + 1}`, one] as const),
      ['all', seen.flat()] as const,
    ]) {
      const most = 3 * fair * some.length
      const counts = Object.entries(Object.groupBy(some, ({ answer }) => answer)).map(([, of = []]) => of.length)
      // Each call draws by itself: among thirty endpoints, one is always above three times its share of a few calls.
      const by = 3 * Math.sqrt(most)
      t.ok(Math.max(...counts) <= most + by, `${ready} ready, ${say}: ${Math.max(...counts)} of ${some.length}`)
    }
    const all = seen.flat()
    const local = all.filter(({ name }) => name === 'milano').length / all.length
    const want = Math.min(1, ready / SCALED.length / (SPILL / 100))
    t.ok(Math.abs(local - want) < 0.15, `${ready} ready: ${local} of the calls stay, ${want} expected`)
  }
  t.same(calls.caller.errors(), [], 'no call has failed while it was scaled up')
}

/** Each site follows its own policy of the same service. */
async function threeImporters(t: Test, calls: Calls): Promise<void> {
  const wanted: Readonly<Partial<Record<Name, Readonly<Record<Name, number>>>>> = {
    milano: { milano: 0, paris: 80, roma: 20, tokyo: 0 },
    paris: { milano: 0, paris: 0, roma: 0, tokyo: 100 },
    roma: { milano: 50, paris: 0, roma: 0, tokyo: 50 },
  }
  const callers = Object.entries(wanted).map(([name, weights]) => {
    const site = calls.site(name as Name)
    site.write('policy', [policy([{ any: {}, weights }])])
    return { name, weights, calls: site === calls.milano ? calls.caller : calls.call(site) }
  })
  await Promise.all(callers.map(({ weights, calls: one }) => one.settled(NAMES.filter((name) => weights[name] > 0))))
  const seen = await Promise.all(callers.map(async (one) => ({ ...one, answers: await one.calls.next(400) })))
  for (const { name, weights, answers, calls: one } of seen) {
    for (const exporter of NAMES) {
      const percent = answers.filter((answer) => answer === exporter).length / 4
      const isExact = [0, 100].includes(weights[exporter])
      // Of 400 draws of a half, the standard deviation is 2.5 %.
      t.ok(Math.abs(percent - weights[exporter]) <= (isExact ? 0 : 12), `${name} calls ${exporter}: ${percent} %`)
    }
    t.same(one.errors(), [], `${name}: no call has failed`)
    if (one === calls.caller) continue
    one.stop()
    calls.site(name as Name).write('policy', undefined)
  }
}

function policy(order: readonly object[], more: object = {}): string {
  return JSON.stringify({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { name: 'web', namespace: 'shop' },
    spec: { targetRefs: [{ name: 'web' }], order, ...more },
  })
}

interface Call {
  /** When it began, in ms since 1970. */
  readonly at: number
  /** Who answered, or the code of the error. */
  readonly name: string
  /** The address that answered, or the code of the error. */
  readonly answer: string
}

/** A program on a site that calls the service a hundred times a second. */
class Caller {
  readonly #sites: readonly PlainSite[]
  readonly #process: ChildProcess
  readonly #calls: Call[] = []
  readonly lines: string[] = []

  constructor(sites: readonly PlainSite[], site: PlainSite, ip: string) {
    this.#sites = sites
    this.#process = site.machine('gw1').netns.spawn(process.execPath, [CALLER, ip, '80'])
    let rest = ''
    this.#process.stdout?.on('data', (data: Buffer) => {
      const lines = (rest + data.toString()).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) this.#took(line)
    })
  }

  #took(line: string): void {
    this.lines.push(line)
    const [at = '', answer = ''] = line.split(' ')
    const site = this.#sites.find(({ plan }) => answer.startsWith(`${plan.pods}.`))
    this.#calls.push({ at: Number(at), name: site?.plan.name ?? answer, answer })
  }

  stop(): void {
    this.#process.kill('SIGKILL')
  }

  since(at: number): readonly Call[] {
    return this.#calls.filter((call) => call.at >= at)
  }

  /** What answered the next calls, in the order of the answers. */
  async next(count: number): Promise<string[]> {
    const from = this.#calls.length
    await eventually(() => this.#calls.length >= from + count, { ...LONG, say: `${count} calls` })
    return this.#calls.slice(from, from + count).map(({ name }) => name)
  }

  /** The calls of each of so many seconds, from the next one that `isFirst` takes. */
  async during(seconds: number, isFirst: (call: Call) => boolean): Promise<readonly (readonly Call[])[]> {
    const from = this.#calls.length
    const first = await eventually(() => this.#calls.slice(from).find(isFirst), { ...LONG, say: 'the first answer' })
    const isOver = (): boolean => (this.#calls.at(-1)?.at ?? 0) >= first.at + 1000 * seconds
    await eventually(isOver, { ...LONG, say: `${seconds} seconds` })
    return Array.from({ length: seconds }, (_, i) => {
      const at = first.at + 1000 * i
      return this.since(at).filter((call) => call.at < at + 1000)
    })
  }

  /** Waits until a hundred calls in a row went to these clusters, and to each of them. */
  settled(names: readonly Name[]): Promise<unknown> {
    const wanted = [...names].sort().join()
    // One in a hundred is not among each hundred.
    return eventually(
      async () => {
        const seen = [...new Set(await this.next(100))].sort().join()
        if (seen === wanted) return true
        throw new Error(`calls go to ${seen}`)
      },
      { ...LONG, say: `calls go to ${wanted}` },
    )
  }

  /** Waits until a hundred calls in a row went to so many clusters. */
  settledOn(count: number): Promise<readonly string[]> {
    return eventually(
      async () => {
        const seen = [...new Set(await this.next(100))]
        return seen.length === count ? seen : undefined
      },
      { ...LONG, say: `calls go to ${count} cluster` },
    )
  }

  /** The calls that failed once all was up: those before the first answer do not count. */
  errors(): readonly Call[] {
    const first = this.#calls.findIndex(({ name }) => NAMES.includes(name as Name))
    return this.#calls.slice(first).filter(({ name }) => !NAMES.includes(name as Name))
  }
}

/** The sites, the servers and the callers on them. */
class Calls {
  readonly #sites: readonly PlainSite[]
  readonly #servers: ChildProcess[] = []
  readonly #callers: Caller[] = []
  #ip = ''

  constructor(sites: readonly PlainSite[]) {
    this.#sites = sites
  }

  get milano(): PlainSite {
    return this.site('milano')
  }

  /** The one on milano. */
  get caller(): Caller {
    const [first] = this.#callers
    if (first === undefined) throw new Error('nobody calls')
    return first
  }

  get lines(): readonly string[] {
    return this.#callers.flatMap(({ lines }) => lines.slice(-20))
  }

  site(name: Name): PlainSite {
    const site = this.#sites[NAMES.indexOf(name)]
    if (site === undefined) throw new Error(`no site ${name}`)
    return site
  }

  async start(): Promise<void> {
    for (const site of this.#sites) {
      const machine = site.machine('gw1')
      if (site !== this.milano) {
        site.write('web', exported([machine.podAddress], 1))
        this.#serve(machine, [machine.podAddress])
      }
      site.up('gw1')
    }
    const file = join(this.milano.folder, 'state', 'objects', 'ServiceImport', 'shop', 'web.json')
    this.#ip = await eventually(() => importedIp(file), { ...LONG, say: 'the import' })
    await eventually(() => this.milano.lanes('gw1') === '0 (3 up)', { ...LONG, say: 'all links' })
    this.call(this.milano)
  }

  /** Starts calls from a site. A clusterset IP is the same everywhere. */
  call(site: PlainSite): Caller {
    const caller = new Caller(this.#sites, site, this.#ip)
    this.#callers.push(caller)
    return caller
  }

  /** Adds addresses to a machine's pods, and serves there. */
  async serve(machine: Machine, addresses: readonly string[]): Promise<void> {
    const lines = addresses.map((address) => `address add ${address}/32 dev cni0\n`).join('')
    await machine.netns.exec('ip', ['-batch', '-'], { input: lines })
    const server = this.#serve(machine, addresses)
    let said = ''
    server.stdout?.on('data', (data: Buffer) => (said += data.toString()))
    await eventually(() => said.split('serving').length > addresses.length, { ...LONG, say: 'the servers' })
  }

  #serve(machine: Machine, addresses: readonly string[]): ChildProcess {
    const where = addresses.map((address) => `${address}:80`)
    const server = machine.netns.spawn(process.execPath, [TALKER, 'serve', ...where])
    this.#servers.push(server)
    return server
  }

  stop(): void {
    for (const one of this.#servers) one.kill('SIGKILL')
    for (const one of this.#callers) one.stop()
  }

  async broker(broker: Machine, verb: 'drain' | 'undrain', id: Name): Promise<void> {
    const state = join(this.milano.folder, '..', 'broker')
    await broker.run(['cluster', verb, id, '--state', state])
  }

  // What milano's own calls do.

  settled(names: readonly Name[]): Promise<unknown> {
    return this.caller.settled(names)
  }
}

function importedIp(file: string): string | undefined {
  if (!existsSync(file)) return undefined
  const { spec } = JSON.parse(readFileSync(file, 'utf8')) as { spec: { ips?: readonly string[] } }
  return spec.ips?.[0]
}

/** A service of which the first `ready` endpoints are ready. */
function exported(addresses: readonly string[], ready: number): readonly string[] {
  const meta = '{ name: web, namespace: shop }'
  const slice = '{ name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }'
  const endpoints = addresses.map(
    (address, i) => `{ addresses: [${address}], nodeName: gw1, conditions: { ready: ${i < ready} } }`,
  )
  return [
    `apiVersion: v1\nkind: Service\nmetadata: ${meta}\nspec: { ports: [{ port: 80 }] }`,
    `apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: ${slice}\naddressType: IPv4\n` +
      `ports: [{ port: 80, protocol: TCP }]\nendpoints: [${endpoints.join(', ')}]`,
    `apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: ${meta}`,
  ]
}
