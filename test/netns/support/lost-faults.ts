/** Faults of plain sites for which processes are restarted, and kernel state that is lost or has no room. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROUTE_TABLE_LANES } from '../../../model/kernel-ids.ts'
import { type Fault, type Undo, chain, firewall, machineOf, program, repeating } from './fault.ts'
import type { Netns } from '../../support/netns.ts'
import type { FaultSites } from './fault-story.ts'
import { otherRelease } from './other-release.ts'
import type { Machine, PlainSite } from './plain-sites.ts'
import { LANES } from './site-faults.ts'

/**
 * The addresses at which paris and roma are called are not configured, so the first address of each machine is used.
 */
export const UNADDRESSED_SITES: FaultSites = [
  {
    ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1', 'gw2'] },
    spec:
      '  gateways: [{ node: gw1, publicAddress: 192.0.11.2 }, { node: gw2, publicAddress: 192.0.12.2 }]\n' +
      `  dns: { listen: ['10.42.1.1:53', '10.42.2.1:53'] }\n`,
  },
  {
    ...{ name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] },
    spec: `  gateways: [{ node: gw1 }]\n  dns: { listen: ['10.52.1.1:53'] }\n`,
  },
  {
    ...{ name: 'roma', uplinks: '198.52', pods: '10.62', nodes: ['gw1'] },
    spec: `  gateways: [{ node: gw1 }]\n  dns: { listen: ['10.62.1.1:53'] }\n`,
  },
]

const PARIS = '198.51.11.2'
const ROMA = '198.52.11.2'

/** Limits that are reached, and a machine that was not updated with the others. */
const ROOM: readonly Fault[] = [
  {
    name: 'a gateway is of a much later release',
    found: { 'milano/gw1': ['VersionSkew'], 'milano/gw2': ['VersionSkew'] },
    ends: { from: 'roma/gw1', to: '10.42.2.1', asks: 'milano', outcome: 'REACHABLE' },
    inject: async ({ milano }) => {
      const gw2 = milano.machine('gw2')
      const own = gw2.program
      const again = async (program: string): Promise<void> => {
        await gw2.stop()
        gw2.program = program
        milano.up('gw2')
      }
      await again(otherRelease(join(milano.folder, 'other-release'), '0.9.0'))
      return () => again(own)
    },
  },
  {
    name: 'the table of connections is full',
    found: { 'paris/gw1': ['ConnectionTableFull'] },
    ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', at: ['node', 'ConnectionTableFull'] },
    inject: (world) => manyConnections(machineOf(world, 'paris/gw1')),
  },
]

/** The other sites notice a site that is gone, so no other fault is made at the same time. */
const SETTINGS: readonly Fault[] = [
  {
    name: 'the DNS asks itself for other names',
    found: { 'roma/gw1': ['DnsLoop'] },
    ends: { from: 'roma/gw1', to: 'web.shop', asks: 'paris', at: ['name', 'DnsLoop'] },
    inject: ({ roma }) =>
      otherSpec(roma, "listen: ['10.62.1.1:53']", "listen: ['10.62.1.1:53'], upstreams: ['10.62.1.1:53']"),
  },
]

const ROUTES: readonly Fault[] = [
  {
    name: 'somebody deletes the routes',
    found: { 'milano/gw1': ['KernelRoutesMissing'] },
    ends: { from: 'milano/gw1', to: '10.52.1.1', asks: 'paris', at: ['node', 'KernelRoutesMissing'] },
    inject: (world) => repeating(machineOf(world, 'milano/gw1').netns, `ip route flush table ${ROUTE_TABLE_LANES}`),
  },
  {
    name: 'a clock is ten minutes ahead, and all certificates count',
    found: { 'paris/gw1': ['BrokerClockDiffers'] },
    // Tunnels compare no clocks. Of the two ends, the other one sees how old the reports of paris are.
    ends: { from: 'roma/gw1', to: '10.52.1.1', asks: 'paris', outcome: 'REACHABLE' },
    inject: async ({ paris }) => {
      const gw1 = paris.machine('gw1')
      const again = async (environment: NodeJS.ProcessEnv): Promise<void> => {
        await kill(gw1)
        gw1.environment = environment
        paris.up('gw1')
      }
      await again(clockAhead('10m'))
      return () => again({})
    },
  },
]

/** Packets that are too long disappear without an ICMP error: a black hole (RFC 2923, section 2.1). */
const NARROW: readonly Fault[] = [
  {
    name: 'long packets vanish on the way',
    found: { 'milano/gw1': ['PathMtuReduced'], 'roma/gw1': ['PathMtuReduced'] },
    ends: { from: 'milano/gw1', to: '10.52.1.1', asks: 'paris', outcome: 'REACHABLE' },
    inject: async (world) => {
      const { internet, milano, roma } = world
      const calls = [milano.machine('gw1'), roma.machine('gw1')].map((from) => callsWithLongPackets(from, '10.52.1.1'))
      const open = await firewall(
        internet,
        chain('forward', `ip daddr ${PARIS} udp dport ${LANES} meta length > 1350 drop`),
      )
      return async () => {
        await open()
        for (const call of calls) call.kill('SIGKILL')
      }
    },
  },
]

/** A machine that loses its power; and a process that is killed, while the kernel still carries. */
const DEAD: readonly (readonly Fault[])[] = [
  [
    {
      name: 'one of two gateways is dead',
      found: { 'milano/gw1': ['GatewaySilent'], 'paris/gw1': ['FarGatewayUnreached'] },
      ends: { from: 'paris/gw1', to: '10.42.1.1', asks: 'milano', outcome: 'REACHABLE' },
      inject: async ({ milano }) => {
        const gw2 = milano.machine('gw2')
        await gw2.lose()
        return async () => {
          await gw2.reconnect()
          milano.up('gw2')
        }
      },
    },
  ],
  [
    {
      name: 'the only process of a site is dead',
      found: { 'roma/gw1': ['NothingRuns'] },
      ends: { from: 'milano/gw1', to: '10.62.1.1', asks: 'roma', outcome: 'REACHABLE' },
      inject: async ({ roma }) => {
        await kill(roma.machine('gw1'))
        return () => roma.up('gw1')
      },
    },
  ],
]

