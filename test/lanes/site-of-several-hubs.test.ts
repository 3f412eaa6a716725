/**
 * A site of three machines without a shared folder that are all hubs. The machine whose hub and agent act is lost: calls
 * go on, another hub acts, and what is exported there reaches the other site. The lost machine comes back and follows.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(280_000)

const PARIS: SitePlan = {
  ...{ name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1, publicAddress: 198.51.11.2 }]\n',
}
const LONG = { deadlineMs: 90_000, intervalMs: 250 }
const HUBS = ['192.0.11.2:9474', '192.0.12.2:9474', '192.0.13.2:9474']

function milanoOf(nodes: readonly string[]): SitePlan {
  const hubs = HUBS.slice(0, nodes.length)
  return {
    ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes },
    spec:
      '  gateways: [{ node: gw1, publicAddress: 192.0.11.2 }, { node: gw2, publicAddress: 192.0.12.2 }]\n' +
      `  activeGateways: 2\n  hub: { listen: [${hubs.map((hub) => `'${hub}'`).join(', ')}] }\n`,
  }
}

/** A site whose machines have one file each, but for the first, which has the folder. */
class HubMachines {
  readonly #t: Test
  readonly #site: PlainSite
  readonly #folder: string
  readonly #files = new Map<string, string>()

  constructor(t: Test, site: PlainSite, folder: string) {
    this.#t = t
    this.#site = site
    this.#folder = folder
    this.#files.set('gw1', site.file)
  }

