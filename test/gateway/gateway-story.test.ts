/**
 * The whole gateway against fakes: a sequence of worlds on one node, and the resulting state of its kernel and of the
 * API.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { formatNft } from '../../kernel/nft/nft-text.ts'
import type { Node } from '../../model/objects.ts'
import { routeAgent } from '../routeagent/support/site.ts'
import { membership } from './support/netns-sites.ts'
import { HOME, MILANO, NAT, PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { DUAL_MILANO, DUAL_PARIS, endpoint, node } from './support/worlds.ts'

t.test('from the first start to the last day', async (t) => {
  const stage = new Stage(t)
  stage.start()

  await stage.until(
    () => stage.gateway() !== undefined && stage.ownEndpoint() !== undefined,
    'alone: the lane is there and told about',
  )
  t.strictSame(stage.ownEndpoint()?.spec.candidates, [{ kind: 'private', address: '192.0.2.10', port: 4500 }])
  t.equal(stage.ownEndpoint()?.spec.publicKey, (await stage.wireguard.read('sealane0'))?.publicKey)
  const { conditions: _conditions, heartbeatTime, ...reported } = stage.gateway()!
  t.strictSame(reported, {
    version: '1',
    lanes: [{ lane: 0, remoteLane: 0, device: 'sealane0', mtu: 1440, driver: 'wireguard-userspace' }],
    connections: [],
    up: '0/0',
  })
  t.ok(Math.abs(Date.parse(heartbeatTime ?? '') - stage.clock.now()) < 1000, 'the status has a time')
  t.equal(await stage.sysctl.read('net.ipv4.ip_forward'), '1')
  t.equal(await stage.sysctl.read('net/ipv4/conf/sealane0/rp_filter'), '2')
  t.strictSame(stage.status.notReady(), [])

  stage.put(PARIS, PARIS_GW)
  await stage.until(() => stage.connection('paris')?.state === 'connecting', 'paris is known')
  t.match(stage.wireguard.toString(), 'Endpoint = 198.51.100.20:4500')
  t.strictSame(
    stage.routed().filter((line) => line.includes('route')),
    ['ip route replace 246.0.2.0/32 dev sealane0 table 7311 proto 173 src 246.0.1.0'],
    'probes have a way, traffic has none',
  )
  t.match(
    stage.connection('paris')?.message,
    /^no handshake yet: this gateway (sends|starts to send) to UDP 198\.51\.100\.20:4500 and receives nothing: open UDP 4500 at the other gateway \(public address, candidate 1 of 2\)$/,
  )

  await stage.pass(5000)
  await stage.until(
    () => stage.wireguard.toString().includes('Endpoint = 10.0.0.2:4500'),
    'the second candidate has its turn',
  )

  const paris = PARIS_GW.spec.publicKey
  stage.wireguard.handshake('sealane0', paris, stage.clock.now(), NAT)
  stage.wireguard.traffic('sealane0', paris, 1000, 2000)
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'paris answers')
  t.ok(
    stage.routed().includes('ip route replace 244.1.0.0/16 dev sealane0 table 7311 proto 173 src 10.42.0.1'),
    'traffic has a way',
  )
  const { rttMs: _rtt, loss: _loss, handshakeAgeSeconds: _age, candidates, ...connection } = stage.connection('paris')!
  t.equal(candidates?.[0]?.state, 'in-use')
  t.strictSame(connection, {
    cluster: 'paris',
    lane: 0,
    remoteLane: 0,
    endpoint: 'paris.gw-lane0',
    state: 'up',
    message: '',
    usingAddress: '203.0.113.9:61000',
    usingNat: true,
    rxBytes: 1000,
    txBytes: 2000,
  })

  const touched = stage.wireguard.touched.length
  const transactions = stage.nft.accepted.length
  await stage.pass(65_000)
  t.equal(stage.wireguard.touched.length, touched, 'a peer that is up is left alone, its roamed address too')
  t.equal(stage.nft.accepted.length, transactions, 'and so is the nft table')

  stage.probes.alive.clear()
  await stage.until(() => stage.connection('paris')?.state === 'down', 'paris is silent')
  await stage.until(
    () => !stage.routed().some((line) => line.includes('244.1.0.0/16')),
    'its prefix has left the lanes',
  )
  t.ok(
    stage.routed().some((line) => line.includes('246.0.2.0/32')),
    'probes go on',
  )
  t.match(stage.wireguard.toString(), '203.0.113.9:61000', 'its address is kept for a while')
  await stage.pass(5000)
  await stage.until(
    () => stage.wireguard.toString().includes('Endpoint = 198.51.100.20:4500'),
    'then the candidates have their turn',
  )

  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'paris is back')
  await stage.stop()
  t.ok(
    stage.routed().some((line) => line.includes('244.1.0.0/16')),
    'stopping leaves the data path',
  )
  t.strictSame(stage.nft.tableNames(), ['sealane_gateway'])

  stage.start()
  const peers = stage.wireguard.touched.length
  await stage.until(() => stage.probes.open.size === 1, 'started again')
  t.equal(stage.wireguard.touched.length, peers, 'sessions live on')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'and paris is up')

  stage.put(membership('milano', 'leaving'))
  await stage.until(() => stage.objects.cache('Gateway').get('gw') === undefined, 'left')
  await stage.ended
  t.equal(stage.kernel(), stage.before, 'the kernel is as it was')
  t.equal(await stage.sysctl.read('net.ipv4.ip_forward'), '0')
  t.equal(stage.ownEndpoint(), undefined)
  t.notOk(existsSync(join(stage.stateDir, 'lane0.key')))
  t.ok(stage.objects.cache('Endpoint').get('paris.gw-lane0'), 'what is not ours stays')
})

t.test('a restart never takes the traffic away, not even for a moment', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(
    () => stage.wireguard.deviceNames().length > 0 && stage.connection('paris') !== undefined,
    'connecting',
  )
  stage.wireguard.handshake('sealane0', PARIS_GW.spec.publicKey, stage.clock.now(), HOME)
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  await stage.stop()
  const seen: string[] = []
  stage.routes.onChange(() =>
    seen.push(stage.routed().some((line) => line.includes('244.1.0.0/16')) ? 'routed' : 'lost'),
  )
  stage.objects.cache('Gateway').onChange((change) => {
    if (change?.type === 'set') seen.push(change.object.status?.connections[0]?.state ?? 'none')
  })
  seen.length = 0
  stage.start()
  await stage.pass(3000)
  t.strictSame(
    seen.filter((word) => word !== 'up' && word !== 'routed'),
    [],
  )
  await stage.stop()

  stage.probes.alive.clear()
  stage.start()
  await stage.until(
    () => stage.connection('paris')?.state === 'down',
    'what is taken over is believed until the probes speak',
  )
  await stage.stop()

  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'down is not taken over')
  await stage.stop()
  stage.clock.setWallClock(stage.clock.now() + 181_000)
  stage.probes.alive.clear()
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'connecting', 'nor is a tunnel without a session')
})

const OFF = 'net/ipv6/conf/sealane0/disable_ipv6'

t.test('IPv6 comes and goes with the pod CIDR', async (t) => {
  const stage = new Stage(t)
  const sixes = (): string[] =>
    stage
      .kernel()
      .split('\n')
      .filter((line) => /-6 |ip6/.test(line))
  const forwarding = async (): Promise<string | undefined> => stage.sysctl.read('net.ipv6.conf.all.forwarding')
  await stage.routes.addAddress({ device: 'cni0', address: 'fd42:1::1/64' })
  // The node behaves as if net.ipv6.conf.default.disable_ipv6 were 1.
  stage.sysctl.provide(OFF, '1')
  const before = stage.kernel()
  // An earlier process was killed and has left this table.
  await stage.nft6.run([{ verb: 'add-table', table: 'sealane_gateway' }])
  stage.put(DUAL_PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  const alone = stage.kernel()
  t.strictSame(sixes(), [], 'nothing of IPv6 without a pod CIDR of it')
  t.notMatch(alone, 'fd42:2')
  t.strictSame([await forwarding(), await stage.sysctl.read(OFF)], ['0', '1'])

  stage.put(DUAL_MILANO)
  await stage.until(() => stage.kernel().includes('fd42:2::/48 dev sealane0'), 'IPv6 is carried')
  t.strictSame(sixes(), [
    'ip -6 route replace fd42:2::/48 dev sealane0 table 7311 proto 173 src fd42:1::1',
    'ip -6 rule add not fwmark 0x1073 priority 74 lookup 7311 protocol 173',
    'ip6 sealane_gateway',
  ])
  t.match(stage.wireguard.toString(), 'AllowedIPs = 244.1.0.0/16, fd42:2::/48, 246.0.2.0/32')
  t.strictSame([await forwarding(), await stage.sysctl.read(OFF)], ['1', '0'])
  const transactions = stage.nft6.accepted.length
  await stage.pass(65_000)
  t.equal(stage.nft6.accepted.length, transactions, 'the table is left alone')

  stage.put(MILANO)
  await stage.until(() => stage.nft6.tableNames().length === 0, 'the table is gone')
  t.equal(stage.kernel(), alone, 'and so is all the rest')
  stage.put(DUAL_MILANO)
  await stage.until(() => sixes().length === 3, 'it is back')

  stage.put(membership('milano', 'leaving'))
  await stage.ended
  t.equal(stage.kernel(), before, 'the kernel is as it was')
  t.equal(await forwarding(), '0')
})

t.test('a kernel without IPv6 carries IPv4, and says so', async (t) => {
  const stage = new Stage(t)
  const read = stage.sysctl.read.bind(stage.sysctl)
  stage.sysctl.read = (name) => (name.startsWith('net/ipv6/') ? Promise.resolve(undefined) : read(name))
  stage.routes.replaceRoute = notIpv6(stage.routes.replaceRoute.bind(stage.routes))
  stage.put(DUAL_MILANO, DUAL_PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  t.equal(stage.gateway()?.failure, undefined)
  t.strictSame(stage.status.notReady(), [])
  t.notMatch(stage.kernel(), /-6 |ip6|fd42/)
  t.match(stage.wireguard.toString(), 'AllowedIPs = 244.1.0.0/16, 246.0.2.0/32')
  const why = 'this kernel has no IPv6, so its lanes carry only IPv4'
  t.strictSame(
    stage.logger.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields),
    [{ subject: 'Node gw', reason: 'IPv6NotInKernel', why }],
  )
})

/** Replaces routes as a kernel without IPv6 does: it refuses IPv6 destinations. */
function notIpv6(replace: Stage['routes']['replaceRoute']): Stage['routes']['replaceRoute'] {
  return (route, signal) =>
    route.destination.includes(':')
      ? Promise.reject(new KernelError('EOPNOTSUPP', 'ip -6 route replace', 'not supported by this kernel'))
      : replace(route, signal)
}

