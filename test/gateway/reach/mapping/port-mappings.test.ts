/** A gateway and its router over a socket: what it says, what it leaves behind, and that nothing waits for a router. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  type OpenRouterSocket,
  PLACE_APART_MS,
  type PortMappingView,
  PortMappings,
  endPortMappings,
  openRouterSocket,
} from '../../../../gateway/reach/mapping/port-mappings.ts'
import type { GatewayWorld } from '../../../../gateway/world/gateway-world.ts'
import { formatAddressPort } from '../../../../model/addresses/addresses.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../../support/eventually.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { node, world } from '../../support/worlds.ts'
import { Router } from './support/router.ts'

const LANE = { lane: 0, port: 4500 }
const HOME = world({
  nodes: [node('gw', '10.0.0.2')],
  addresses: [{ device: 'eth0', address: '10.0.0.2/24' }],
  observedAddress: '203.0.113.7',
  machine: { nextHops: ['10.0.0.1'], nameServers: [] },
  lanes: [LANE],
})
const LANES = { lanes: [{ port: 4500 }] }

class Home {
  readonly clock = new FakeClock()
  readonly stop = new AbortController()
  readonly mappings: PortMappings
  readonly calledTo: string[] = []
  open = 0
  opened = 0
  changes = 0
  answers: (question: Buffer) => readonly Buffer[] = () => []
  isRefused = false
  readonly ended: Promise<void>
  readonly openSocket: OpenRouterSocket
  seen: readonly string[] = []

  constructor(stateDir: string) {
    const openSocket: OpenRouterSocket = (router, events) => {
      this.open += 1
      this.opened += 1
      let isOpen = true
      if (this.isRefused) queueMicrotask(() => isOpen && events.onError(new Error('refused')))
      else queueMicrotask(() => isOpen && events.onReady('10.0.0.2'))
      return {
        send: (bytes) => {
          this.calledTo.push(router)
          for (const answer of this.answers(bytes)) if (isOpen) events.onMessage(answer)
        },
        close: () => {
          if (isOpen) this.open -= 1
          isOpen = false
        },
      }
    }
    const onChange = (): void => {
      this.changes += 1
    }
    const deps = { clock: this.clock, logger: new CapturingLogger() }
    this.openSocket = openSocket
    this.mappings = new PortMappings(deps, { stateDir, onChange, openSocket, seen: () => this.seen })
    this.ended = this.mappings.prepare().then(() => this.mappings.run(this.stop.signal))
  }

  async plans(at: GatewayWorld, ms = 100): Promise<PortMappingView | undefined> {
    this.mappings.planned(at, LANES)
    await this.until(() => this.opened > 0)
    for (let i = 0; i < 20; i++) await this.clock.advance(ms / 20)
    return this.mappings.view
  }

  /** Files are not read and written by this clock. */
  async until(isSo: () => boolean, ms = 5): Promise<void> {
    await eventually(
      async () => {
        await this.clock.advance(ms)
        return isSo()
      },
      { intervalMs: 1 },
    )
  }

  async end(): Promise<void> {
    this.stop.abort()
    for (let i = 0; i < 100; i++) await this.clock.advance(20)
    await this.ended
  }
}

