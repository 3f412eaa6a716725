/** Two ends with real probers over a wire in memory: both sleep, and both wake. */
import t, { type Test } from 'tap'
import { linkKey } from '../../../gateway/cable/cable-driver.ts'
import { FOLLOW_MS, GRACE_MS, SILENCE_MS, SLEEP_LOOK_MS, type SleepRule } from '../../../gateway/health/plan-sleep.ts'
import { SleepingLinks } from '../../../gateway/health/sleeping-links.ts'
import type { LanePlan } from '../../../gateway/links/plan-lanes.ts'
import { healthKey } from '../../../gateway/world/gateway-world.ts'
import { decodeProbe } from '../../../kernel/probing/probe-packet.ts'
import type { ProbeSocketEvents } from '../../../kernel/probing/probe-socket.ts'
import { Prober } from '../../../kernel/probing/prober.ts'
import { LANE_PROBE_PORT } from '../../../model/kernel-ids.ts'
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

const KEY = healthKey(0, 'far')
const LINK = { cluster: 'far', endpoint: 'far.gw-lane0', identity: 'key' }
const DEVICES = [{ remoteLane: 0, links: [LINK] }] as unknown as readonly LanePlan[]
const SETTLE_MS = 2000

class End {
  readonly logger = new CapturingLogger()
  readonly prober: Prober
  readonly sleeping: SleepingLinks
  far: End | undefined
  /** Whether packets from here arrive. */
  reaches = true
  questions = 0
  busyAtMs = -Infinity
  at = parseAddressPort('203.0.113.9:4601')
  #events: ProbeSocketEvents | undefined
  #rxBytes = 0
  #txBytes = 0
  readonly #clock: FakeClock
  readonly #address: string
  readonly #rule: SleepRule | undefined

