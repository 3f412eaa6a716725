/** Three hubs of one site on loopback: others follow the one that acts, a majority elects the next, and old state stays out. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { HubStore } from '../../compose/hub/hub-store.ts'
import { type SiteNode, openFirstHub, openSiteNode } from '../../compose/hub/open-site-node.ts'
import { serveHubs } from '../../compose/hub/serve-hub.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { readSiteFile } from '../../kubeapi/files/site-file.ts'
import { HubConnection, type NodeTls } from '../../kubeapi/remote/hub-connection.ts'
import { createCsr, createKey } from '../../protocol/identity/identity.ts'
import { HUB_SERVER_NAME } from '../../protocol/identity/site-certificates.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { freePort } from '../support/free-port.ts'
import { gatewayObject } from '../support/objects/node-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.setTimeout(90_000)
const clock = new SystemClock()
const LONG = { deadlineMs: 25_000, intervalMs: 50 }

class Hubs {
  readonly folder: string
  readonly #t: Test
  readonly #hubs: readonly string[]
  readonly #running = new Map<
    string,
    { readonly stop: AbortController; readonly ended: Promise<void>; readonly node: SiteNode }
  >()
  readonly #files = new Map<string, string>()
  readonly loggers = new Map<string, CapturingLogger>()

  constructor(t: Test, count: number, port: number) {
    this.#t = t
    this.folder = temporaryFolder(t)
    this.#hubs = Array.from({ length: count }, (_, i) => `127.0.1.${i + 1}:${port}`)
    mkdirSync(join(this.folder, 'objects'))
    const listen = this.#hubs.map((hub) => `"${hub}"`).join(', ')
    writeFileSync(
      this.site,
      `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: { name: milano }\n` +
        `spec: { podCIDRs: [10.42.0.0/16], hub: { listen: [${listen}] } }\n`,
    )
    t.teardown(() => Promise.all([...this.#running.keys()].map((name) => this.stop(name))))
  }

  get site(): string {
    return join(this.folder, 'site.yaml')
  }

  /** `before`: what happens once the node is open, and before its hub takes part. */
  async start(name: string, before = (): void => undefined): Promise<SiteNode> {
    const logger = this.loggers.get(name) ?? new CapturingLogger()
    this.loggers.set(name, logger)
    const deps = { clock, logger }
    const { signal } = new AbortController()
    const node =
      name === 'gw1'
        ? await openFirstHub(deps, { config: await readSiteFile(this.site), node: name })
        : await openSiteNode(deps, await this.#file(name), signal)
    if (node.hub === undefined) throw new Error('no hub')
    before()
    const stop = new AbortController()
    const [host = '', port = ''] = (this.#hubs[Number(name.slice(2)) - 1] ?? '').split(':')
    const init = {
      ...node.hub,
      site: 'milano',
      own: { host, port: Number(port) },
      hubs: this.#hubs,
      started: node.config,
    }
    const ended = serveHubs({ ...deps, status: new StatusBoard() } as never, init, () => Promise.resolve(), stop.signal)
    this.#running.set(name, { stop, ended, node })
    return node
  }

  async stop(name: string): Promise<void> {
    const one = this.#running.get(name)
    if (one === undefined) return
    this.#running.delete(name)
    one.stop.abort(new Error('stopped'))
    await one.ended.catch((error: unknown) => this.#t.fail(String(error)))
    await one.node.api.close()
  }

  copy(name: string): string {
    return name === 'gw1' ? this.folder : join(this.folder, name, 'site')
  }

  siteOf(name: string): string {
    return join(this.copy(name), 'site.yaml')
  }

  acts(name: string): boolean {
    const file = join(this.copy(name), 'state', 'term', 'term.json')
    return (
      this.#running.has(name) && existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { acts: boolean }).acts
    )
  }

  members(name: string): number {
    const file = join(this.copy(name), 'state', 'hub', 'members.json')
    return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as unknown[]).length : 0
  }

  /** Enrols a node, which is no hub, at this hub alone. */
  async enrol(node: string, name: string): Promise<void> {
    const store = await HubStore.open(clock, { state: join(this.copy(name), 'state'), site: 'milano' })
    const token = await store.invite(node, 60_000)
    const [host = '', port = ''] = (this.#hubs[Number(name.slice(2)) - 1] ?? '').split(':')
    const tls = (): NodeTls => ({ ca: store.certificateAuthority, own: undefined, serverName: HUB_SERVER_NAME })
    const deps = { clock, logger: new CapturingLogger() }
    const connection = new HubConnection(deps, { addresses: [{ host, port: Number(port) }], tls })
    try {
      const csr = Buffer.from(await createCsr(createKey())).toString('base64')
      await connection.enrol({ token, node, csr }, AbortSignal.timeout(20_000))
    } finally {
      connection.close()
    }
  }

  hasEnrolled(name: string, node: string): boolean {
    return existsSync(join(this.copy(name), 'state', 'hub', 'nodes', `${node}.json`))
  }

  async #file(node: string) {
    const path = this.#files.get(node) ?? join(this.folder, `${node}.json`)
    this.#files.set(node, path)
    const state = join(this.folder, node)
    const store = await HubStore.open(clock, { state: join(this.folder, 'state'), site: 'milano' })
    const token = existsSync(path) ? readFileSync(path, 'utf8') : await store.invite(node, 60_000, true)
    writeFileSync(path, token)
    const hubs = this.#hubs.map((hub) => ({ host: hub.split(':')[0] ?? '', port: Number(hub.split(':')[1]) }))
    const { certificateAuthority } = store
    return { file: path, node, site: 'milano', hubs, token, certificateAuthority, state }
  }
}

t.test('three hubs', async (t) => {
  const hubs = new Hubs(t, 3, await freePort())
  const first = await hubs.start('gw1')
  await eventually(() => hubs.acts('gw1'), { ...LONG, say: 'the first hub acts alone' })
  // A hub has stored its term a moment before it takes writes. Loops of a node try again, and so does the test. That
  // moment is short: a hub that acts and takes no writes for longer is at fault.
  const retried = (say: string, call: () => Promise<unknown>) =>
    eventually(() => call().then(() => true), { ...LONG, deadlineMs: 5000, say })
  await retried('gw1 writes', () => first.api.apply(gatewayObject('gw1')))
  t.comment('gw1 wrote')
  // A hub that has begun to act refuses enrolments until its term counts, and a user would start the node again.
  const enrolled = (name: string) => eventually(() => hubs.start(name), { ...LONG, say: `${name} is enrolled` })
  const second = await enrolled('gw2')
  const third = await enrolled('gw3')
  try {
    for (const name of ['gw1', 'gw2', 'gw3'])
      await eventually(() => hubs.members(name) === 3, { ...LONG, say: `${name} knows three` })
    await retried('gw2 writes', () => second.api.apply(gatewayObject('gw2')))
    await second.api.cache('Gateway').whenSynced(AbortSignal.timeout(5000))
    await retried('gw9 is enrolled', () => hubs.enrol('gw9', 'gw1'))
    const known = ['gw2', 'gw3'].find((name) => hubs.hasEnrolled(name, 'gw9'))
    t.ok(known, 'an enrolment that is answered is known to another hub')
    const good = readFileSync(hubs.site, 'utf8')
    writeFileSync(hubs.site, good.replace('10.42.0.0/16', '10.42'))
    for (const name of ['gw2', 'gw3'])
      await eventually(() => !readFileSync(hubs.siteOf(name), 'utf8').includes('/16'), {
        ...LONG,
        say: `${name} has it`,
      })
    await hubs.stop('gw1')
    const began = Date.now()
    await eventually(() => hubs.acts('gw2') || hubs.acts('gw3'), {
      deadlineMs: 12_000,
      intervalMs: 50,
      say: 'another hub acts',
    })
    t.comment(`after ${Date.now() - began} ms`)
    await retried('gw3 writes', () => third.api.apply(gatewayObject('gw3')))
    t.ok(await third.api.read('Gateway', 'gw2'), 'what was confirmed is there')
    for (const path of [hubs.site, hubs.siteOf(hubs.acts('gw2') ? 'gw2' : 'gw3')]) writeFileSync(path, good)
    writeFileSync(
      join(hubs.folder, 'objects', 'late.yaml'),
      'apiVersion: v1\nkind: Namespace\nmetadata: { name: late }\n',
    )
    const again = await hubs.start('gw1')
    await eventually(() => !existsSync(join(hubs.folder, 'objects', 'late.yaml')), { ...LONG, say: 'gw1 follows' })
    t.ok(existsSync(join(hubs.folder, 'state', 'discarded')), 'what it had alone is kept beside')
    t.ok(existsSync(join(hubs.folder, 'state', 'objects', 'Gateway', '_', 'gw3.json')))
    t.notOk(hubs.acts('gw1'))
    await eventually(() => again.api.read('Gateway', 'gw3').then((found) => found !== undefined), {
      ...LONG,
      say: 'reads',
    })
    const acting = hubs.acts('gw2') ? 'gw2' : 'gw3'
    await hubs.stop('gw1')
    await hubs.stop(acting === 'gw2' ? 'gw3' : 'gw2')
    const api = acting === 'gw2' ? second.api : third.api
    await eventually(
      async () => {
        const error = await failure(api.applyStatus(gatewayObject(acting, { version: '7' })))
        return error instanceof ClusterApiError && error.code === 'Unavailable'
      },
      { ...LONG, say: 'one of three takes no writes' },
    )
    t.match(await failure(hubs.enrol('gw8', acting)), { code: 'Unavailable' }, 'nor does it enrol a node')
  } catch (error) {
    for (const [name, logger] of hubs.loggers)
      t.comment(name, JSON.stringify(logger.messages('info').concat(logger.messages('warn'))))
    throw error
  }
})

t.test('a hub whose disk has damaged the authority runs on, until another one gives it back', async (t) => {
  const hubs = new Hubs(t, 1, await freePort())
  const file = join(hubs.folder, 'state', 'hub', 'authority.pem')
  let good = ''
  await hubs.start('gw1', () => {
    good = readFileSync(file, 'utf8')
    writeFileSync(file, '')
  })
  const says = (level: 'info' | 'warn', text: string): boolean =>
    hubs.loggers.get('gw1')?.messages(level).includes(text) === true
  await eventually(() => says('warn', 'the authority cannot be used'), { ...LONG, say: 'it tells' })
  t.notOk(says('info', 'the hub of the site is up'))
  writeFileSync(file, good)
  await eventually(() => says('info', 'the hub of the site is up'), { ...LONG, say: 'it acts' })
})
