/** The whole gateway against fakes: steps that fail, peers that do not answer, a key that cannot be used. */
import { join } from 'node:path'
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { messageOf } from '../support/failure.ts'
import { endpoint, node } from './support/worlds.ts'
import { NAT, PARIS, PARIS_GW, Stage } from './support/stage.ts'

t.test('a failure is told, the rest is done, and it is tried again', async (t) => {
  const stage = new Stage(t)
  stage.nft.failNext(new KernelError('EPERM', 'nft -f -', 'operation not permitted'))
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failure in the status')
  t.equal(stage.gateway()?.failure, 'RoundFailed: nft -f -: operation not permitted')
  t.strictSame(stage.status.notReady(), ['gateway: nft -f -: operation not permitted'])
  t.strictSame(stage.wireguard.deviceNames(), [], 'no lane without its policy')
  t.equal(await stage.sysctl.read('net.ipv4.ip_forward'), '0')
  await stage.until(() => stage.gateway()?.failure === undefined, 'mended by itself')
  t.strictSame(stage.status.notReady(), [])
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
})

t.test('so many failures that the API would refuse the status are cut to what it takes', async (t) => {
  const stage = new Stage(t)
  stage.nft.failNext(new KernelError('EPERM', 'nft -f -', 'operation not permitted '.repeat(400)))
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failure in the status')
  const { failure = '', conditions = [] } = stage.gateway() ?? {}
  t.equal(failure.length, 4096, 'as long as the CRD lets it be')
  t.match(failure, /^RoundFailed: nft -f -: operation not permitted .*…$/)
  const ready = conditions.find(({ type }) => type === 'Ready')
  const reported = `${ready?.reason ?? ''}: ${ready?.message ?? ''}`
  t.equal(reported.slice(0, 4000), failure.slice(0, 4000), 'the condition says the same')
  await stage.until(() => stage.gateway()?.failure === undefined, 'mended by itself')
})

t.test('a failure that stays does not keep a dead lane in the routes', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  const routed = (): boolean => stage.routed().some((line) => line.includes('244.1.0.0/16'))
  await stage.until(() => stage.connection('paris')?.state === 'up' && routed(), 'up')
  stage.sysctl.read = () => Promise.reject(new KernelError('EPERM', 'sysctl', 'permission denied'))
  stage.put(node('worker', '192.0.2.11', '10.42.1.0/24'))
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failing')
  await stage.pass(20_000)
  stage.probes.alive.clear()
  await stage.until(() => stage.connection('paris')?.state === 'down', 'silent')
  const start = stage.clock.monotonic()
  await stage.until(() => !routed(), 'its prefix has left the lanes')
  t.ok(stage.clock.monotonic() - start <= 1500, `after ${stage.clock.monotonic() - start} ms`)
  t.equal(stage.logger.messages('error').length, 1, 'told once, not at each try')
})

t.test('a device that cannot be made takes nothing from the links on the others', async (t) => {
  const stage = new Stage(t)
  const ensureDevice = stage.wireguard.ensureDevice.bind(stage.wireguard)
  stage.wireguard.ensureDevice = (name, ...rest) =>
    name === 'sealane3'
      ? Promise.reject(new KernelError('EADDRINUSE', 'wg set sealane3', 'port 4503 is taken'))
      : ensureDevice(name, ...rest)
  stage.put(PARIS, endpoint('paris', 'gw3', 3, ['public 198.51.100.23:4503']))
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'another cluster has stated lane 3')
  stage.put(PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  const isUp = (): boolean => stage.gateway()?.connections.some(({ state }) => state === 'up') === true
  await stage.until(isUp, 'the link with lane 0 is reported as up')
  t.ok(
    stage.routed().some((line) => line.includes('244.1.0.0/16') && line.includes('sealane0')),
    'and routed',
  )
  t.notOk(stage.routed().some((line) => line.includes('sealane3')))
  t.match(stage.gateway()?.failure, /port 4503 is taken/)
})

t.test('a peer that does not answer is called anew every second, one that shook hands is left alone', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500']))
  const key = PARIS_GW.spec.publicKey
  stage.start()
  await stage.until(() => stage.connection('paris') !== undefined, 'known')
  const calls = (): number => stage.wireguard.touched.filter((one) => one === `sealane0 ${key}`).length
  const during = async (ms: number): Promise<number> => {
    const before = calls()
    await stage.passSlowly(ms)
    return (calls() - before) / 2 // Each change takes a rule out and puts it back.
  }
  const session = async () => (await stage.wireguard.read('sealane0'))?.peers[0]?.lastHandshakeMs
  const eager = await during(10_000)
  t.ok(eager >= 7 && eager <= 10, `${eager} calls in the first 10 s`)
  await stage.passSlowly(10_000)
  stage.clock.setWallClock(stage.clock.now() - 3_600_000)
  const calm = await during(30_000)
  t.ok(calm >= 4 && calm <= 6, `${calm} calls in 30 s after that, though the wall clock went back`)
  const shakenMs = stage.clock.now()
  stage.wireguard.handshake('sealane0', key, shakenMs, NAT)
  t.equal(await during(2500), 0, 'none just after a handshake')
  await stage.passSlowly(30_000)
  for (const address of ['198.51.100.20:4500', '203.0.113.9:61000'])
    await stage.until(() => stage.wireguard.toString().includes(address), 'its candidate, and where it called from')
  t.equal(await session(), shakenMs, 'but the session is kept: it can call us')
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  t.equal(await during(30_000), 0, 'nor when it is up')
})

t.test('an unusable key stops the start', async (t) => {
  const stage = new Stage(t)
  const { mkdirSync, writeFileSync } = await import('node:fs')
  mkdirSync(stage.stateDir, { mode: 0o700 })
  writeFileSync(join(stage.stateDir, 'lane0.key'), 'garbage', { mode: 0o600 })
  stage.start()
  t.equal(
    await messageOf(stage.ended),
    `lane key ${join(stage.stateDir, 'lane0.key')}: not a WireGuard private key (expected 44 characters of base64); restore the file, or remove it to get a new key`,
  )
})
