/**
 * One gateway process for tests in network namespaces: real kernel drivers, objects in memory. It reads JSON lines from
 * standard input: `{"put": object}`, `{"drop": [kind, name]}`, and `{"setWallClock": ms}` with the error of its wall
 * clock. It prints what it writes on standard output: `{"object": …}`, `{"gone": [kind, name]}`, `{"left": true}`.
 * Arguments: node, state directory, lanes as JSON.
 */
import { createInterface } from 'node:readline'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { WireguardCable } from '../../../gateway/cable/wireguard/wireguard-cable.ts'
import { gatewayConfig, runGateway } from '../../../gateway/main.ts'
import { NftCommand } from '../../../kernel/nft/nft-command.ts'
import { ProcSysctl } from '../../../kernel/tuning/proc-sysctl.ts'
import { RtnetlinkNextHops } from '../../../kernel/route/rtnetlink-next-hops.ts'
import { Rtnetlink } from '../../../kernel/route/rtnetlink.ts'
import { VethSegmentJoining } from '../../../kernel/tuning/segment-joining.ts'
import { WgCommand } from '../../../kernel/wireguard/wg-command.ts'
import type { Kind, KubeObject } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { createLogger } from '../../../runtime/logging/pino-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'

const [node = '', stateDir = '', init = '{}'] = process.argv.slice(2)
const say = (line: unknown): void => {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

/** A clock that can be set, because a network namespace has no wall clock of its own. */
class SettableClock extends SystemClock {
  wrongByMs = 0

  override now(): number {
    return super.now() + this.wrongByMs
  }
}

const clock = new SettableClock()
const api = new MemoryApi()
for (const kind of ['Endpoint', 'Gateway'] as const) {
  api.cache(kind).onChange((change) => {
    if (change?.type === 'set') say({ object: change.object })
    if (change?.type === 'removed') say({ gone: [kind, change.object.metadata.name] })
  })
}
createInterface({ input: process.stdin }).on('line', (line) => {
  const order = JSON.parse(line) as { put?: KubeObject; drop?: [Kind, string]; setWallClock?: number }
  if (order.put !== undefined) api.put(order.put)
  if (order.setWallClock !== undefined) clock.wrongByMs = order.setWallClock
  if (order.drop !== undefined) api.drop(order.drop[0], order.drop[1])
})

const stopping = new AbortController()
process.once('SIGTERM', () => stopping.abort())
const routes = new Rtnetlink()
const nextHops = new RtnetlinkNextHops()
const sysctl = new ProcSysctl()
const kernel = {
  routes,
  wireguard: new WgCommand({ routes, clock }),
  sysctl,
  joining: new VethSegmentJoining({ clock }),
}
const deps = {
  clock,
  logger: createLogger('gateway', process.env['SEALANE_TEST_LOG'] === '1' ? 'debug' : 'warn'),
  metrics: createMetrics('gateway'),
  status: new StatusBoard(),
  api,
  routes,
  nextHops,
  nft: new NftCommand(),
  nft6: new NftCommand({ family: 'ip6' }),
  cable: new WireguardCable({ ...kernel, clock }, { stateDir }),
  sysctl,
}
await runGateway(
  deps,
  gatewayConfig({ node, version: 'test', stateDir, failClosed: true, ...(JSON.parse(init) as { lanes: [] }) }),
  stopping.signal,
)
say({ left: true })
nextHops.close()
routes.close()
process.exit(0)
