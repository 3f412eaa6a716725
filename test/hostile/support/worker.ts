/**
 * The worker of test/routeagent/support/datapath.ts as dual-stack, with services of its own, and with a machine on its
 * network that is not a node:
 *
 *   pod 10.42.1.5 ── cni0 [ worker: this namespace ] eth0 192.168.7.11 ──┬── 192.168.7.1 gateway node, paris behind it
 *                                                                         └── 192.168.7.99 on the same machine: no node
 */
import { spawn } from 'node:child_process'
import type { Test } from 'tap'
import type { KubeObject } from '../../../model/objects.ts'
import {
  type Site,
  buildBridge,
  buildGatewayNode,
  here,
  ip,
  serving,
  settled,
  startRouteAgent,
} from '../../routeagent/support/datapath.ts'
import {
  cluster,
  dualStack,
  dualStackNode,
  endpoint,
  gateway,
  membership,
  node,
  serviceImport,
} from '../../routeagent/support/site.ts'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'
import { HOST_SERVICES } from './raw-packets.ts'

export const POD = '10.42.1.5'
export const POD6 = 'fd00:10:42:1::5'
/** Pods of paris. */
export const FAR = '244.1.0.5'
export const FAR6 = 'fd00:20:42::5'
/** A pod of rome. No honest machine sends from its address. */
export const ROME = '244.2.0.9'
export const ROME6 = 'fd00:20:42:100::9'
export const WORKER = '192.168.7.11'
export const GATEWAY = '192.168.7.1'
export const STRANGER = '192.168.7.99'
/** The worker's address on the bridge of its pods. */
export const BRIDGE = '10.42.1.1'
export const BRIDGE6 = 'fd00:10:42:1::1'
export const HOST_PORT = 10250
/** A node port that leads to the pod, as kube-proxy sets it up. */
export const NODE_PORT = 30080

export interface Worker {
  readonly pod: Netns
  readonly far: Netns
  readonly site: Site
}

export async function buildWorker(t: Test, pod: Netns, far: Netns): Promise<Worker> {
  for (const run of [here, inside(pod), inside(far)]) {
    for (const where of ['all', 'default']) await run('sysctl', '-qw', `net.ipv6.conf.${where}.accept_dad=0`)
  }
  await buildBridge([pod])
  await buildGatewayNode(far)
  await here('sysctl', '-qw', 'net.ipv4.ip_forward=1')
  await ip(`address add ${BRIDGE6}/64 dev cni0`)
  await inside(pod)('ip', 'address', 'add', `${POD6}/64`, 'dev', 'eth0')
  await inside(pod)('ip', '-6', 'route', 'add', 'default', 'via', BRIDGE6)
  const lines = [
    '-6 neighbour replace fe80::5ea1:c0a8:70b lladdr 0a:5e:c0:a8:07:0b dev sealane-vx nud permanent',
    '-6 route add fd00:10:42:1::/64 via fe80::5ea1:c0a8:70b dev sealane-vx onlink',
    `address add ${FAR6}/128 dev lo`,
    `address add ${STRANGER}/24 dev eth0`,
  ]
  for (const line of lines) await inside(far)('ip', ...line.split(' '))
  for (const [family, to] of [
    ['ip', POD],
    ['ip6', `[${POD6}]`],
  ] as const) {
    await here('nft', `add table ${family} proxy`)
    await here('nft', `add chain ${family} proxy ports { type nat hook prerouting priority -100; }`)
    await here('nft', `add rule ${family} proxy ports fib daddr type local tcp dport ${NODE_PORT} dnat to ${to}:8080`)
  }
  await serving(pod.spawn(process.execPath, ['-e', HOST_SERVICES, '8080']))
  const services = spawn(process.execPath, ['-e', HOST_SERVICES, String(HOST_PORT)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => services.kill())
  await serving(services)
  const site = startRouteAgent(t, objects())
  await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
  await settled(site, /no-backends: 245.0.0.7/)
  return { pod, far, site }
}

function objects(): KubeObject[] {
  return [
    membership(),
    dualStackNode(node('gw', GATEWAY, '10.42.0.0/24'), 'fd00:10:42::/64'),
    dualStackNode(node('worker', WORKER, '10.42.1.0/24'), 'fd00:10:42:1::/64'),
    dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd00:10:42::/56'),
    dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd00:20:42::/56'),
    dualStack(cluster('rome', 3, '244.2.0.0/16'), 'fd00:20:42:100::/56'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up', rome: 'up' }, 1400),
    serviceImport('web', '245.0.0.7'),
  ]
}

function inside(ns: Netns): (command: string, ...args: string[]) => Promise<string> {
  return (command, ...args) => ns.exec(command, args)
}
