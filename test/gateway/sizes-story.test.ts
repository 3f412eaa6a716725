/**
 * A path that carries smaller packets than its device: the routes to that cluster follow, other routes do not, and
 * operators are told.
 */
import t, { type Test } from 'tap'
import { CAPABILITY_SIZED_PROBES } from '../../model/lanes/lane-number.ts'
import type { Endpoint, Gateway } from '../../model/objects.ts'
import { HOME, MILANO, PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { DUAL_MILANO, DUAL_PARIS, cluster, endpoint } from './support/worlds.ts'

const TOKYO = cluster('tokyo', 3, '10.42.0.0/16', '244.2.0.0/16')
const TOKYO_GW = endpoint('tokyo', 'gw', 0, ['public 203.0.113.20:4500'])
const SECOND = endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])
const [AT_PARIS, AT_SECOND, AT_TOKYO] = ['246.0.2.0', '246.0.2.1', '246.0.3.0']

const sized = (one: Endpoint): Endpoint => ({
  ...one,
  spec: { ...one.spec, capabilities: [...one.spec.capabilities, CAPABILITY_SIZED_PROBES] },
})

async function withParisAndTokyo(t: Test): Promise<Stage> {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, TOKYO, sized(PARIS_GW), sized(TOKYO_GW))
  for (const address of [AT_PARIS, AT_TOKYO]) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => stage.connection('paris')?.mtu === 1440 && stage.connection('tokyo')?.mtu === 1440, 'sizes')
  return stage
}

const way = (stage: Stage, to: string): string => stage.routed().find((line) => line.includes(to)) ?? 'none'
const mtuOf = (stage: Stage, to: string): string | undefined => / mtu (\d+)/.exec(way(stage, to))?.[1]
const reported = (stage: Stage): string[] =>
  stage.objects.events
    .splice(0)
    .filter(({ reason }) => reason.startsWith('PathMtu'))
    .map(({ type, reason, note }) => `${type} ${reason} ${note}`)

t.test('routes to the cluster follow, those to others and the device stay, and it is told once', async (t) => {
  const stage = await withParisAndTokyo(t)
  t.equal(mtuOf(stage, '244.1.0.0/16'), undefined)
  stage.probes.widths.set(AT_PARIS, 1240)
  await stage.until(() => mtuOf(stage, '244.1.0.0/16') === '1232', 'the route follows')
  t.equal(mtuOf(stage, '244.2.0.0/16'), undefined)
  t.equal(mtuOf(stage, AT_PARIS), undefined, 'probes of all sizes go there')
  await stage.until(() => stage.connection('paris')?.mtu === 1232, 'the status follows')
  t.match(stage.connection('paris'), { state: 'up', message: /^PathMtuReduced: packets larger than 1232 octets/ })
  t.match(stage.connection('tokyo'), { mtu: 1440, message: '' })
  t.equal(stage.gateway()?.lanes[0]?.mtu, 1440)
  await stage.passSlowly(4000)
  t.match(reported(stage), [/^Warning PathMtuReduced lane 0 to lane 0 of paris: packets larger than 1232 octets/])
  stage.probes.widths.clear()
  await stage.until(() => mtuOf(stage, '244.1.0.0/16') === undefined, 'wide again', 100)
  await stage.until(() => stage.connection('paris')?.message === '', 'nothing is wrong')
  await stage.passSlowly(2500)
  t.strictSame(reported(stage), ['Normal PathMtuRestored lane 0 to lane 0 of paris: packets of 1440 octets pass again'])
})

t.test('a gateway that starts anew goes on with what it knew', async (t) => {
  const stage = await withParisAndTokyo(t)
  stage.probes.widths.set(AT_PARIS, 1240)
  await stage.until(() => stage.connection('paris')?.mtu === 1232, 'narrow')
  stage.wireguard.handshake('sealane0', PARIS_GW.spec.publicKey, stage.clock.now(), HOME)
  await stage.stop()
  t.equal(mtuOf(stage, '244.1.0.0/16'), '1232')
  const changes: (string | undefined)[] = []
  stage.start()
  const startMs = stage.clock.monotonic()
  await stage.until(() => {
    changes.push(mtuOf(stage, '244.1.0.0/16'))
    return stage.clock.monotonic() - startMs > 3000
  }, 'three seconds')
  t.strictSame([...new Set(changes)], ['1232'], 'at no time another one')
})