/** Both sites can only make outgoing calls, and each is seen with a changing port. This is so before they join. */
export const HIDDEN: Fault = {
  name: 'two sites are behind address translation that lets nobody in',
  found: { 'paris/gw1': ['NeitherEndCallable'], 'roma/gw1': ['NeitherEndCallable'] },
  ends: { from: 'paris/gw1', to: '10.62.1.1', at: ['link', 'NeitherEndCallable'] },
  inject: ({ internet }) => hide(internet),
}

/** Each site has an outside address of its own, because an address that two sites share counts for neither. */
export function hide(internet: Netns): Promise<Undo> {
  const seenAs = `{ ${PARIS} : 203.0.114.51, ${ROMA} : 203.0.114.52 }`
  const out = `chain out { type nat hook postrouting priority srcnat; snat to ip saddr map ${seenAs} random; }`
  const ends = `{ ${PARIS}, ${ROMA} }`
  return firewall(internet, `${out}\n${chain('forward', `ct state new ip saddr ${ends} ip daddr ${ends} drop`)}`)
}

/**
 * The clocks of roma and of the broker are ahead together, so roma's certificate has expired; for the broker, those of
 * the other sites have expired too.
 */
const CLOCKS: readonly Fault[] = [
  {
    name: 'a clock is two days off, and a certificate has ended',
    found: { 'roma/gw1': ['CertificateExpired'], 'paris/gw1': ['ClockDiffers'] },
    // Tunnels compare no clocks and use no certificates.
    ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', outcome: 'REACHABLE' },
    inject: async ({ broker, roma, startBroker }) => {
      const again = async (environment: NodeJS.ProcessEnv, flags: readonly string[] = []): Promise<void> => {
        await Promise.all([broker, roma.machine('gw1')].map((machine) => kill(machine)))
        broker.environment = environment
        roma.machine('gw1').environment = environment
        startBroker(flags)
        roma.up('gw1')
      }
      // With a grace time, the broker would renew the certificate at once.
      await again(clockAhead('2d'), ['--renewal-grace', '0s'])
      return () => again({})
    },
  },
]

export const LOST_ROUNDS: readonly (readonly Fault[])[] = [ROOM, SETTINGS]

/** These come after all is well again, since a site that has just restarted is silent to the others for a while. */
export const LATER_ROUNDS: readonly (readonly Fault[])[] = [ROUTES, NARROW]

export const DEAD_ROUNDS: readonly (readonly Fault[])[] = [CLOCKS, ...DEAD]

async function kill(machine: Machine): Promise<void> {
  machine.signal('SIGKILL')
  await machine.ended()
}

/** Changes the wall clock alone; durations stay correct. */
function clockAhead(by: string): NodeJS.ProcessEnv {
  return { LD_PRELOAD: FAKETIME, FAKETIME: `+${by}`, FAKETIME_DONT_FAKE_MONOTONIC: '1' }
}
/** Debian's dynamic linker finds the library in this folder. */
const FAKETIME = `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu/faketime/libfaketimeMT.so.1`

/** Restarts the site's only process, because it reads its file only at the start. */
async function otherSpec(site: PlainSite, from: string, to: string): Promise<Undo> {
  const before = readFileSync(site.file, 'utf8')
  const again = async (text: string): Promise<void> => {
    await kill(site.machine('gw1'))
    writeFileSync(site.file, text)
    site.up('gw1')
  }
  await again(before.replace(from, to))
  return () => again(before)
}

function callsWithLongPackets(from: Machine, to: string): ReturnType<Machine['netns']['spawn']> {
  return from.netns.spawn('ping', ['-q', '-i', '0.2', '-s', '1300', '-M', 'dont', '-I', from.podAddress, to])
}

/** Sends packets to addresses of no machine, each of another connection, until the kernel has no room for more. */
async function manyConnections({ netns }: Machine): Promise<Undo> {
  // A bridge without ports that resolves no neighbour takes every packet and sends none.
  await netns.exec('ip', ['link', 'add', 'sink', 'type', 'bridge'])
  await netns.exec('ip', ['link', 'set', 'sink', 'arp', 'off', 'up'])
  await netns.exec('ip', ['route', 'add', '198.18.0.0/15', 'dev', 'sink'])
  const stop = await program(netns, FILLS)
  return async () => {
    await stop()
    await netns.exec('ip', ['link', 'del', 'sink'])
    // The command fails if no connection is left.
    await netns.tryExec('conntrack', ['-D', '-p', 'udp', '--orig-dst', '198.18.0.0', '--mask-dst', '255.254.0.0'])
  }
}

const FILLS = `const { readFileSync } = require('node:fs')
const read = (what) => Number(readFileSync('/proc/sys/net/netfilter/nf_conntrack_' + what, 'utf8'))
const enough = read('max') * 0.97
const socket = require('node:dgram').createSocket('udp4')
let next = 0
const fill = () => {
  const missing = Math.min(4000, Math.ceil(enough - read('count')))
  for (let i = 0; i < missing; i++, next = (next + 1) % (20 * 65535)) {
    socket.send('x', 1 + (next % 65535), '198.18.0.' + (1 + Math.floor(next / 65535)))
  }
  setTimeout(fill, missing > 0 ? 5 : 200)
}
socket.bind(0, () => { fill(); console.log('ready') })`
