import { join } from 'node:path'
import { WireguardCable } from '../../../../gateway/cable/wireguard/wireguard-cable.ts'
import { FakeRouteTable } from '../../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../../../../kernel/fake/fake-wireguard.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { cableCompliance } from '../../../compliance/cable.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { endpoint, key } from '../../support/worlds.ts'

cableCompliance((t) => {
  const clock = new FakeClock()
  const routes = new FakeRouteTable()
  const wireguard = new FakeWireguard({ routes })
  const deps = { clock, routes, wireguard, sysctl: new FakeSysctl() }
  return {
    cable: new WireguardCable(deps, { stateDir: join(temporaryFolder(t), 'gw') }),
    routes,
    endpointOf: (cluster, node) => endpoint(cluster, node, 0, [], key(`${cluster}-${node}`)),
    onReason: ({ identity }, at) => {
      wireguard.handshake('sealane0', identity, clock.now(), at)
      wireguard.traffic('sealane0', identity, 100, 0)
    },
    nowMs: () => clock.monotonic(),
  }
})
