/** A round of the lane loop plans with what relays have answered while it read the kernel. */
import t from 'tap'
import { PlainCable } from '../../support/plain-cable.ts'
import { MILANO, PARIS, PARIS_GW, STAGE_ROUTES } from '../../support/stage.ts'
import { membership } from '../../support/netns-sites.ts'
import { node } from '../../support/worlds.ts'
import type { LaneState } from '../../../../gateway/cable/cable-driver.ts'
import { LaneLoop } from '../../../../gateway/lanes/lane-loop.ts'
import { whenCachesSynced } from '../../../../gateway/lanes/read-world.ts'
import { gatewayConfig } from '../../../../gateway/main.ts'
import { gatewayMetrics } from '../../../../gateway/world/metrics.ts'
import type { GatewayWorld } from '../../../../gateway/world/gateway-world.ts'
import { Probing } from '../../../../gateway/health/probing.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { FakeRouteTable } from '../../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../../kernel/fake/fake-sysctl.ts'
import { MemoryApi } from '../../../../kubeapi/memory/memory-api.ts'
import { parseAddressPort } from '../../../../model/addresses/address-port.ts'
import { FakeProbes } from '../../../support/fake-probes.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { StatusBoard } from '../../../../runtime/component.ts'
import { createMetrics } from '../../../../runtime/metrics/prometheus-metrics.ts'

type RelayPlaces = NonNullable<GatewayWorld['relayPlaces']>

t.test('a place that a relay gives while the kernel is read is in the plan of the same round', async (t) => {
  const clock = new FakeClock()
  const api = new MemoryApi({ clock })
  for (const object of [membership('milano', 'joined'), MILANO, PARIS, PARIS_GW]) api.put(object)
  api.put(node('gw', '192.0.2.10', '10.42.0.0/24'))
  const [routes, logger, registry] = [new FakeRouteTable(STAGE_ROUTES), new CapturingLogger(), createMetrics('gateway')]
  const given: RelayPlaces = new Map([['paris', [{ cluster: 'oslo', at: parseAddressPort('203.0.113.1:4601') }]]])
  let relayPlaces: RelayPlaces = new Map()
  class AnsweredCable extends PlainCable {
    override observe(...args: Parameters<PlainCable['observe']>): Promise<ReadonlyMap<number, LaneState>> {
      relayPlaces = given
      return super.observe(...args)
    }
  }
  const cable = new AnsweredCable(routes, 'milano/gw')
  const [nft, nft6, sysctl] = [new FakeNft(), new FakeNft({ family: 'ip6' }), new FakeSysctl({})]
  const kernel = { routes, nft, nft6, cable, sysctl }
  const deps = { clock, logger, api, metrics: registry, status: new StatusBoard(), ...kernel }
  const config = gatewayConfig({ node: 'gw', version: '1', stateDir: '', lanes: [{ lane: 0 }], failClosed: true })
  const [metrics, none, stop] = [gatewayMetrics(registry), () => undefined, new AbortController()]
  const { openSocket } = new FakeProbes()
  const events = { onTransition: none, onSuspect: none, onUnanswered: none, onSize: none }
  const probing = new Probing({ clock, logger, metrics, openSocket, ...events }, config)
  const planned: (RelayPlaces | undefined)[] = []
  const relays = {
    get known() {
      return { relayPlaces }
    },
    planned: (world: GatewayWorld) => {
      planned.push(world.relayPlaces)
      stop.abort()
    },
  }
  const lanes = new LaneLoop(deps, { config, metrics, probing, relays, onRound: none })
  await whenCachesSynced(api, stop.signal)
  await lanes.run(stop.signal)
  probing.close()
  t.strictSame(planned, [given])
})