t.test('without the policy of IPv6 there is no lane', async (t) => {
  const stage = new Stage(t)
  stage.put(DUAL_MILANO)
  stage.nft6.failNext(new KernelError('EPERM', 'nft -f -', 'operation not permitted'))
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failure in the status')
  t.equal(stage.gateway()?.failure, 'RoundFailed: nft -f -: operation not permitted')
  t.strictSame(stage.wireguard.deviceNames(), [])
  await stage.until(() => stage.gateway()?.failure === undefined, 'mended by itself')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
})

t.test('drift is repaired', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  const good = stage.kernel()
  const sessions = stage.wireguard.touched.length
  for (const route of await stage.routes.routes()) await stage.routes.deleteRoute(route)
  await stage.until(() => stage.kernel() === good, 'routes are back after the notification')
  await stage.nft.run([{ verb: 'flush-table', table: 'sealane_gateway' }])
  await stage.pass(60_000)
  await stage.until(() => stage.nft.toString().includes('jump from-lane'), 'the table is back after a resync')
  await stage.wireguard.deleteDevice('sealane0')
  await stage.until(() => stage.kernel() === good, 'the device is back')
  await stage.until(() => stage.wireguard.toString().includes('Endpoint = 198.51.100.20:4500'), 'its peer is called')
  // A round that read the device before it was deleted adds the peer without its address; the next round replaces it.
  t.ok(stage.wireguard.touched.length <= sessions + 3, 'and not again and again')
})

