/** A cable without keys, and the whole gateway over it. */
import t from 'tap'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import type { Endpoint } from '../../../model/objects.ts'
import { farEnd } from '../../../gateway/links/check-remotes.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { cableCompliance } from '../../compliance/cable.ts'
import { PlainCable } from '../support/plain-cable.ts'
import { PARIS, STAGE_ROUTES, Stage } from '../support/stage.ts'
import { cluster, endpoint } from '../support/worlds.ts'

/** All gateways publish the same placeholder where WireGuard would have a key. */
function plain(clusterId: string, node: string, candidates: readonly string[] = []): Endpoint {
  const made = endpoint(clusterId, node, 0, candidates, 'none')
  return { ...made, spec: { ...made.spec, capabilities: ['plain'] } }
}

cableCompliance(() => {
  const clock = new FakeClock()
  const routes = new FakeRouteTable()
  const cable = new PlainCable(routes, 'milano/gw')
  return {
    cable,
    routes,
    endpointOf: plain,
    onReason: (end, at) => cable.onReason(end, clock.monotonic(), at),
    nowMs: () => clock.monotonic(),
  }
})

void t.test('nothing outside the cable knows a key: a gateway from its first start to its last day', async (t) => {
  const routes = new FakeRouteTable(STAGE_ROUTES)
  const cable = new PlainCable(routes, 'milano/gw')
  const stage = new Stage(t, { routes, cable })
  stage.start()
  const [paris, tokyo] = [plain('paris', 'gw', ['public 198.51.100.20:4500']), plain('tokyo', 'gw')]
  stage.put(PARIS, paris, cluster('tokyo', 3, '10.42.0.0/16', '244.2.0.0/16'), tokyo)
  await stage.until(() => stage.gateway()?.connections.length === 2, 'both are links')
  t.strictSame(stage.gateway()?.lanes, [{ lane: 0, remoteLane: 0, device: 'sealane0', mtu: 1472, driver: 'plain' }])
  t.match(stage.ownEndpoint()?.spec, { publicKey: 'none', capabilities: ['plain'] })
  t.match(stage.connection('paris')?.message, 'UDP 198.51.100.20:4500')
  t.match(stage.status.plans().get('gateway'), 'link paris.gw-lane0: try 198.51.100.20:4500')

  const nat = parseAddressPort('203.0.113.9:61000')
  cable.onReason(farEnd(paris, cable.rules), stage.clock.monotonic(), nat)
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'paris answers')
  t.match(stage.connection('paris'), { usingAddress: '203.0.113.9:61000', usingNat: true, rxBytes: 100 })
  t.equal(stage.connection('tokyo')?.state, 'connecting')
  t.ok(
    stage.routed().some((line) => line.startsWith('ip route replace 244.1.0.0/16 dev sealane0')),
    'traffic has a way',
  )

  // Another gateway of paris takes the lane: it is called first, and carries traffic once it answers.
  const next = plain('paris', 'gw2', ['public 198.51.100.21:4500'])
  const annotations = { 'sealane.io/published-at': '2026-11-23T12:00:00Z' }
  stage.put({ ...next, metadata: { ...next.metadata, annotations } })
  const gw2 = farEnd(next, cable.rules)
  await stage.until(() => stage.status.plans().get('gateway')?.includes('paris.gw2-lane0') === true, 'it is called')
  t.equal(stage.connection('paris')?.endpoint, 'paris.gw-lane0', 'and not sent to')
  await stage.until(() => isThere(() => cable.onReason(gw2, stage.clock.monotonic())), 'it is heard')
  await stage.until(() => stage.connection('paris')?.endpoint === 'paris.gw2-lane0', 'it has the lane')

  const strange = endpoint('osaka', 'gw', 0, [])
  stage.put(cluster('osaka', 4, '10.42.0.0/16', '244.3.0.0/16'), strange)
  const refusal = () => stage.logger.lines.find(({ fields }) => fields['subject'] === 'Endpoint osaka.gw-lane0')
  await stage.until(() => refusal() !== undefined, 'one that speaks of another cable')
  t.match(refusal()?.fields, { reason: 'InvalidValue', why: 'expected plain' })
  await stage.stop()
})

function isThere(onReason: () => void): boolean {
  try {
    onReason()
    return true
  } catch {
    return false
  }
}
