/**
 * A worker of milano, dual-stack, whose member exports some ports, and the program that puts frames into its overlay.
 * The worker is this namespace; `far` stands for eight gateway nodes, with pods of paris and oslo behind them:
 *
 *   web   10.42.1.5 ─┐
 *   other 10.42.1.6 ─┴─ cni0 [ worker ] eth0 192.168.7.11 ── 192.168.7.1 … 192.168.7.8
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { LABEL_DRAIN } from '../../../model/lanes/gateway-node.ts'
import type { KubeObject, Node } from '../../../model/objects.ts'
import { serve } from '../../netns/support/calls.ts'
import {
  type Site,
  buildBridge,
  buildGatewayNode,
  here,
  ip,
  serving,
  startRouteAgent,
} from '../../routeagent/support/datapath.ts'
import { ownSlice } from '../../routeagent/support/own-slice.ts'
import { cluster, dualStack, dualStackNode, endpoint, gateway, node } from '../../routeagent/support/site.ts'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'
import { accessPolicy } from '../../support/objects/access-objects.ts'
import { membershipObject } from '../../support/objects/cluster-objects.ts'
import { exportObject } from '../../support/objects/service-objects.ts'
import { vxlanFrameOf } from './raw-packets.ts'

export const WEB = '10.42.1.5'
export const WEB6 = 'fd00:10:42:1::5'
/** A pod of which nothing is exported. */
export const OTHER = '10.42.1.6'
export const OTHER6 = 'fd00:10:42:1::6'
/** The endpoint of the service `late`, which a test exports and withdraws. */
export const LATE = OTHER
/** A pod of another node of this cluster. */
export const OWN_ELSEWHERE = '10.42.0.9'
export const BRIDGE = '10.42.1.1'
export const WORKER = '192.168.7.11'
export const PARIS = '244.1.0.5'
export const OSLO = '244.3.0.5'
export const OSLO6 = 'fd00:20:42:100::5'
/** All are nodes of milano with a gateway; the last one drains. */
export const GATEWAYS = Array.from({ length: 8 }, (_, i) => `192.168.7.${i + 1}`)
export const DRAINED = { node: 'gw7', address: '192.168.7.8' } as const
const OVERLAY = 4810
/** `exported` is for all members, `offered` for paris only. */
export const PORTS = { exported: 8080, offered: 7070, closed: 9000 } as const
/** Services of `web` that name a port of `web` as FTP and SIP do. */
export const FTP = { port: 2121, opens: 35 * 256 + 140 } as const
export const SIP = { port: 5060, opens: 9100 } as const

export interface AccessWorker {
  readonly web: Netns
  readonly other: Netns
  readonly far: Netns
  readonly site: Site
  /** Puts IP packets into the overlay, in the name of the first gateway node unless another is named. */
  send(packets: readonly Buffer[], from?: string): Promise<void>
}

export async function buildAccessWorker(
  t: Test,
  { web, other, far }: Pick<AccessWorker, 'web' | 'other' | 'far'>,
): Promise<AccessWorker> {
  for (const run of [here, inside(web), inside(other), inside(far)])
    for (const where of ['all', 'default']) await run('sysctl', '-qw', `net.ipv6.conf.${where}.accept_dad=0`)
  await buildBridge([web, other])
  await buildGatewayNode(far)
  await here('sysctl', '-qw', 'net.ipv4.ip_forward=1')
  await ip('address add fd00:10:42:1::1/64 dev cni0')
  await ip(`route add 10.42.0.0/24 via ${GATEWAYS[0]} dev eth0`)
  for (const [pod, address] of [
    [web, WEB6],
    [other, OTHER6],
  ] as const) {
    await pod.exec('ip', ['address', 'add', `${address}/64`, 'dev', 'eth0'])
    await pod.exec('ip', ['-6', 'route', 'add', 'default', 'via', 'fd00:10:42:1::1'])
  }
  const lines = [
    '-6 neighbour replace fe80::5ea1:c0a8:70b lladdr 0a:5e:c0:a8:07:0b dev sealane-vx nud permanent',
    '-6 route add fd00:10:42:1::/64 via fe80::5ea1:c0a8:70b dev sealane-vx onlink',
    'address add fd00:20:42::5/128 dev lo',
    `address add ${OSLO}/32 dev lo`,
    `address add ${OSLO6}/128 dev lo`,
    ...GATEWAYS.slice(1).map((address) => `address add ${address}/24 dev eth0`),
  ]
  for (const line of lines) await far.exec('ip', line.split(' '))
  await Promise.all([serve(t, web), serve(t, other), serve(t, far)])
  for (const server of [FTP_SERVER, SIP_SERVER]) await serving(web.spawn(process.execPath, ['-e', server]))
  const site = startRouteAgent(t, objects())
  await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
  await eventually(async () => (await ip('rule')).includes('blackhole'), { say: 'the rules' })
  await eventually(async () => (await here('nft', 'list', 'map', 'ip6', 'sealane_node', 'access')).includes(WEB6), {
    say: 'the ports',
  })
  return { web, other, far, site, send: sender(t, far) }
}