t.test('behind NAT: tells its own address all the same, and keeps the mapping alive', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.start({ observedAddress: '203.0.113.1' })
  await stage.until(() => stage.ownEndpoint() !== undefined && stage.connection('paris') !== undefined, 'told')
  t.strictSame(
    stage.ownEndpoint()?.spec.candidates.map((c) => `${c.kind} ${c.address}`),
    ['private 192.0.2.10', 'observed 203.0.113.1'],
  )
  t.match(stage.wireguard.toString(), 'PersistentKeepalive = 10')
})

t.test('with port forwarding: called at the public address', async (t) => {
  const stage = new Stage(t)
  stage.start({ observedAddress: '203.0.113.1', lanes: [{ lane: 0, publicAddress: '203.0.113.1' }] })
  await stage.until(() => stage.ownEndpoint() !== undefined, 'told')
  t.strictSame(
    stage.ownEndpoint()?.spec.candidates.map((c) => `${c.kind} ${c.address}`),
    ['public 203.0.113.1', 'private 192.0.2.10'],
  )
})

t.test('a narrower path makes the lane narrower, without a new session', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  const touched = stage.wireguard.touched.length
  await stage.routes.setLink('eth0', { mtu: 1400 })
  await stage.until(() => stage.gateway()?.lanes[0]?.mtu === 1340, '1400 - 60')
  t.equal(stage.wireguard.touched.length, touched)
})