t.test('the narrowest link that carries counts, and one of an earlier release is taken at its word', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW, sized(SECOND))
  for (const address of [AT_PARIS, AT_SECOND]) stage.probes.alive.add(address)
  stage.probes.widths.set(AT_PARIS, 600).set(AT_SECOND, 1300)
  stage.start()
  await stage.until(() => mtuOf(stage, '244.1.0.0/16') === '1296', 'that of the link that can be asked')
  t.match(way(stage, '244.1.0.0/16'), /sealane0.*sealane1/)
  const mtus = (): string => String(stage.gateway()?.connections.map(({ remoteLane, mtu }) => `${remoteLane} ${mtu}`))
  await stage.until(() => mtus() === '0 undefined,1 1296', 'and it is reported')
  stage.probes.alive.delete(AT_SECOND)
  await stage.until(() => mtuOf(stage, '244.1.0.0/16') === undefined, 'it carries no more')
})

t.test('IPv6 goes only over links that carry its least packet', async (t) => {
  const stage = new Stage(t)
  stage.sysctl.provideDevice('sealane1')
  stage.put(DUAL_MILANO, DUAL_PARIS, sized(PARIS_GW), sized(SECOND))
  for (const address of [AT_PARIS, AT_SECOND]) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => /sealane0.*sealane1/.test(way(stage, 'fd42:2::/48')), 'over both')
  stage.probes.widths.set(AT_PARIS, 1220)
  await stage.until(() => !way(stage, 'fd42:2::/48').includes('sealane0'), 'over the other', 100)
  t.match(way(stage, 'fd42:2::/48'), 'sealane1')
  t.match(way(stage, '244.1.0.0/16'), / mtu 1216 .*sealane0.*sealane1/)
})

t.test('what gets through a hostile way is never less than IPv4 needs', async (t) => {
  const stage = await withParisAndTokyo(t)
  stage.probes.widths.set(AT_PARIS, 100)
  await stage.passSlowly(15_000)
  t.equal(stage.connection('paris')?.mtu, 1440, 'no size answers: that is no size')
  stage.probes.widths.set(AT_PARIS, 580)
  await stage.until(() => mtuOf(stage, '244.1.0.0/16') === '576', 'the least', 100)
})

t.test('a link without traffic is looked at as soon as another gateway finds its own narrow', async (t) => {
  const stage = await withParisAndTokyo(t)
  const other = (mtu: number): Gateway => {
    const [paris] = stage.gateway()?.connections.filter(({ cluster }) => cluster === 'paris') ?? []
    const connections = paris === undefined ? [] : [{ ...paris, state: 'up' as const, lane: 1, mtu }]
    const metadata = { name: 'gw2' }
    return {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Gateway',
      metadata,
      status: { version: '1', lanes: [], connections },
    }
  }
  stage.put(other(1440))
  // By now the size that was found when the link came up is confirmed, and no probe is due for ten seconds.
  await stage.passSlowly(1000)
  for (const address of [AT_PARIS, AT_TOKYO]) stage.probes.widths.set(address, 1240)
  await stage.passSlowly(1000)
  t.equal(stage.connection('paris')?.mtu, 1440, 'nobody asked')
  const beganMs = stage.clock.monotonic()
  stage.put(other(1232))
  await stage.until(() => stage.connection('paris')?.mtu === 1232, 'found')
  t.ok(stage.clock.monotonic() - beganMs < 2000, 'at once')
  await stage.until(() => stage.connection('tokyo')?.mtu === 1232, 'and what this one finds, its other links hear of')
  t.ok(stage.clock.monotonic() - beganMs < 3500)
})
