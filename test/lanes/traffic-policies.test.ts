/**
 * Four sites: milano calls a service of paris, roma and tokyo a hundred times a second while its policies change, a
 * cluster is drained, and one loses its power. No call fails but those that were under way to the lost cluster.
 */
import type { ChildProcess } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(280_000)

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
      t.comment(calls.lines.slice(-20).join('\n'))
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
    const seen = await calls.next(400)
    const tokyo = seen.filter((one) => one === 'tokyo').length
    // Of 400 draws of a half, 200 with a standard deviation of 10.
    t.ok(tokyo > 150 && tokyo < 250, `a half: ${tokyo} of 400`)
  }

  milano.write('policy', [policy([{ any: {} }], { sessionAffinity: { clientIP: { timeoutSeconds: 600 } } })])
  const [kept] = await calls.settledOn(1)
  milano.write('policy', [
    policy([{ any: {}, weights: { milano: 0, paris: 100, roma: 300, tokyo: 500 } }], {
      sessionAffinity: { clientIP: { timeoutSeconds: 600 } },
    }),
  ])
  t.same(new Set(await calls.next(200)), new Set([kept]), 'a client stays where it is when weights change')

  milano.write('policy', undefined)
  await calls.settled(['paris', 'roma', 'tokyo'])
  await calls.broker(broker, 'drain', 'roma')
  await calls.settled(['paris', 'tokyo'])
  await calls.broker(broker, 'undrain', 'roma')
  await calls.settled(['paris', 'roma', 'tokyo'])
  t.same(calls.errors(), [], 'no call has failed')

  milano.write('policy', [policy([{ clusters: ['paris'] }, { clusters: ['roma'] }, { any: {} }])])
  await calls.settled(['paris'])
  const lostAt = Date.now()
  await calls.site('paris').machine('gw1').lose()
  await calls.settled(['roma'])
  const first = calls.since(lostAt).find(({ name }) => name === 'roma')
  t.comment(`the next tier answered a call that began ${(first?.at ?? NaN) - lostAt} ms after the loss`)
  t.ok(first !== undefined && first.at - lostAt < 3000, 'the next tier answers')
  const later = calls.since((first?.at ?? 0) + 500).filter(({ name }) => name !== 'roma')
  t.same(later, [], 'and from then on all calls')
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
}

/** The calls of milano to the service, and what is changed meanwhile. */
class Calls {
  readonly #sites: readonly PlainSite[]
  readonly #processes: ChildProcess[] = []
  readonly #calls: Call[] = []
  readonly lines: string[] = []

  constructor(sites: readonly PlainSite[]) {
    this.#sites = sites
  }

  get milano(): PlainSite {
    return this.site('milano')
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
        site.write('web', exported(machine))
        this.#processes.push(machine.netns.spawn(process.execPath, [TALKER, 'serve', `${machine.podAddress}:80`]))
      }
      site.up('gw1')
    }
    const file = join(this.milano.folder, 'state', 'objects', 'ServiceImport', 'shop', 'web.json')
    const ip = await eventually(() => importedIp(file), { ...LONG, say: 'the import' })
    await eventually(() => this.milano.lanes('gw1') === '0 (3 up)', { ...LONG, say: 'all links' })
    const caller = this.milano.machine('gw1').netns.spawn(process.execPath, [CALLER, ip, '80'])
    this.#processes.push(caller)
    let rest = ''
    caller.stdout?.on('data', (data: Buffer) => {
      const lines = (rest + data.toString()).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) this.#took(line)
    })
  }

  #took(line: string): void {
    this.lines.push(line)
    const [at = '', answer = ''] = line.split(' ')
    const site = this.#sites.find((one) => one.machine('gw1').podAddress === answer)
    this.#calls.push({ at: Number(at), name: site?.plan.name ?? answer })
  }

  stop(): void {
    for (const one of this.#processes) one.kill('SIGKILL')
  }

  async broker(broker: Machine, verb: 'drain' | 'undrain', id: Name): Promise<void> {
    const state = join(this.milano.folder, '..', 'broker')
    await broker.run(['cluster', verb, id, '--state', state])
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

function importedIp(file: string): string | undefined {
  if (!existsSync(file)) return undefined
  const { spec } = JSON.parse(readFileSync(file, 'utf8')) as { spec: { ips?: readonly string[] } }
  return spec.ips?.[0]
}

function exported(machine: Machine): readonly string[] {
  const meta = '{ name: web, namespace: shop }'
  const slice = '{ name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }'
  const endpoint = `{ addresses: [${machine.podAddress}], nodeName: gw1, conditions: { ready: true } }`
  return [
    `apiVersion: v1\nkind: Service\nmetadata: ${meta}\nspec: { ports: [{ port: 80 }] }`,
    `apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: ${slice}\naddressType: IPv4\n` +
      `ports: [{ port: 80, protocol: TCP }]\nendpoints: [${endpoint}]`,
    `apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: ${meta}`,
  ]
}
