/** A gateway and its router over a socket: what it says, what it leaves behind, and that nothing waits for a router. */
import { readdirSync } from 'node:fs'
import t from 'tap'
import {
  type OpenRouterSocket,
  type PortMappingView,
  PortMappings,
  openRouterSocket,
  removeMappingSecret,
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
    this.mappings = new PortMappings(deps, { stateDir, onChange, openSocket })
    this.ended = this.mappings.run(this.stop.signal)
  }

  async plans(at: GatewayWorld, ms = 100): Promise<PortMappingView | undefined> {
    this.mappings.planned(at, LANES)
    // The secret is a file, which is not read by this clock.
    await eventually(async () => {
      await this.clock.advance(2)
      return this.opened > 0
    })
    for (let i = 0; i < 20; i++) await this.clock.advance(ms / 20)
    return this.mappings.view
  }

  async end(): Promise<void> {
    this.stop.abort()
    for (let i = 0; i < 100; i++) await this.clock.advance(20)
    await this.ended
  }
}

t.test('a place outside, until the end', async (t) => {
  const router = new Router({ speaks: ['pcp'], address: '203.0.113.7', gives: () => 51_000 })
  const folder = temporaryFolder(t)
  const home = new Home(folder)
  home.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  const view = await home.plans(HOME)
  t.equal(view?.is === 'mapped' && formatAddressPort(view.place), '203.0.113.7:51000')
  t.ok(home.mappings.known.mapped)
  t.ok(home.changes > 0)
  t.equal(home.open, 0, 'no socket between questions')
  await home.end()
  t.equal(router.mappings.size, 0, 'nothing is left in the router')
  t.equal(home.open, 0)
  t.equal(home.mappings.view, undefined)
  t.strictSame(new Set(home.calledTo), new Set(['10.0.0.1']), 'no other machine is called')

  // A killed one leaves its mapping, and the next one renews it under the same name.
  const second = new Home(folder)
  second.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  await second.plans(HOME)
  const third = new Home(folder)
  third.answers = second.answers
  t.match(await third.plans(HOME), { is: 'mapped' })
  await third.end()
  await second.end()
  t.equal(readdirSync(folder).length, 1)
  await removeMappingSecret(folder)
  await removeMappingSecret(folder)
  t.strictSame(readdirSync(folder), [])
})

t.test('a gateway that can be called gives its mapping back', async (t) => {
  const router = new Router({ speaks: ['natPmp'], address: '203.0.113.7' })
  const home = new Home(temporaryFolder(t))
  home.answers = (question) => [router.answer(question, '10.0.0.2') ?? Buffer.alloc(0)]
  t.match(await home.plans(HOME), { is: 'mapped', protocol: 'natPmp' })
  await home.plans({ ...HOME, lanes: [{ ...LANE, portMapping: false }] }, 1000)
  t.equal(home.mappings.view, undefined)
  t.equal(router.mappings.size, 0)
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
  t.strictSame(home.mappings.known, {})
  await home.end()
  t.equal(liar.mappings.size, 0)
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
