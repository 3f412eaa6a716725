/** A member states ranges that hold the broker and its own gateway: what this gateway sends to them uses the uplink. */
import t from 'tap'
import { MILANO, PARIS, msUntilUp } from '../gateway/support/two-gateways.ts'
import { cluster } from '../gateway/support/worlds.ts'
import { serving } from '../routeagent/support/datapath.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { attackLane } from './support/lane-up.ts'
import { HOST_SERVICES, knockAt } from './support/raw-packets.ts'

t.setTimeout(60_000 * SLOWNESS)

const BROKER = '203.0.113.2'
const RANGE = '203.0.113.0/28'

await attackLane(t, [MILANO, PARIS], async (milano, paris, internet) => {
  const { gateway } = milano.site
  await internet.exec('ip', ['address', 'add', `${BROKER}/32`, 'dev', 'lo'])
  await serving(internet.spawn(process.execPath, ['-e', HOST_SERVICES, `7443@${BROKER}`]))
  await attack('own-gateway-in-range', async (t) => {
    t.equal(await knockAt(gateway, 'tcp', BROKER, 7443), 'connected', 'before')
    const evil = cluster('paris', 2, '198.51.100.0/24')
    milano.process.put({ ...evil, spec: { ...evil.spec, podCIDRs: [RANGE, '198.51.100.0/24'] } })
    const routes = (): Promise<string> => gateway.exec('ip', ['route', 'show', 'table', 'all'])
    await eventually(async () => new RegExp(`^${RANGE} (nhid \\d+ )?dev sealane0`, 'm').test(await routes()), {
      say: 'the range is routed',
    })
    for (const protocol of ['tcp', 'udp'] as const) {
      t.equal(await knockAt(gateway, protocol, BROKER, 7443), 'connected', `the broker is reached by ${protocol}`)
    }
    await msUntilUp(milano, paris)
    const way = await gateway.exec('ip', ['route', 'get', '198.51.100.20', 'mark', '0x1073'])
    t.match(way, /dev uplink/, 'what WireGuard sends to the gateway in that range goes by the uplink')
  })
})
