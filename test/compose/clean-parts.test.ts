/**
 * A node cleans up after its site has left. A part that cannot remove its objects does not keep the other parts from
 * removing theirs.
 */
import t from 'tap'
import { cleanParts } from '../../compose/site/clean.ts'
import { WireguardCable } from '../../gateway/cable/wireguard/wireguard-cable.ts'
import { gatewayConfig } from '../../gateway/main.ts'
import { KernelError } from '../../kernel/errors.ts'
import { FakeRouteTable } from '../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../../kernel/fake/fake-wireguard.ts'
import { FakeNft } from '../../kernel/fake/fake-nft.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { NFT_TABLE_GATEWAY, NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const BUSY = new KernelError('EBUSY', 'nft', 'the table of the routeagent stays')
const BUSY6 = new KernelError('EBUSY', 'nft', 'so does the one of IPv6')
const { signal } = new AbortController()

t.test('the gateway is cleaned although the routeagent is not', async (t) => {
  const { nft, nft6, clean } = await leftNode(t)
  nft.failNext(BUSY)
  nft6.failNext(BUSY6)
  await t.rejects(clean(), { message: `${BUSY.message}; ${BUSY6.message}` }, 'all failures are told')
  for (const one of [nft, nft6]) {
    t.ok(one.table(NFT_TABLE_NODE), 'could not be taken out')
    t.notOk(one.table(NFT_TABLE_GATEWAY))
  }
  await clean()
  for (const one of [nft, nft6]) t.notOk(one.table(NFT_TABLE_NODE), 'done again, it goes on')
})

/** Returns a node whose kernel has a table of each part and family. */
async function leftNode(t: Parameters<typeof temporaryFolder>[0]) {
  const [clock, sysctl, routes] = [new FakeClock(), new FakeSysctl({}), new FakeRouteTable({ links: [] })]
  const [nft, nft6] = [new FakeNft(), new FakeNft({ family: 'ip6' })]
  for (const one of [nft, nft6])
    await one.interfere([NFT_TABLE_NODE, NFT_TABLE_GATEWAY].map((table) => ({ verb: 'add-table', table })))
  const stateDir = temporaryFolder(t)
  const cable = new WireguardCable({ clock, routes, wireguard: new FakeWireguard({ routes }), sysctl }, { stateDir })
  const around = { clock, logger: new CapturingLogger(), status: new StatusBoard(), metrics: createMetrics('cli') }
  const deps = { ...around, api: new MemoryApi(), routes, nft, nft6, sysctl, cable }
  const node = { node: 'gw', version: '1', stateDir }
  const configs = { routeagent: node, gateway: gatewayConfig({ ...node, lanes: [{ lane: 0 }] }) }
  return { nft, nft6, clean: () => cleanParts(deps, configs, signal) }
}