  constructor(clock: FakeClock, own: { readonly address: string; readonly far: string; readonly rule?: SleepRule }) {
    this.#clock = clock
    this.#address = own.address
    this.#rule = own.rule
    const { logger } = this
    this.sleeping = new SleepingLinks({
      clock,
      logger,
      sleep: (key) => this.prober.sleep(key),
      wake: (key) => this.prober.wake(key),
    })
    this.prober = new Prober(
      {
        clock,
        logger,
        openSocket: (_address, _port, events) => {
          this.#events = events
          queueMicrotask(() => events.onReady())
          return { send: (bytes) => this.#send(bytes), probeTcp: () => () => undefined, close: () => undefined }
        },
        count: () => undefined,
        onTransition: () => undefined,
        onSuspect: () => undefined,
        onQuestion: ({ key }) => this.sleeping.onQuestion(key),
        isBusy: () => false,
      },
      {
        ...{ name: 'lane 0', number: 0, address: own.address, port: LANE_PROBE_PORT },
        ...{ missesUntilSuspect: 4, downAfterMs: 1500, answersUntilUp: 2, unansweredAfterMs: 600, calmAfterMs: 3000 },
      },
    )
    this.prober.setPeers([{ key: KEY, number: 0, address: own.far }])
  }

  get link() {
    const { state, asleep } = this.prober.health().get(KEY)!
    return asleep ? `${state}, asleep` : state
  }

  /** A packet of the tunnel with this many bytes as WireGuard counts them. */
  carry(bytes: number, arrive: (far: End) => void = () => undefined): void {
    this.#txBytes += bytes
    const { far } = this
    if (!this.reaches || far === undefined) return
    far.#rxBytes += bytes
    arrive(far)
  }

  look(): void {
    this.sleeping.look(this.#reading())
  }

  settle(rule = this.#rule): void {
    const busy = { isBusy: () => this.#clock.monotonic() - this.busyAtMs < 10_000, busyAtMs: () => this.busyAtMs }
    if (rule !== undefined) this.sleeping.settle(this.#reading(), rule, busy)
  }

  #reading() {
    const state = { at: this.at, carries: true, rxBytes: this.#rxBytes, txBytes: this.#txBytes }
    const states = new Map([[0, { identity: 'own', links: new Map([[linkKey(LINK), state]]) }]])
    const health = this.prober.health()
    return { devices: DEVICES, states, askedMs: this.#clock.monotonic(), before: health, after: health }
  }

  #send(bytes: Buffer): void {
    if (decodeProbe(bytes)?.type === 'question') this.questions += 1
    this.carry(96, (far) =>
      queueMicrotask(() => far.#events?.onMessage(bytes, { address: this.#address, port: LANE_PROBE_PORT })),
    )
  }
}

/** The two ends, and how time passes for them. Undefined: its links do not sleep. */
function pair(t: Test, milanoMs: number | undefined, parisMs: number | undefined, follows = true) {
  const clock = new FakeClock()
  const end = (address: string, far: string, sleepMs: number | undefined): End =>
    new End(clock, { address, far, ...(sleepMs === undefined ? {} : { rule: { afterMs: sleepMs, follows } }) })
  const milano = end('246.0.1.0', '246.0.2.0', milanoMs)
  const paris = end('246.0.2.0', '246.0.1.0', parisMs)
  Object.assign(milano, { far: paris })
  Object.assign(paris, { far: milano })
  const ends = [milano, paris]
  const stopping = new AbortController()
  t.teardown(() => stopping.abort())
  for (const one of ends) void one.prober.run(stopping.signal)
  let passedMs = 0
  const pass = async (ms: number, keepalives = true): Promise<void> => {
    for (const endMs = passedMs + ms; passedMs < endMs; passedMs += SLEEP_LOOK_MS) {
      await clock.advance(SLEEP_LOOK_MS)
      if (keepalives && passedMs % 25_000 < SLEEP_LOOK_MS) for (const one of ends) one.carry(32)
      for (const one of ends) one.look()
      if (passedMs % SETTLE_MS < SLEEP_LOOK_MS) for (const one of ends) one.settle()
    }
  }
  const seen = (): string[] => ends.map(({ link }) => link)
  const asked = async (ms: number): Promise<number[]> => {
    const before = ends.map(({ questions }) => questions)
    await pass(ms)
    return ends.map(({ questions }, i) => questions - before[i]!)
  }
  return { clock, milano, paris, pass, seen, asked }
}

const BOTH = ['up, asleep', 'up, asleep']
const MINUTE_MS = 60_000

t.test('the first sleeps when its time has come, the other follows, and both stay asleep', async (t) => {
  const { pass, seen, asked } = pair(t, MINUTE_MS, 10 * MINUTE_MS)
  await pass(50_000)
  t.strictSame(seen(), ['up', 'up'])
  await pass(12_000)
  t.equal(seen()[0], 'up, asleep')
  await pass(FOLLOW_MS + SETTLE_MS)
  t.strictSame(seen(), BOTH)
  t.strictSame(await asked(60 * MINUTE_MS), [0, 0], 'nothing is asked in an hour')
  t.strictSame(seen(), BOTH)
})

t.test('an end with a stated time does not follow earlier, but after a check it does', async (t) => {
  const { pass, seen, asked } = pair(t, MINUTE_MS, 10 * MINUTE_MS, false)
  await pass(5 * MINUTE_MS)
  t.equal(seen()[1], 'up')
  await pass(6 * MINUTE_MS)
  t.strictSame(seen(), BOTH)
  t.strictSame(await asked(60 * MINUTE_MS), [0, 0])
  await pass(SILENCE_MS + 30_000, false)
  t.strictSame(seen(), BOTH)
})

t.test('a link does not fall asleep in the middle of misses', async (t) => {
  const { milano, paris, clock, pass, seen } = pair(t, undefined, undefined)
  await pass(2 * MINUTE_MS)
  paris.reaches = false
  for (let ms = 0; milano.prober.health().get(KEY)?.misses === 0; ms += 10) {
    if (ms > 3000) throw new Error('no misses')
    await clock.advance(10)
  }
  t.match(milano.prober.health().get(KEY), { state: 'up', suspected: false })
  milano.settle({ afterMs: MINUTE_MS, follows: true })
  t.equal(seen()[0], 'up')
})

t.test('nor while new connections avoid it: nothing would end that', async (t) => {
  const { milano, paris, clock, pass, seen } = pair(t, undefined, undefined)
  const peer = () => milano.prober.health().get(KEY)
  await pass(2 * MINUTE_MS)
  paris.reaches = false
  for (let ms = 0; (peer()?.misses ?? 0) < 5; ms += 10) {
    if (ms > 3000) throw new Error('no misses')
    await clock.advance(10)
  }
  // The last question is missed, and the next one is answered.
  paris.reaches = true
  await clock.advance(500)
  t.match(peer(), { state: 'up', misses: 0, unanswered: true })
  milano.settle({ afterMs: MINUTE_MS, follows: true })
  t.equal(seen()[0], 'up')
  await clock.advance(4000)
  t.match(peer(), { unanswered: false })
  milano.settle({ afterMs: MINUTE_MS, follows: true })
  t.equal(seen()[0], 'up, asleep')
})

t.test('only devices with a sleeping link are read at the short interval', async (t) => {
  const { milano, pass } = pair(t, MINUTE_MS, MINUTE_MS)
  const others = [{ remoteLane: 1, links: [LINK] }] as unknown as readonly LanePlan[]
  t.strictSame(milano.sleeping.devicesOf([...DEVICES, ...others]), [])
  await pass(2 * MINUTE_MS)
  t.strictSame(milano.sleeping.devicesOf([...DEVICES, ...others]), DEVICES)
})

t.test('one packet wakes both within a second, and later they sleep again', async (t) => {
  const { milano, pass, seen, asked } = pair(t, MINUTE_MS, MINUTE_MS)
  await pass(2 * MINUTE_MS)
  t.strictSame(seen(), BOTH)
  milano.carry(64)
  await pass(800)
  t.strictSame(seen(), ['up', 'up'])
  const [first = 0, second = 0] = await asked(10_000)
  t.ok(first >= 9 && second >= 9, `${first} and ${second} questions`)
  await pass(MINUTE_MS)
  t.strictSame(seen(), BOTH)
})

t.test('a link that has just moved does not fall asleep', async (t) => {
  const { milano, pass, seen } = pair(t, MINUTE_MS, undefined)
  await pass(MINUTE_MS - 1600)
  milano.at = parseAddressPort('198.51.100.20:4500')
  await pass(5200)
  t.equal(seen()[0], 'up')
  await pass(4400)
  t.equal(seen()[0], BOTH[0])
})

t.test('keepalives of one end alone are normal: both ends sleep nearly all of the time', async (t) => {
  const { milano, paris, pass } = pair(t, 3 * MINUTE_MS, 3 * MINUTE_MS)
  await pass(4 * MINUTE_MS)
  const ends = [milano, paris]
  const asleep = [0, 0]
  for (let second = 0; second < 600; second += 1) {
    await pass(1000, false)
    if (second % 25 === 0) milano.carry(32)
    for (const [i, { link }] of ends.entries()) if (link === BOTH[0]) asleep[i]! += 1
  }
  t.ok(
    asleep.every((seconds) => seconds > 450),
    `${asleep.join(' and ')} of 600 s`,
  )
})

t.test('a question of the far end wakes: it has another reason', async (t) => {
  const { milano, pass, seen } = pair(t, MINUTE_MS, MINUTE_MS)
  await pass(MINUTE_MS + GRACE_MS + 10_000)
  t.strictSame(seen(), BOTH)
  milano.sleeping.wakeAll('unreadable')
  await pass(1200)
  t.strictSame(seen(), ['up', 'up'])
})

t.test('a far end whose links do not sleep wakes it again', async (t) => {
  const { pass, seen } = pair(t, MINUTE_MS, undefined)
  await pass(MINUTE_MS + 10_000)
  t.strictSame(seen(), ['up, asleep', 'up'])
  await pass(GRACE_MS)
  t.strictSame(seen(), ['up', 'up'])
})

t.test('a path that dies meanwhile', async (t) => {
  const asleepAndCut = async (t: Test) => {
    const two = pair(t, MINUTE_MS, MINUTE_MS)
    await two.pass(2 * MINUTE_MS)
    t.strictSame(two.seen(), BOTH)
    two.milano.reaches = false
    two.paris.reaches = false
    return two
  }
  await t.test('is noticed by the first packet', async (t) => {
    const { milano, pass, seen } = await asleepAndCut(t)
    milano.carry(96)
    await pass(800)
    t.equal(milano.prober.health().get(KEY)?.suspected, true, 'traffic uses other links')
    await pass(2000)
    t.strictSame(seen(), ['down', 'up, asleep'])
  })
  await t.test('because it goes to another place now', async (t) => {
    const { milano, pass, seen } = await asleepAndCut(t)
    milano.at = parseAddressPort('198.51.100.20:4500')
    await pass(800)
    t.equal(milano.prober.health().get(KEY)?.suspected, true)
    await pass(1600)
    t.equal(seen()[0], 'down', 'within RETURN_TRY_MS and MOVE_SETTLES_MS')
  })
  await t.test('or by the missing keepalives', async (t) => {
    const { pass, seen } = await asleepAndCut(t)
    await pass(SILENCE_MS - 30_000)
    t.strictSame(seen(), BOTH)
    await pass(33_000)
    t.strictSame(seen(), ['down', 'down'])
  })
})

t.test('a link that wakes after an hour is not judged by its silence', async (t) => {
  const { milano, paris, pass, seen } = pair(t, MINUTE_MS, MINUTE_MS)
  await pass(60 * MINUTE_MS)
  milano.carry(96)
  paris.reaches = false
  await pass(400)
  await pass(400)
  t.strictSame(seen()[0], 'up', 'suspect first')
  paris.reaches = true
  await pass(2000)
  t.strictSame(seen(), ['up', 'up'])
})
