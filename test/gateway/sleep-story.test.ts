/** A gateway whose links sleep: what it reports, what it sends, and when it wakes them. */
import t, { type Test } from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import type { GatewayConfigInit } from '../../gateway/main.ts'
import { PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { cluster, endpoint } from './support/worlds.ts'

const AT_PARIS = '246.0.2.0'

async function withParis(t: Test, init: Partial<GatewayConfigInit>, members = 2): Promise<Stage> {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  for (let i = 3; i <= members; i += 1) stage.put(cluster(`c${i}`, i, `10.${100 + i}.0.0/16`))
  stage.probes.alive.add(AT_PARIS)
  stage.start(init)
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  return stage
}

const link = (stage: Stage): string => {
  const { state, asleep } = stage.connection('paris') ?? {}
  return `${state} ${asleep}`
}
const ASLEEP = 'up true'
const AWAKE = 'up undefined'
const sent = (stage: Stage): number => stage.probes.sent.filter(({ to }) => to === AT_PARIS).length

t.test('an idle link is reported as asleep and keeps its routes, and a packet wakes it', async (t) => {
  const stage = await withParis(t, { sleepAfterMs: 5000 })
  await stage.until(() => link(stage) === ASLEEP, 'asleep')
  t.match(stage.connection('paris'), { rttMs: undefined, loss: undefined }, 'nothing is measured')
  const measures = /sealane_gateway_connection_(rtt|jitter|loss)\w*\{/
  t.notMatch(await stage.metrics.text(), measures)
  const [before, routes] = [sent(stage), stage.routed()]
  await stage.passSlowly(10_000)
  t.equal(sent(stage), before, 'no probes')
  t.strictSame(stage.routed(), routes)
  t.equal(stage.gateway()?.up, '1/1')
  t.equal(link(stage), ASLEEP)
  stage.wireguard.traffic('sealane0', PARIS_GW.spec.publicKey, 0, 96)
  await stage.passSlowly(900)
  t.ok(sent(stage) > before, 'asked within a second')
  await stage.until(() => link(stage) === AWAKE, 'reported')
})

t.test('if a link fails, the sleeping ones that would carry its traffic next are checked', async (t) => {
  const second = endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW, second)
  for (const address of [AT_PARIS, '246.0.2.1']) stage.probes.alive.add(address)
  stage.start({ sleepAfterMs: 5000 })
  const links = (): string =>
    (stage.gateway()?.connections ?? []).map(({ state, asleep }) => `${state} ${asleep}`).join()
  await stage.until(() => links() === `${ASLEEP},${ASLEEP}`, 'both asleep')
  stage.probes.alive.clear()
  stage.wireguard.traffic('sealane0', PARIS_GW.spec.publicKey, 0, 96)
  const startMs = stage.clock.monotonic()
  await stage.until(() => links() === 'down undefined,down undefined', 'both down')
  t.ok(stage.clock.monotonic() - startMs < 5000, 'without traffic on the second one')
})

t.test('devices that cannot be read wake it: its first packet would not be noticed', async (t) => {
  const stage = await withParis(t, { sleepAfterMs: 5000 })
  await stage.until(() => link(stage) === ASLEEP, 'asleep')
  const before = sent(stage)
  stage.wireguard.read = () => Promise.reject(new KernelError('UNKNOWN', 'wg show sealane0 dump', 'broken'))
  await stage.until(() => sent(stage) > before, 'probes')
})

t.test('and devices whose reading does not end', async (t) => {
  const stage = await withParis(t, { sleepAfterMs: 5000 })
  await stage.until(() => link(stage) === ASLEEP, 'asleep')
  const before = sent(stage)
  stage.wireguard.read = (_name, signal) =>
    new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(new Error('ended'))))
  await stage.until(() => sent(stage) > before, 'probes')
})

t.test('by default after ten minutes in clustersets of more than 50 members, and never if so stated', async (t) => {
  const large = await withParis(t, {}, 51)
  const startMs = large.clock.monotonic()
  await large.until(() => link(large) === ASLEEP, 'asleep', 500)
  const seconds = Math.round((large.clock.monotonic() - startMs) / 1000)
  t.ok(seconds >= 599 && seconds <= 610, `after ${seconds} s`)
  large.objects.drop('Cluster', 'c51')
  await large.until(() => link(large) === AWAKE, 'members left, and it wakes', 500)
  for (const [init, members] of [
    [{}, 50],
    [{ sleepAfterMs: 0 }, 51],
  ] as const) {
    const stage = await withParis(t, init, members)
    const endMs = stage.clock.monotonic() + 620_000
    let slept = false
    const look = (): boolean => {
      slept ||= link(stage) === ASLEEP
      return stage.clock.monotonic() > endMs
    }
    await stage.until(look, 'ten minutes', 500)
    t.equal(slept, false, `${members} members, ${JSON.stringify(init)}`)
  }
})
