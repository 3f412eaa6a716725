/** The worker and the gateway node of datapath.ts with IPv4, programs that answer, and a cluster that imports `web`. */
import { ProcSysctl } from '../../../kernel/tuning/proc-sysctl.ts'
import type { KubeObject } from '../../../model/objects.ts'
import type { Netns } from '../../support/netns.ts'
import { TALKER, buildBridge, buildGatewayNode, serving } from './datapath.ts'
import { cluster, endpoint, gateway, membership, node, serviceImport } from './site.ts'
import { IMPORT_PORTS, VIP } from './vip-calls.ts'

/** A pod of the worker, the worker in the pods' network, and pods of the far cluster. */
export const CLIENT = '10.42.1.5'
export const NODE = '10.42.1.1'
export const FAR = ['244.1.0.5', '244.1.0.6'] as const

/** Makes this namespace the worker. */
export async function buildSite(client: Netns, far: Netns): Promise<void> {
  // The kernel's own IPv6 addresses come and go at arbitrary times, and the dumps are compared.
  await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
  await buildBridge([client], { hairpin: 'off' })
  await buildGatewayNode(far)
  await serving(far.spawn(process.execPath, [TALKER, 'serve', ...FAR.map((address) => `${address}:8080`)]))
  await serving(client.spawn(process.execPath, [TALKER, 'serve', `${CLIENT}:8080`]))
  await new ProcSysctl().write('net/ipv4/ip_forward', '0')
}

export function siteObjects(): KubeObject[] {
  return [
    membership(),
    node('gw', '192.168.7.1', '10.42.0.0/24'),
    node('worker', '192.168.7.11', '10.42.1.0/24', 'a'),
    cluster('milano', 1, '244.0.0.0/16'),
    cluster('paris', 2, '244.1.0.0/16'),
    // These are neighbours in the interval set, which nft must return as they were sent.
    cluster('rome', 3, '244.2.0.0/16'),
    cluster('tokyo', 4, '244.3.0.0/16'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up' }, 1400),
    serviceImport('web', VIP, { ports: IMPORT_PORTS }),
  ]
}