t.test('a place outside, kept while the process is restarted, until the cluster leaves', async (t) => {
  let isFirst = true
  const gives = (_inside: number, wanted: number): number => (isFirst ? 51_000 : wanted)
  const router = new Router({ speaks: ['pcp'], address: '203.0.113.7', gives })
  const folder = temporaryFolder(t)
  const home = new Home(folder)
  home.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  const view = await home.plans(HOME)
  t.equal(view?.is === 'mapped' && formatAddressPort(view.place), '203.0.113.7:51000')
  t.ok(home.mappings.known.mapped)
  t.ok(home.changes > 0)
  t.equal(home.open, 0, 'no socket between questions')
  await home.end()
  t.equal(router.mappings.size, 1, 'the links go on')
  t.equal(home.open, 0)
  t.strictSame(new Set(home.calledTo), new Set(['10.0.0.1']), 'no other machine is called')

  // The next one publishes the place with its first plan, and renews the mapping under the same name.
  const second = new Home(folder)
  second.answers = home.answers
  await eventually(() => second.mappings.known.mapped?.port === 51_000, { say: 'known before the first plan' })
  t.match(await second.plans(HOME), { is: 'mapped' })
  await second.end()

  // The router has forgotten it: the next one asks for the same port.
  isFirst = false
  router.mappings.clear()
  const third = new Home(folder)
  third.answers = home.answers
  await third.plans(HOME)
  await third.until(() => router.mappings.size > 0)
  t.strictSame(
    [...router.mappings.values()].map(({ outside }) => outside),
    [51_000],
  )
  await third.end()

  const ended = endPortMappings(third.clock, { stateDir: folder, openSocket: third.openSocket })
  await third.until(() => router.mappings.size === 0)
  await third.clock.advance(1000)
  await ended
  await endPortMappings(third.clock, { stateDir: folder, openSocket: third.openSocket })
  t.strictSame(readdirSync(folder), [], 'nothing is left')
})

t.test('the network outside has another address since the cluster joined', async (t) => {
  const router = new Router({ speaks: ['pcp'], address: '198.51.100.7' })
  const home = new Home(temporaryFolder(t))
  home.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  home.seen = ['198.51.100.7']
  const view = await home.plans(HOME)
  t.equal(view?.is === 'mapped' && formatAddressPort(view.place), '198.51.100.7:4500')
  home.seen = []
  t.match(await home.plans(HOME), { is: 'mapped' }, 'the link needs no relay any more')
  await home.end()
})