t.test('not joined yet: waits, and says so', async (t) => {
  const stage = new Stage(t)
  stage.objects.drop('Membership', 'self')
  stage.start()
  await stage.until(
    () => stage.status.notReady().includes('gateway: the Cluster object of this cluster does not exist yet'),
    'says so',
  )
  t.equal(stage.kernel(), stage.before)
  stage.put(membership('milano', 'joined'))
  await stage.until(() => stage.gateway() !== undefined, 'then it works')
  stage.objects.drop('Membership', 'self')
  await stage.until(() => stage.gateway() === undefined, 'a membership that vanishes is a departure')
  await stage.ended
  t.equal(stage.kernel(), stage.before)
})

t.test('where the pods of another node are is one element; the table stays', async (t) => {
  const stage = new Stage(t)
  stage.start()
  await stage.until(() => stage.gateway() !== undefined, 'up')
  const changes = stage.nft.accepted.length
  const other: Node = node('worker', '192.0.2.11', '10.42.1.0/24')
  const sent = (): string[] => stage.nft.accepted.slice(changes).map((statements) => formatNft(statements, 'ip').trim())
  stage.put(other)
  await stage.until(() => sent().length > 0, 'its range is told')
  stage.put(routeAgent('worker', '10.42.7.0/26', '10.42.0.9/32', '10.99.0.0/16', 'nonsense'))
  await stage.until(() => sent().length > 1, 'its RouteAgent knows better')
  stage.put(routeAgent('worker', '10.42.7.0/26', '10.42.0.9/32'))
  await stage.passSlowly(2000)
  const element = (verb: string, elements: string): string =>
    `${verb} element ip sealane_gateway elsewhere {\n${elements}\n}`
  t.strictSame(sent(), [
    element('add', '10.42.1.0/24'),
    `${element('delete', '10.42.1.0/24')}\n${element('add', '10.42.7.0/26')}`,
  ])

  stage.put(PARIS, PARIS_GW)
  const isTracked = (): boolean => stage.nft.toString().includes('iifname sealane-vx ip saddr @elsewhere ')
  await stage.until(isTracked, 'the only gateway tracks calls of pods whose node is not known')
  stage.put(endpoint('milano', 'worker', 1, []))
  await stage.until(() => !isTracked(), 'one of two gateways does not')
})

t.test('labels that another process is to put on its objects come once, though nothing else differs', async (t) => {
  const stage = new Stage(t)
  stage.start()
  const own = () => [stage.objects.get('Gateway', 'gw'), stage.objects.get('Endpoint', 'milano.gw-lane0')]
  await stage.until(() => own().every((object) => object !== undefined), 'both are there')
  await stage.stop()
  const apply = stage.objects.apply.bind(stage.objects)
  const applied: string[] = []
  // The driver of a real cluster adds such labels when the operator's configuration asks for them.
  stage.objects.apply = (object, signal) => {
    applied.push(object.kind)
    const labels = { ...object.metadata.labels, team: 'net' }
    return apply({ ...object, metadata: { ...object.metadata, labels } }, signal)
  }
  stage.start()
  await stage.until(() => own().every((object) => object?.metadata.labels?.['team'] === 'net'), 'both have it')
  await stage.pass(60_000)
  t.same(applied.sort(), ['Endpoint', 'Gateway'], 'and are left alone')
})