const FTP_SERVER = `
  require('node:net').createServer((socket) => {
    socket.on('error', () => undefined)
    socket.write('220 hello\\r\\n')
    socket.on('data', () => socket.write('227 Entering Passive Mode (${WEB.replaceAll('.', ',')},35,140)\\r\\n'))
  }).listen(${FTP.port}, () => console.log('ready'))`

/** It accepts each call (RFC 3261), and names the port for its media (RFC 4566). */
const SIP_SERVER = `
  const { createSocket } = require('node:dgram'), socket = createSocket('udp4')
  const lines = ['SIP/2.0 200 OK', 'Call-ID: 1', 'CSeq: 1 INVITE', 'Content-Type: application/sdp', '', 'v=0',
    'o=- 1 1 IN IP4 ${WEB}', 's=-', 'c=IN IP4 ${WEB}', 't=0 0', 'm=audio ${SIP.opens} RTP/AVP 0', '']
  socket.on('message', (_, from) => socket.send(lines.join('\\r\\n'), from.port, from.address))
  socket.bind(${SIP.port}, () => console.log('ready'))`

/** Sends what each line of its input names, in that order, and prints a line when it is sent. */
const SENDER = `
  const { createSocket } = require('node:dgram'), sockets = new Map()
  const open = (from) => new Promise((resolve) => {
    const socket = createSocket('udp4').bind(0, from, () => resolve(socket))
  })
  let last = Promise.resolve()
  require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { from, frames } = JSON.parse(line)
    last = last.then(async () => {
      if (!sockets.has(from)) sockets.set(from, await open(from))
      for (const hex of frames) await new Promise((resolve) =>
        sockets.get(from).send(Buffer.from(hex, 'hex'), ${OVERLAY}, '${WORKER}', resolve))
      console.log('sent')
    })
  })`

function sender(t: Test, far: Netns): AccessWorker['send'] {
  const child = spawn('ip', ['netns', 'exec', far.name, process.execPath, '-e', SENDER], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  const waiting: (() => void)[] = []
  createInterface({ input: child.stdout }).on('line', () => waiting.shift()?.())
  return (packets, from = GATEWAYS[0] ?? '') =>
    new Promise((resolve) => {
      waiting.push(resolve)
      const frames = packets.map((one) => vxlanFrameOf(WORKER, one))
      child.stdin.write(`${JSON.stringify({ from, frames })}\n`)
    })
}

const both = (port: number) =>
  (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port }))

function objects(): KubeObject[] {
  const web6 = ownSlice('web', [WEB6], both(PORTS.exported))
  const api6 = ownSlice('api', [WEB6], both(PORTS.offered))
  const names = (i: number): string => (i === 0 ? 'gw' : `gw${i}`)
  return [
    membershipObject({ exposure: 'exports' }),
    ...GATEWAYS.map((address, i) => {
      const made = node(names(i), address, `10.42.${i === 0 ? 0 : i + 1}.0/24`)
      if (address === DRAINED.address) return drained(made)
      return i === 0 ? dualStackNode(made, 'fd00:10:42::/64') : made
    }),
    dualStackNode(node('worker', WORKER, '10.42.1.0/24'), 'fd00:10:42:1::/64'),
    dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd00:10:42::/56'),
    dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd00:20:42::/56'),
    dualStack(cluster('oslo', 3, '244.3.0.0/16'), 'fd00:20:42:100::/56'),
    ...GATEWAYS.map((_, i) => endpoint('milano', names(i), i)),
    gateway('gw', { paris: 'up', oslo: 'up' }, 1400),
    exportObject({ name: 'web' }),
    ownSlice('web', [WEB], both(PORTS.exported)),
    { ...web6, metadata: { ...web6.metadata, name: 'web-6' }, addressType: 'IPv6' },
    exportObject({ name: 'api' }),
    ownSlice('api', [WEB], both(PORTS.offered)),
    { ...api6, metadata: { ...api6.metadata, name: 'api-6' }, addressType: 'IPv6' },
    accessPolicy('shop/api', { targetRefs: [{ name: 'api' }], from: [{ clusters: ['paris'] }] }),
    ownSlice('late', [LATE], both(PORTS.exported)),
    exportObject({ name: 'ftp' }),
    ownSlice('ftp', [WEB], [{ name: 'ftp', protocol: 'TCP', port: FTP.port }]),
    exportObject({ name: 'sip' }),
    ownSlice('sip', [WEB], [{ name: 'sip', protocol: 'UDP', port: SIP.port }]),
  ]
}

function drained(made: Node): Node {
  return { ...made, metadata: { ...made.metadata, labels: { ...made.metadata.labels, [LABEL_DRAIN]: '' } } }
}

function inside(ns: Netns): (command: string, ...args: string[]) => Promise<string> {
  return (command, ...args) => ns.exec(command, args)
}
