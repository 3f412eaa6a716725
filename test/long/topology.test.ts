/**
 * Four clusters, and an operator who says which of them link. Broker, agents and DNS servers are real. A pair that does
 * not link has nothing of each other: neither Cluster nor gateway, service or name, and no record of it is sent.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { StorySite } from '../story/site.ts'

const IDS = ['milano', 'oslo', 'paris', 'tokyo'] as const
type Id = (typeof IDS)[number]
const podsOf = (id: Id): string => `10.${50 + IDS.indexOf(id)}`
const nameOf = (id: Id): string => `db-${id}.shop.svc.clusterset.local`

const serviceOf = (name: string, address: string, spec: string): string => `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { ${spec} ports: [{ name: sql, port: 5432 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-1, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ name: sql, port: 5432 }]
endpoints: [{ addresses: [${address}], hostname: db-0, conditions: { ready: true } }]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: ${name}, namespace: shop }
`
const headless = (name: string, id: Id): string => serviceOf(name, `${podsOf(id)}.0.9`, 'clusterIP: None,')

/** A headless service of its own, and one that all export. */
const objectsOf = (id: Id): string =>
  [
    'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n',
    headless(`db-${id}`, id),
    serviceOf('web', `${podsOf(id)}.0.8`, ''),
  ].join('---')

class Clusterset {
  readonly broker: LoopbackBroker
  readonly sites: readonly StorySite[]
  readonly #t: Test
  readonly #folder: string

  private constructor(t: Test, broker: LoopbackBroker, sites: readonly StorySite[]) {
    this.#t = t
    this.broker = broker
    this.sites = sites
    this.#folder = temporaryFolder(t)
  }

  static async start(t: Test, ids: readonly Id[]): Promise<Clusterset> {
    const broker = await LoopbackBroker.start(t)
    const sites: StorySite[] = []
    for (const id of ids) sites.push(await StorySite.join(t, id, broker, [`${podsOf(id)}.0.0/16`]))
    await Promise.all(sites.map((site) => site.start()))
    for (const [i, site] of sites.entries()) {
      await site.gateway(Buffer.alloc(32, i + 1).toString('base64'))
      const others = ids.filter((id) => id !== site.id)
      await site.tunnels(Object.fromEntries(others.map((id) => [id, 'up'])))
      site.write('shop.yaml', objectsOf(site.id as Id))
    }
    return new Clusterset(t, broker, sites)
  }

  /** Sets it twice: the second time changes nothing. */
  async set(topology: object): Promise<void> {
    const file = join(this.#folder, 'topology.json')
    writeFileSync(file, JSON.stringify(topology))
    const command = ['topology', 'set', file, '--yes', '--state', this.broker.state]
    const first = await runCli(command)
    this.#t.equal(first.code, 0, first.stderr)
    this.#t.match((await runCli(command)).stdout, /nothing was changed/)
  }

  /** Waits until every site has all of those with which it links, and nothing of the others. */
  async becomes(say: string, isLinked: (a: string, b: string) => boolean): Promise<void> {
    const whole = ['Cluster', 'Endpoint', 'EndpointSlice', 'EndpointSlice'].join()
    const wrong = async (): Promise<string[]> => {
      const found: string[] = []
      for (const site of this.sites) {
        for (const { id } of this.sites.filter((one) => one !== site)) {
          const linked = isLinked(site.id, id)
          const known = site.knownOf(id).join()
          const answer = await site.dig(nameOf(id as Id))
          const want = linked ? `${podsOf(id as Id)}.0.9` : 'NXDOMAIN'
          if (known !== (linked ? whole : '')) found.push(`${site.id} has ${known} of ${id}`)
          if (answer !== want) found.push(`${site.id} answers ${answer} for ${id}`)
        }
      }
      return found
    }
    await eventually(async () => (await wrong()).length === 0, { deadlineMs: 20_000 }).catch(() => undefined)
    this.#t.same(await wrong(), [], say)
  }

  site(id: Id): StorySite {
    const found = this.sites.find((one) => one.id === id)
    if (found === undefined) throw new Error(`no site ${id}`)
    return found
  }
}

const all = (): boolean => true

t.test(
  'three: a pair is unlinked and linked again, through a restart of the broker',
  { timeout: 120_000 },
  async (t) => {
    const set = await Clusterset.start(t, ['milano', 'oslo', 'paris'])
    await set.becomes('all link', all)
    const hub = (a: string, b: string): boolean => a === 'milano' || b === 'milano'
    const text = JSON.stringify({ mode: 'hub-and-spoke', hubs: ['milano'] })
    const file = join(temporaryFolder(t), 'plan.json')
    writeFileSync(file, text)
    const plan = await runCli(['topology', 'plan', file, '--state', set.broker.state])
    t.match(plan.stdout, /links lost: 1\n {2}oslo – paris\n/)
    t.match(plan.stdout, /shop\/db-oslo of oslo: paris\n/)
    t.match(plan.stdout, /shop\/web of paris: oslo\n/)
    await set.set({ mode: 'hub-and-spoke', hubs: ['milano'] })
    await set.becomes('spokes have nothing of each other', hub)
    const web = set
      .site('oslo')
      .imports()
      .find((line) => line.startsWith('shop/web'))
    t.match(web, /from milano,oslo /, 'a service of all is one of those that link')

    // It is no fault.
    const site = ['--site', set.site('oslo').folder.file]
    const status = await runCli(['status', ...site])
    t.match(status.stdout, /not linked +paris \(NotLinkedByTopology\)/)
    t.notMatch(status.stdout, /MemberMissing/)
    const shown = await runCli(['show', 'connections', ...site])
    t.match(shown.stderr, /NotLinkedByTopology: no connection is meant to paris/)

    // The broker is away, and the agent starts again: it knows the topology.
    await set.broker.stop()
    await set.site('oslo').stop()
    await set.site('oslo').start()
    await set.becomes('without the broker', hub)
    await set.broker.start()
    await set.becomes('after a restart of the broker', hub)

    await set.set({ mode: 'full' })
    await set.becomes('all link again', all)
  },
)

t.test('four: groups with one cluster in both, and a cluster in none', { timeout: 120_000 }, async (t) => {
  const set = await Clusterset.start(t, IDS)
  await set.becomes('all link', all)
  const groups = [
    { name: 'north', clusters: ['oslo', 'paris'] },
    { name: 'south', clusters: ['milano', 'paris'] },
  ]
  await set.set({ mode: 'groups', groups })
  const isLinked = (a: string, b: string): boolean =>
    groups.some(({ clusters }) => clusters.includes(a) && clusters.includes(b))
  await set.becomes('by groups', isLinked)

  // A service that comes later reaches only those of the group, and one that goes leaves only them.
  const oslo = set.site('oslo')
  oslo.write('late.yaml', headless('late', 'oslo'))
  const late = 'late.shop.svc.clusterset.local'
  await eventually(async () => (await set.site('paris').dig(late)) === `${podsOf('oslo')}.0.9`, { deadlineMs: 15_000 })
  t.equal(await set.site('milano').dig(late), 'NXDOMAIN')

  await set.set({ mode: 'pairs', pairs: [{ between: { clusters: ['tokyo'] }, and: { clusters: ['milano', 'oslo'] } }] })
  oslo.remove('late.yaml')
  await set.becomes('by pairs', (a, b) => [a, b].includes('tokyo') && ![a, b].includes('paris'))
  await set.set({ mode: 'full' })
  await set.becomes('all link again', all)
})
