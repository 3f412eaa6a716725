/**
 * The devices of a gateway, one for each lane number of the others: how they are made, what they share, and how they
 * are removed.
 */
import t, { type Test } from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import { MILANO, PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { DUAL_MILANO, endpoint } from './support/worlds.ts'

/** Paris has two gateways in use and then loses one, so the device towards that one is left over. */
async function withOneLaneLess(t: Test, milano = MILANO): Promise<Stage> {
  const stage = new Stage(t)
  stage.put(milano)
  const second = endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])
  stage.put(PARIS, PARIS_GW, second)
  for (const address of ['246.0.2.0', '246.0.2.1']) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => wayToParis(stage).includes('sealane0') && wayToParis(stage).includes('sealane1'), 'two links')
  stage.wireguard.handshake('sealane0', PARIS_GW.spec.publicKey, stage.clock.now())
  stage.wireguard.handshake('sealane1', second.spec.publicKey, stage.clock.now())
  // The routes change before the status reports the reason, and the next process goes by the status.
  await stage.until(() => stage.gateway()?.up === '2/2', 'two links are reported')
  await stage.stop()
  stage.objects.drop('Endpoint', second.metadata.name)
  return stage
}

const wayToParis = (stage: Stage): string => stage.routed().find((line) => line.includes('244.1.0.0/16')) ?? ''

t.test('a device that no gateway of others needs is swept', async (t) => {
  const stage = await withOneLaneLess(t)
  const deleteLink = stage.routes.deleteLink.bind(stage.routes)
  let whenItWent = ''
  stage.routes.deleteLink = async (name, signal) => {
    await deleteLink(name, signal)
    whenItWent = wayToParis(stage)
  }
  stage.start()
  await stage.until(() => !stage.wireguard.deviceNames().includes('sealane1'), 'one link')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
  t.match(whenItWent, / dev sealane0 /, 'what it carried goes over the other lane by then')
})

t.test('another number: another address and key on the same device, and another Endpoint', async (t) => {
  const stage = new Stage(t)
  stage.put(MILANO, PARIS, PARIS_GW)
  stage.start({ lanes: [{ lane: 1 }] })
  await stage.until(() => stage.objects.cache('Endpoint').get('milano.gw-lane1') !== undefined, 'lane 1')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'], 'towards lane 0 of paris')
  await stage.stop()
  stage.start()
  await stage.until(() => stage.objects.cache('Endpoint').get('milano.gw-lane1') === undefined, 'lane 0')
  t.not(stage.ownEndpoint(), undefined)
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
  const addresses = (await stage.routes.addresses()).filter(({ device }) => device === 'sealane0')
  t.strictSame(
    addresses.map(({ address }) => address),
    ['246.0.1.0/32'],
  )
})

t.test('a lane that cannot be taken away stays under its policy, for IPv6 too', async (t) => {
  const stage = await withOneLaneLess(t, DUAL_MILANO)
  t.match(stage.nft6.toString(), 'sealane1')
  stage.put(MILANO)
  const deleteDevice = stage.wireguard.deleteDevice.bind(stage.wireguard)
  stage.wireguard.deleteDevice = () => Promise.reject(new KernelError('EBUSY', 'ip link del sealane1', 'busy'))
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'it says so')
  t.match(stage.gateway()?.failure, /ip link del sealane1/)
  for (const nft of [stage.nft, stage.nft6]) t.match(nft.toString(), 'sealane1')
  stage.wireguard.deleteDevice = deleteDevice
  const isNamed = (): boolean => [stage.nft, stage.nft6].some((nft) => nft.toString().includes('sealane1'))
  await stage.until(() => !isNamed(), 'both go')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
})

t.test('a gateway of the last release with another number: no link, and the log says why', async (t) => {
  const stage = new Stage(t)
  const old = endpoint('paris', 'gw2', 5, ['public 198.51.100.21:4505'])
  const reasons = (): readonly unknown[] =>
    stage.logger.lines.filter(({ fields }) => fields['reason'] === 'OtherLaneOnly').map(({ fields }) => fields['why'])
  stage.put(MILANO, PARIS, { ...old, spec: { ...old.spec, capabilities: ['wireguard'] } })
  stage.start()
  await stage.until(() => reasons().length === 1, 'it is told')
  t.match(reasons()[0], 'it has 5, and this node serves 0')
  await stage.until(() => stage.gateway()?.connections.length === 0, 'no link is tried')
  stage.put(PARIS_GW)
  await stage.until(() => stage.gateway()?.connections.length === 1, 'its gateway with our number is linked with')
  await stage.pass(2000)
  t.equal(reasons().length, 1, 'then nothing is missing')
})

t.test('one key and one address on all devices, and one prober for all links', async (t) => {
  const stage = new Stage(t)
  const second = endpoint('paris', 'gw2', 5, ['public 198.51.100.21:4505'])
  stage.put(MILANO, PARIS, PARIS_GW, second)
  for (const address of ['246.0.2.0', '246.0.2.5']) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => stage.gateway()?.up === '2/2', 'both links')
  const keys = await Promise.all(['sealane0', 'sealane5'].map((device) => stage.wireguard.read(device)))
  t.equal(new Set(keys.map((state) => state?.publicKey)).size, 1)
  t.strictSame(
    keys.map((state) => state?.listenPort),
    [4500, 4505],
  )
  const addresses = (await stage.routes.addresses()).filter(({ device }) => device.startsWith('sealane'))
  t.strictSame(new Set(addresses.map(({ address }) => address)), new Set(['246.0.1.0/32']))
  t.strictSame([...stage.probes.open.keys()], ['246.0.1.0'])
  const links = stage.gateway()?.connections.map(({ lane, remoteLane, state }) => `${lane}-${remoteLane} ${state}`)
  t.strictSame(links, ['0-0 up', '0-5 up'])
  t.strictSame(stage.ownEndpoint()?.spec.capabilities, ['wireguard', 'follows-keys', 'all-pairs', 'sized-probes'])
  stage.probes.alive.delete('246.0.2.5')
  await stage.until(
    () => wayToParis(stage) === 'ip route replace 244.1.0.0/16 dev sealane0 table 7311 proto 173 src 10.42.0.1',
    'one link is down',
  )
  t.equal(stage.gateway()?.connections[0]?.state, 'up', 'the other stays')
})