t.test('a router that gives another port at each renewal: far ends learn of it once a minute', async (t) => {
  let port = 50_000
  const router = new Router({ speaks: ['pcp'], address: '203.0.113.7', gives: () => ++port, lifetimeSeconds: 60 })
  const home = new Home(temporaryFolder(t))
  home.answers = (question) => {
    router.mappings.clear()
    return [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  }
  await home.plans(HOME)
  const changes: number[] = []
  let place = home.mappings.known.mapped?.port
  const end = home.clock.monotonic() + 10 * PLACE_APART_MS
  await home.until(() => {
    const now = home.mappings.known.mapped?.port
    if (now !== place) changes.push(home.clock.monotonic())
    place = now
    return home.clock.monotonic() >= end
  }, 500)
  t.ok(changes.length > 2 && changes.length <= 10, `${changes.length} changes`)
  await home.end()
})

t.test('what an earlier run kept: an old or damaged file', async (t) => {
  const one = (untilMs: number) => ({
    ...{ router: '10.0.0.1', protocol: 'pcp', place: '203.0.113.7:51000' },
    ports: [{ inside: 4500, outside: '203.0.113.7:51000', untilMs }],
  })
  const rows: readonly (readonly [string, unknown])[] = [
    ['over', one(1)],
    ['no object', 7],
    ['no router', { ...one(1e15), router: 'x' }],
    ['no protocol', { ...one(1e15), protocol: 'upnp' }],
    ['a place of text', { ...one(1e15), place: 'home' }],
    ['a port of text', { ...one(1e15), ports: [{ inside: '4500', outside: '203.0.113.7:51000', untilMs: 1e15 }] }],
    ['too many', { ...one(1e15), ports: Array.from({ length: 9 }, () => one(1e15).ports[0]) }],
  ]
  for (const [say, kept] of rows) {
    const folder = temporaryFolder(t)
    writeFileSync(join(folder, 'port-mappings.json'), JSON.stringify(kept))
    const home = new Home(folder)
    t.match(await home.plans(HOME, 9000), { is: 'silent' }, say)
    t.strictSame(home.mappings.known, {}, say)
    await home.end()
  }
})

t.test('a secret that cannot be read is not replaced: the living mappings have its names', async (t) => {
  const folder = temporaryFolder(t)
  mkdirSync(join(folder, 'port-mapping-secret'))
  const home = new Home(folder)
  home.mappings.planned(HOME, LANES)
  for (let i = 0; i < 50; i++) await home.clock.advance(100)
  await new Promise(setImmediate)
  t.equal(home.opened, 0, 'no question under another name')
  await home.end()
})

t.test('a router that is not asked any more', async (t) => {
  const folder = temporaryFolder(t)
  const router = new Router({ speaks: ['natPmp'], address: '203.0.113.7' })
  const home = new Home(folder)
  home.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  await home.plans(HOME)
  await home.end()
  const next = new Home(folder)
  next.answers = home.answers
  next.mappings.planned({ ...HOME, lanes: [{ ...LANE, portMapping: false }] }, LANES)
  await next.until(() => router.mappings.size === 0)
  t.strictSame(next.mappings.known, {})
  await next.end()
})

t.test('a gateway that can be called gives its mapping back', async (t) => {
  const router = new Router({ speaks: ['natPmp'], address: '203.0.113.7' })
  const home = new Home(temporaryFolder(t))
  home.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  t.match(await home.plans(HOME), { is: 'mapped', protocol: 'natPmp' })
  home.mappings.planned({ ...HOME, lanes: [{ ...LANE, portMapping: false }] }, LANES)
  await home.until(() => router.mappings.size === 0)
  t.equal(home.mappings.view, undefined)
  await home.end()
})

t.test('hostile routers: nothing waits, and the end is soon', async (t) => {
  const rows: readonly (readonly [string, Partial<Pick<Home, 'answers' | 'isRefused'>>, string])[] = [
    ['silent', {}, 'silent'],
    ['nothing listens', { isRefused: true }, 'silent'],
    ['garbage', { answers: () => [Buffer.from([0])] }, 'silent'],
    ['a flood', { answers: () => Array.from({ length: 5000 }, () => Buffer.alloc(1200, 0x81)) }, 'silent'],
  ]
  for (const [say, how, is] of rows) {
    const home = new Home(temporaryFolder(t))
    Object.assign(home, how)
    t.match(await home.plans(HOME, 9000), { is }, say)
    t.strictSame(home.mappings.known, {}, say)
    t.equal(home.open, 0, `${say}: no socket is left`)
    await home.end()
  }
  const liar = new Router({ speaks: ['pcp'], address: '198.51.100.66' })
  const home = new Home(temporaryFolder(t))
  home.answers = (question) => [liar.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  t.match(await home.plans(HOME), { is: 'unusable' }, 'another host')
  t.strictSame(home.mappings.known, { routerOutside: '198.51.100.66' }, 'no place')
  await home.until(() => liar.mappings.size === 0)
  const { length } = home.calledTo
  for (let i = 0; i < 100; i++) await home.clock.advance(2000)
  t.match(home.mappings.view, { is: 'unusable' }, 'still said')
  t.equal(home.calledTo.length, length, 'and not renewed')
  home.seen = ['198.51.100.66']
  home.mappings.planned(HOME, LANES)
  await home.until(() => home.mappings.view?.is === 'mapped', 10)
  t.equal(liar.mappings.size, 1, 'asked for again when a relay sees it, too')
  await home.end()
})

t.test('the socket says that nothing listens at the router', async (t) => {
  const { promise, resolve } = Promise.withResolvers<Error>()
  const socket = openRouterSocket('127.0.0.9', {
    onReady: (client) => {
      t.equal(client, '127.0.0.1')
      socket.send(Buffer.from([0, 0]))
    },
    onMessage: () => t.fail('nobody is there'),
    onError: resolve,
  })
  t.match(await promise, { code: 'ECONNREFUSED' })
  socket.close()
})
