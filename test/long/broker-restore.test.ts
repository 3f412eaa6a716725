/**
 * Three sites export without a pause while their broker is backed up, continues, is killed and restored from the
 * backup, and while its store is moved to another one and back. A service that a site has imported stays imported, with
 * the same addresses.
 */
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { verifyState } from '../../broker/recovery/verify-store.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { BrokerProcess } from '../story/broker-process.ts'
import { StorySite } from '../story/site.ts'

t.setTimeout(300_000)

const PODS = { milano: '10.42.0.0/16', paris: '10.52.0.0/16', oslo: '10.62.0.0/16' } as const
type Id = keyof typeof PODS

const IN_TIME = { deadlineMs: 60_000 }

function service(name: string, id: Id): string {
  return `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { ports: [{ name: http, port: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-1, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ name: http, port: 80 }]
endpoints: [{ addresses: [${PODS[id].replace('0.0/16', '0.5')}], conditions: { ready: true } }]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: ${name}, namespace: shop }
`
}

class Clusterset {
  readonly sites: StorySite[] = []
  readonly broker: BrokerProcess
  readonly #t: Test
  #count = 0
  readonly #stop = new AbortController()
  #watching: Promise<void> = Promise.resolve()
  /** Lines that a site had and no longer has. */
  readonly lost = new Set<string>()
  readonly #seen = new Map<StorySite, Set<string>>()

  constructor(t: Test, broker: BrokerProcess) {
    this.#t = t
    this.broker = broker
  }

  async add(id: Id): Promise<StorySite> {
    const site = await StorySite.join(this.#t, id, this.broker, [PODS[id]])
    site.write('shop.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n')
    await site.start()
    this.sites.push(site)
    return site
  }

  /** Exports one more service of each site. */
  exportMore(): void {
    this.#count += 1
    for (const site of this.sites)
      site.write(`s${this.#count}.yaml`, service(`${site.id}-${this.#count}`, site.id as Id))
  }

  /** The imports of each site: services with their names and addresses. */
  imported(): string[] {
    return this.sites.map((site) => site.imports().join('\n'))
  }

  /** Waits until every site has all services of all sites, and all sites have the same. */
  async agreed(services: number, say: string): Promise<void> {
    await eventually(
      () => {
        const [first = '', ...others] = this.imported()
        const ready = first.split('\n').filter((line) => line.endsWith(' Ready')).length
        return ready === services && others.every((one) => one === first)
      },
      { ...IN_TIME, say },
    )
  }

  /** Starts exports and the checks that imported services stay, which both run until the end. */
  begin(): void {
    const { signal } = this.#stop
    this.#watching = (async () => {
      for (let i = 0; !signal.aborted; i += 1) {
        if (i % 10 === 0 && this.#count < 40) this.exportMore()
        for (const site of this.sites) this.#look(site)
        await pause(100, undefined, { signal }).catch(() => undefined)
      }
    })()
  }

  #look(site: StorySite): void {
    const seen = this.#seen.get(site) ?? new Set<string>()
    this.#seen.set(site, seen)
    const lines = new Set(site.imports().filter((line) => line.endsWith(' Ready')))
    for (const line of seen) if (!lines.has(line)) this.lost.add(`${site.id}: ${line}`)
    for (const line of lines) seen.add(line)
  }

  async end(): Promise<number> {
    this.#stop.abort()
    await this.#watching
    return this.sites.reduce((sum, site) => sum + this.#servicesOf(site), 0)
  }

  /** Some sites joined later. */
  #servicesOf(site: StorySite): number {
    return this.#count - (this.#from.get(site) ?? 0)
  }
  readonly #from = new Map<StorySite, number>()

  /** `site` exports from the next service on. */
  joinedNow(site: StorySite): void {
    this.#from.set(site, this.#count)
  }
}

async function sealane(t: Test, ...words: string[]): Promise<void> {
  const { code, stdout, stderr } = await runCli(['broker', ...words])
  t.equal(code, 0, `${words.join(' ')}: ${stdout}${stderr}`)
}

async function isWhole(t: Test, state: string): Promise<void> {
  t.strictSame((await verifyState(state, Date.now())).findings, [], 'nothing is wrong in its store')
}

t.test('an older backup, with a member and services that it does not know', async (t) => {
  const broker = await BrokerProcess.start(t)
  const all = new Clusterset(t, broker)
  await all.add('milano')
  await all.add('paris')
  all.exportMore()
  await all.agreed(2, 'two sites have two services')
  all.begin()
  const backup = join(temporaryFolder(t), 'backup')
  await sealane(t, 'backup', '--state', broker.state, '--output', backup)
  await sealane(t, 'verify', '--backup', backup)
  const oslo = await all.add('oslo')
  all.joinedNow(oslo)
  await eventually(() => oslo.exported().length >= 3, IN_TIME)
  const before = await sitesKnow(all)
  await broker.kill()
  await sealane(t, 'restore', backup, '--state', broker.state, '--force')
  await broker.start()
  await eventually(() => oslo.exported().length >= 6, IN_TIME)
  const services = await all.end()
  await all.agreed(services, `three sites have all ${services} services, also those of the one that joined later`)
  t.strictSame([...all.lost], [], 'nothing that a site had was away, or had another address, at any time')
  const after = await sitesKnow(all)
  for (const line of before) t.ok(after.has(line), line)
  await eventually(async () => (await verifyState(broker.state, Date.now())).found === 0, IN_TIME)
  await isWhole(t, broker.state)
})

/** What sites have imported, without services that are not ready yet. */
function sitesKnow(all: Clusterset): Promise<Set<string>> {
  return Promise.resolve(
    new Set(all.imported().flatMap((one) => one.split('\n').filter((line) => line.endsWith(' Ready')))),
  )
}

t.test('moved to another store and back', async (t) => {
  const broker = await BrokerProcess.start(t)
  const all = new Clusterset(t, broker)
  for (const id of ['milano', 'paris', 'oslo'] as const) await all.add(id)
  all.exportMore()
  await all.agreed(3, 'three sites have three services')
  all.begin()
  const [one, other] = [broker.state, join(temporaryFolder(t), 'other')]
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    const exported = all.sites.map((site) => site.exported().length)
    const running = await runCli(['broker', 'migrate', '--from', `sqlite:${from}`, '--to', `sqlite:${to}`])
    t.match(running, { code: 1, stderr: /reason: StateLocked/ }, 'not while it is served')
    await broker.kill()
    await sealane(t, 'migrate', '--from', `sqlite:${from}`, '--to', `sqlite:${to}`)
    await isWhole(t, to)
    broker.state = to
    await broker.start()
    await eventually(() => all.sites.every((site, i) => site.exported().length >= (exported[i] ?? 0) + 2), IN_TIME)
  }
  const services = await all.end()
  await all.agreed(services, `three sites have all ${services} services`)
  t.strictSame([...all.lost], [], 'nothing that a site had was away, or had another address, at any time')
  const { stdout } = await runCli(['cluster', 'list', '--state', one, '-o', 'json'])
  const { items } = JSON.parse(stdout) as { items: { id: string; misuse?: object }[] }
  t.strictSame(items.map(({ id }) => id).sort(), ['milano', 'oslo', 'paris'])
  await isWhole(t, one)
})