  async invite(node: string): Promise<void> {
    mkdirSync(join(this.#folder, node), { recursive: true })
    const file = join(this.#folder, node, 'node.yaml')
    await this.#site.machine('gw1').run(['site', 'invite', node, '--hub', '--site', this.#site.file, '--out', file])
    this.#files.set(node, file)
  }

  up(node: string): void {
    this.#site.machine(node).start(['up', '--site', this.file(node), '--node', node])
  }

  file(node: string): string {
    return this.#files.get(node) ?? ''
  }

  /** The folder with the files of the site on one machine. */
  copy(node: string): string {
    return node === 'gw1' ? this.#site.folder : join(this.#folder, node, 'state', 'site')
  }

  members(node: string): number {
    const file = join(this.copy(node), 'state', 'hub', 'members.json')
    return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as unknown[]).length : 0
  }

  acts(node: string): boolean {
    const file = join(this.copy(node), 'state', 'term', 'term.json')
    return existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { readonly acts: boolean }).acts
  }

  /** Whether the machine has a service and its export. What the acting hub did not hand on in time is lost with it. */
  has(node: string, service: string): boolean {
    const files = [`${service}.yaml`, `serviceexport-shop-${service}.yaml`]
    return files.every((file) => existsSync(join(this.copy(node), 'objects', file)))
  }

  async export(node: string, service: string, machine: Machine): Promise<void> {
    const meta = `{ name: ${service}, namespace: shop }`
    const slice = `{ name: ${service}-1, namespace: shop, labels: { kubernetes.io/service-name: ${service} } }`
    const documents = [
      `apiVersion: v1\nkind: Service\nmetadata: ${meta}\nspec: { clusterIP: None, ports: [{ port: 80 }] }`,
      `apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: ${slice}\naddressType: IPv4\n` +
        `ports: [{ port: 80, protocol: TCP }]\nendpoints: [{ addresses: [${machine.podAddress}], conditions: { ready: true } }]`,
    ]
    writeFileSync(join(this.copy(node), 'objects', `${service}.yaml`), `${documents.join('\n---\n')}\n`)
    const ran = await this.#site.machine(node).run(['export', service, '-n', 'shop', '--site', this.file(node)])
    this.#t.comment(ran)
  }
}

const imported = (paris: PlainSite, service: string): boolean =>
  paris.has(join('objects', 'ServiceImport', 'shop', `${service}.json`))

t.test('three hubs: a majority elects another one', { skip: netnsMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  await withPlainSites(folder, [milanoOf(['gw1', 'gw2', 'worker']), PARIS], async ([milano, paris]) => {
    if (milano === undefined || paris === undefined) throw new Error('no sites')
    const [gw1, gw2, worker] = [milano.machine('gw1'), milano.machine('gw2'), milano.machine('worker')]
    const far = paris.machine('gw1')
    const hubs = new HubMachines(t, milano, join(folder, 'machines'))
    try {
      paris.up('gw1')
      hubs.up('gw1')
      await eventually(() => hubs.acts('gw1'), { ...LONG, say: 'the first hub acts alone' })
      await Promise.all(['gw2', 'worker'].map((name) => hubs.invite(name)))
      hubs.up('gw2')
      hubs.up('worker')
      for (const name of ['gw1', 'gw2', 'worker'])
        await eventually(() => hubs.members(name) === 3, { ...LONG, say: `${name} knows three hubs` })
      for (const machine of [gw2, worker])
        await eventually(() => machine.pings(far.podAddress), { ...LONG, say: `${machine.name} reaches paris` })
      await hubs.export('gw1', 'first', gw2)
      await eventually(() => imported(paris, 'first'), { ...LONG, say: 'paris sees the first export' })
      const isCopied = (): boolean => ['gw2', 'worker'].every((name) => hubs.has(name, 'first'))
      await eventually(isCopied, { ...LONG, say: 'copied' })

      let [asked, answered, isOver] = [0, 0, false]
      const calls = (async () => {
        while (!isOver) {
          asked += 1
          if (await gw2.pings(far.podAddress)) answered += 1
        }
      })()
      const lostMs = Date.now()
      await gw1.lose()
      const next = (): string | undefined => ['gw2', 'worker'].find((name) => hubs.acts(name))
      await eventually(() => next() !== undefined, { deadlineMs: 15_000, intervalMs: 100, say: 'another hub acts' })
      t.comment(`another hub acts after ${Date.now() - lostMs} ms`)
      const acting = next() ?? ''
      await hubs.export(acting, 'second', gw2)
      await eventually(() => imported(paris, 'second'), { ...LONG, say: 'paris sees an export of the new agent' })
      t.ok(imported(paris, 'first'), 'and still the first one')
      isOver = true
      await calls
      t.ok(answered >= asked - 1, `${answered} of ${asked} calls worked meanwhile`)
      t.ok(await worker.pings(far.podAddress), 'the worker still reaches paris')

      await gw1.reconnect()
      hubs.up('gw1')
      const copied = join(hubs.copy('gw1'), 'objects', 'second.yaml')
      await eventually(() => existsSync(copied), { ...LONG, say: 'the lost machine follows' })
      t.notOk(hubs.acts('gw1'))
      t.equal(next(), acting, 'the other hub still acts')
      const refused = await gw1.netns.tryExec(gw1.program, ['unexport', 'second', '-n', 'shop', '--site', milano.file])
      t.match(refused.stderr, /the hub of this machine follows another one/)
      await eventually(() => gw1.pings(far.podAddress), { ...LONG, say: 'gw1 reaches paris again' })
      t.ok(imported(paris, 'first') && imported(paris, 'second'), 'nothing was removed')
    } catch (error) {
      t.comment(milano.said(), paris.said())
      throw error
    }
  })
})

t.test('two hubs: the operator promotes the other one', { skip: netnsMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  await withPlainSites(folder, [milanoOf(['gw1', 'gw2']), PARIS], async ([milano, paris]) => {
    if (milano === undefined || paris === undefined) throw new Error('no sites')
    const [gw1, gw2] = [milano.machine('gw1'), milano.machine('gw2')]
    const hubs = new HubMachines(t, milano, join(folder, 'machines'))
    try {
      paris.up('gw1')
      hubs.up('gw1')
      await eventually(() => gw1.said.includes('the hub of the site is up'), { ...LONG, say: 'the hub' })
      await hubs.invite('gw2')
      hubs.up('gw2')
      await eventually(() => hubs.members('gw2') === 2, { ...LONG, say: 'gw2 follows' })
      await hubs.export('gw1', 'first', gw2)
      await eventually(() => hubs.has('gw2', 'first'), { ...LONG, say: 'copied' })
      await gw1.lose()
      writeFileSync(
        join(hubs.copy('gw1'), 'objects', 'late.yaml'),
        'apiVersion: v1\nkind: Namespace\nmetadata: { name: late }\n',
      )
      t.match(await gw2.run(['site', 'promote', '--site', hubs.file('gw2')]), /acts from now on/)
      await hubs.export('gw2', 'second', gw2)
      for (const service of ['first', 'second'])
        await eventually(() => imported(paris, service), { ...LONG, say: `paris sees ${service}` })
      await gw1.reconnect()
      hubs.up('gw1')
      await eventually(() => existsSync(join(hubs.copy('gw1'), 'objects', 'second.yaml')), {
        ...LONG,
        say: 'it follows',
      })
      t.notOk(hubs.acts('gw1'), 'the term of the second hub is higher')
      t.ok(hubs.acts('gw2'))
      t.notOk(existsSync(join(hubs.copy('gw2'), 'objects', 'late.yaml')), 'old state does not come back')
      // What is missing is added before what is too much goes.
      const isDiscarded = (): boolean =>
        !existsSync(join(hubs.copy('gw1'), 'objects', 'late.yaml')) &&
        existsSync(join(hubs.copy('gw1'), 'state', 'discarded'))
      await eventually(isDiscarded, { ...LONG, say: 'its late file is kept beside' })
      t.ok(imported(paris, 'first') && imported(paris, 'second'))
    } catch (error) {
      t.comment(milano.said(), paris.said())
      throw error
    }
  })
})
