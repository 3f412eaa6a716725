/**
 * The processes of one node for tests in network namespaces: routeagent and, if lanes are given, gateway. Real kernel
 * drivers, objects in memory. JSON lines on standard input bring the objects (`{"put": object}`), and end all waits of
 * loops (`{"wake": true}`); it prints on standard output what it writes (`{"object": …}`). Arguments: node, state
 * directory, lanes as JSON. With SEALANE_TEST_TUNED=1 it joins segments and spreads packets over processors as the
 * product does, for measurements. With SEALANE_TEST_FAVOURED=1 it raises its priority as the product does.
 * SEALANE_TEST_STATUS_MS is the interval of its reports, SEALANE_TEST_OVERLAY_PORT the UDP port of the overlay. With
 * SEALANE_TEST_FAIL_CLOSED=0, failClosed is not stated, else it is true.
 */
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { WireguardCable } from '../../../gateway/cable/wireguard/wireguard-cable.ts'
import { type GatewayConfigInit, gatewayConfig, runGateway } from '../../../gateway/main.ts'
import { Conntrack } from '../../../kernel/nfnetlink/ctnetlink.ts'
import { NftCommand } from '../../../kernel/nft/nft-command.ts'
import { SysfsPacketSteering } from '../../../kernel/tuning/packet-steering.ts'
import { ProcSysctl } from '../../../kernel/tuning/proc-sysctl.ts'
import { SysfsReceiveCoalescing, VethSegmentJoining } from '../../../kernel/tuning/segment-joining.ts'
import { RtnetlinkNextHops } from '../../../kernel/route/rtnetlink-next-hops.ts'
import { Rtnetlink } from '../../../kernel/route/rtnetlink.ts'
import { XfrmPolicies } from '../../../kernel/xfrm/xfrm-policies.ts'
import { WgCommand } from '../../../kernel/wireguard/wg-command.ts'
import type { KubeObject } from '../../../model/objects.ts'
import { runRouteAgent } from '../../../routeagent/main.ts'
import { createLogger } from '../../../runtime/logging/pino-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { favourProcess } from '../../../runtime/process-resources.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { JumpingClock } from '../../support/jumping-clock.ts'

if (process.env['SEALANE_TEST_FAVOURED'] === '1') favourProcess()
const [node = '', stateDir = '', lanesText = '[]'] = process.argv.slice(2)
const lanes = JSON.parse(lanesText) as GatewayConfigInit['lanes']

const api = new MemoryApi()
for (const kind of ['Endpoint', 'Gateway', 'RouteAgent'] as const) {
  api.cache(kind).onChange((change) => {
    if (change?.type === 'set') process.stdout.write(`${JSON.stringify({ object: change.object })}\n`)
  })
}
const clock = new JumpingClock()
createInterface({ input: process.stdin }).on('line', (line) => {
  const { put, wake } = JSON.parse(line) as { put?: KubeObject; wake?: true }
  if (put !== undefined) api.put(put)
  if (wake === true) clock.jump(0)
})

const stopping = new AbortController()
process.once('SIGTERM', () => stopping.abort())
const routes = new Rtnetlink()
const nextHops = new RtnetlinkNextHops()
const common = {
  clock,
  logger: createLogger('node', process.env['SEALANE_TEST_LOG'] === '1' ? 'debug' : 'warn'),
  api,
  routes,
  nextHops,
  nft: new NftCommand(),
  nft6: new NftCommand({ family: 'ip6' }),
  sysctl: new ProcSysctl(),
  forwardPolicies: new XfrmPolicies(),
  connections: new Conntrack({ clock }),
  ...(process.env['SEALANE_TEST_TUNED'] === '1'
    ? {
        steering: new SysfsPacketSteering(),
        coalescing: new SysfsReceiveCoalescing(),
        joining: new VethSegmentJoining({ clock }),
      }
    : {}),
}
const statusMs = process.env['SEALANE_TEST_STATUS_MS']
const pace = statusMs === undefined ? {} : { statusMs: Number(statusMs) }
const overlayPort = process.env['SEALANE_TEST_OVERLAY_PORT']
const port = overlayPort === undefined ? {} : { overlayPort: Number(overlayPort) }
const closing = process.env['SEALANE_TEST_FAIL_CLOSED'] === '0' ? {} : { failClosed: true }
const deps = (name: string) => ({ ...common, metrics: createMetrics(name), status: new StatusBoard() })
const cable = new WireguardCable(
  { ...common, wireguard: new WgCommand({ routes, clock }) },
  { stateDir: join(stateDir, 'gateway') },
)
await Promise.all([
  runRouteAgent(
    deps('routeagent'),
    { node, stateDir: join(stateDir, 'routeagent'), ...closing, ...port },
    stopping.signal,
  ),
  ...(lanes.length === 0
    ? []
    : [
        runGateway(
          { ...deps('gateway'), cable },
          gatewayConfig({
            ...{ node, version: 'test', stateDir: join(stateDir, 'gateway'), lanes, ...closing },
            ...pace,
          }),
          stopping.signal,
        ),
      ]),
])
nextHops.close()
routes.close()
process.exit(0)
