/**
 * The failure table, as far as plain sites can have it. The faults of one round are present at the same time, each on a
 * machine of its own.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Fault,
  type FaultWorld,
  type MachinePath,
  type Undo,
  chain,
  firewall,
  insisting,
  machineOf,
  program,
  repeating,
} from './fault.ts'

/** The broker's second address. */
export const SECOND_ADDRESS = '203.0.113.3'
export const UPSTREAM = { address: '203.0.113.2', port: 5353 }
/** A DNS server that answers every query with NXDOMAIN. */
const UPSTREAM_SERVER = `const s = require('node:dgram').createSocket('udp4')
s.on('message', (m, at) => { m[2] |= 0x80; m[3] = 3; s.send(m, at.port, at.address) })
s.bind(${UPSTREAM.port}, () => console.log('ready'))`
const SQUATTER = `require('node:dgram').createSocket('udp4').bind(4500, () => console.log('ready'))`

const PARIS = '198.51.11.2'
const GW1 = '192.0.11.2'

/** The other program starts before the gateway does, because otherwise the gateway has the port. */
export const PORT_TAKEN: Fault = {
  name: 'another program has the port of a gateway',
  found: { 'roma/gw1': ['PortTaken'] },
  ends: { from: 'roma/gw1', to: '10.52.1.1', asks: 'paris', at: ['link', 'PortTaken'] },
  inject: (world) => program(machineOf(world, 'roma/gw1').netns, SQUATTER),
}

/** The server that roma's DNS forwards other names to. */
export function startUpstream({ broker }: FaultWorld): Promise<Undo> {
  return program(broker.netns, UPSTREAM_SERVER)
}

/** Settings of the kernel, and limits that are reached. */
const KERNELS: readonly Fault[] = [
  {
    name: 'sources are checked strictly',
    found: { 'milano/gw1': ['StrictReversePath'] },
    ends: {
      from: 'milano/gw1',
      to: '10.62.1.1',
      asks: 'roma',
      outcome: 'AMBIGUOUS',
      at: ['gateway', 'StrictReversePath'],
    },
    inject: (world) =>
      insisting(machineOf(world, 'milano/gw1').netns, '/proc/sys/net/ipv4/conf/sealane0/rp_filter', '1'),
  },
  {
    name: 'a process may open few files',
    found: { 'milano/gw2': ['FilesNearlyOut'] },
    ends: { from: 'milano/gw2', to: '10.62.1.1', asks: 'roma', outcome: 'REACHABLE' },
    inject: (world) => fewFiles(machineOf(world, 'milano/gw2').pid),
  },
  {
    name: 'the kernel hands on nothing',
    found: { 'paris/gw1': ['ForwardingOff'] },
    ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', at: ['node', 'ForwardingOff'] },
    inject: (world) => insisting(machineOf(world, 'paris/gw1').netns, '/proc/sys/net/ipv4/ip_forward', '0'),
  },
  {
    name: 'the disk of the state is full',
    found: { 'roma/gw1': ['DiskFull'] },
    ends: { from: 'roma/gw1', to: '10.42.1.1', asks: 'milano', outcome: 'REACHABLE' },
    inject: ({ roma }) => fill(join(roma.folder, 'state', 'fill')),
  },
]

/** Firewalls on the machine, and a program that removes what is ours. */
const TABLES: readonly Fault[] = [
  {
    name: 'a firewall hands on nothing',
    found: { 'milano/gw1': ['FirewallDrops'] },
    ends: { from: 'milano/gw1', to: '10.62.1.1', asks: 'roma', at: ['node', 'FirewallDrops'] },
    inject: (world) => firewall(machineOf(world, 'milano/gw1').netns, chain('forward', '', 'drop')),
  },
  {
    name: 'a firewall keeps callers from the DNS',
    found: { 'milano/gw2': ['DnsServerSilent'] },
    ends: { from: 'milano/gw2', to: 'web.shop', asks: 'paris', at: ['name', 'DnsServerSilent'] },
    inject: (world) => firewall(machineOf(world, 'milano/gw2').netns, chain('input', 'udp dport 53 drop')),
  },
  {
    name: 'the whole ruleset is flushed',
    found: { 'paris/gw1': ['KernelTableMissing'] },
    ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', at: ['gateway', 'KernelTableMissing'] },
    inject: (world) => repeating(machineOf(world, 'paris/gw1').netns, 'nft flush ruleset'),
  },
]

const NONE = '{ clusterIP: None, ports: [{ port: 80 }] }'

/** Faults of DNS queries and of exports. */
const SERVICES: readonly (readonly Fault[])[] = [
  [
    exported(
      'a ServiceExport without a Service',
      'milano',
      'NoService',
      { from: 'roma/gw1', to: 'ghost.shop', asks: 'milano', at: ['name', 'NoService'] },
      service('ghost', '{}').slice(1),
    ),
    {
      name: 'the way to the broker is closed',
      found: { 'paris/gw1': ['BrokerSilent'] },
      ends: { from: 'paris/gw1', to: '10.42.1.1', asks: 'milano', outcome: 'REACHABLE' },
      inject: (world) => firewall(machineOf(world, 'paris/gw1').netns, chain('output', 'tcp dport 7443 drop')),
    },
    {
      name: 'the server that the DNS asks is dead',
      found: { 'roma/gw1': ['DnsUpstreamSilent'] },
      ends: { from: 'roma/gw1', to: 'web.shop', asks: 'paris', outcome: 'REACHABLE' },
      inject: ({ broker }) => firewall(broker.netns, chain('input', `udp dport ${UPSTREAM.port} drop`)),
    },
  ],
  [
    exported(
      'an export of a system namespace',
      'milano',
      'NamespaceNotAllowed',
      { from: 'roma/gw1', to: 'core.kube-system', asks: 'milano', at: ['name', 'NamespaceNotAllowed'] },
      [namespace('kube-system'), ...service('core', NONE, 'kube-system')],
    ),
    exported(
      'an export to a namespace that nobody else has',
      'paris',
      'NotImported',
      { from: 'roma/gw1', to: 'web.alone', asks: 'paris', at: ['name', 'NotImported'] },
      [namespace('alone'), ...service('web', NONE, 'alone', '10.52.1.1')],
    ),
    exported(
      'an export of a Service that is only a name',
      'roma',
      'InvalidServiceType',
      { from: 'milano/gw1', to: 'alias.shop', asks: 'roma', at: ['name', 'InvalidServiceType'] },
      service('alias', '{ type: ExternalName, externalName: example.com }'),
    ),
  ],
  [
    {
      name: 'the only gateway has no address that others could call',
      found: { 'paris/gw1': ['GatewayWithoutIPv4'] },
      ends: { from: 'roma/gw1', to: '10.52.1.1', asks: 'paris', outcome: 'UNDETERMINED' },
      inject: ({ paris }) => {
        const node = (address: string): readonly string[] => [
          `apiVersion: v1\nkind: Node\nmetadata: { name: gw1 }\nspec: { podCIDRs: [10.52.1.0/24] }\n` +
            `status: { addresses: [{ type: InternalIP, address: '${address}' }] }`,
        ]
        paris.write('nodes', node('fd00::1'))
        return () => paris.write('nodes', node(PARIS))
      },
    },
  ],
  // This fault is alone in its round, because the others import the service without a pod.
  [
    exported(
      'a pod outside the ranges with which its site has joined',
      'roma',
      'AddressOutsidePods',
      { from: 'milano/gw1', to: 'lost.shop', asks: 'roma', at: ['backends', 'AddressOutsidePods'] },
      service('lost', NONE, 'shop', '10.99.1.1'),
    ),
  ],
  [
    exported(
      'a Service whose name is too long',
      'milano',
      'NotReadable',
      // No name of DNS has it, so no call goes there: others still arrive.
      { from: 'roma/gw1', to: '10.42.1.1', asks: 'milano', outcome: 'REACHABLE' },
      service('x'.repeat(64), NONE),
    ),
  ],
  [
    {
      name: 'no pod of a service is ready',
      found: {
        'milano/gw1': ['ImportsWithoutBackends'],
        'milano/gw2': ['ImportsWithoutBackends'],
        'roma/gw1': ['ImportsWithoutBackends'],
      },
      ends: { from: 'roma/gw1', to: 'web.shop', asks: 'paris', at: ['backends', 'ImportsWithoutBackends'] },
      inject: ({ paris }) => {
        paris.export('web', paris.machine('gw1'), false)
        return () => paris.export('web', paris.machine('gw1'))
      },
    },
  ],
  [conflict('ports that differ', 'PortConflict', NONE, '{ clusterIP: None, ports: [{ port: 3306 }] }')],
  [conflict('types that differ', 'TypeConflict', NONE, '{ clusterIP: 10.99.0.1, ports: [{ port: 80 }] }')],
]

/** The UDP ports of gateways. */
export const LANES = '4498-4507'

/** Faults of UDP between gateways. */
const WAYS: readonly (readonly Fault[])[] = [
  [
    {
      name: 'a firewall lets no UDP in',
      found: { 'paris/gw1': ['FirewallDrops'], 'milano/gw1': ['UdpOneWay'] },
      ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', at: ['link', 'FirewallDrops'] },
      inject: (world) => firewall(machineOf(world, 'paris/gw1').netns, chain('input', `udp dport ${LANES} drop`)),
    },
  ],
  [
    {
      name: 'a firewall lets no UDP out',
      found: { 'paris/gw1': ['FirewallDrops'] },
      ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', at: ['link', 'FirewallDrops'] },
      inject: (world) => firewall(machineOf(world, 'paris/gw1').netns, chain('output', `udp sport ${LANES} drop`)),
    },
  ],
  [
    {
      name: 'UDP to one site is dropped on the way',
      found: { 'paris/gw1': ['AllClustersCutOff'], 'milano/gw1': ['UdpOneWay'] },
      ends: { from: 'milano/gw1', to: '10.52.1.1', at: ['link', 'UdpOneWay'] },
      inject: ({ internet }) => firewall(internet, chain('forward', `ip daddr ${PARIS} udp dport ${LANES} drop`)),
    },
  ],
  [
    {
      name: 'UDP of one site is dropped on the way, both ways',
      found: { 'paris/gw1': ['AllClustersCutOff'], 'milano/gw1': ['ClusterCutOff'], 'roma/gw1': ['ClusterCutOff'] },
      ends: { from: 'roma/gw1', to: '10.52.1.1', at: ['link', 'ClusterCutOff'] },
      inject: ({ internet }) => firewall(internet, chain('forward', udpOf(PARIS))),
    },
  ],
  [
    {
      name: 'UDP of one of two gateways is dropped on the way',
      found: { 'milano/gw1': ['GatewayCutOff'], 'paris/gw1': ['FarGatewayUnreached'] },
      ends: { from: 'paris/gw1', to: '10.42.1.1', asks: 'milano', outcome: 'REACHABLE' },
      inject: ({ internet }) => firewall(internet, chain('forward', udpOf(GW1))),
    },
  ],
  [
    {
      name: 'a third of the packets is lost',
      found: { 'paris/gw1': ['LinkLossy'] },
      ends: { from: 'paris/gw1', to: '10.62.1.1', asks: 'roma', outcome: 'REACHABLE' },
      inject: ({ internet }) =>
        firewall(internet, chain('forward', `ip daddr ${PARIS} meta l4proto udp numgen random mod 3 == 0 drop`)),
    },
  ],
]

/** A process that exists and does nothing. */
const HANGING: readonly Fault[] = [
  {
    name: 'the only gateway hangs',
    found: { 'roma/gw1': ['NotAnswered'] },
    ends: { from: 'milano/gw1', to: '10.62.1.1', asks: 'roma', outcome: 'REACHABLE' },
    inject: (world) => {
      const gw1 = machineOf(world, 'roma/gw1')
      gw1.signal('SIGSTOP')
      return () => gw1.signal('SIGCONT')
    },
  },
]

const SLOW_MS = 900
/** This is enough for one TLS handshake even on busy processors; a broker that is late would be another fault. */
const RUNS_MS = 150

/** Stops the process in short intervals, like a commit that waits for its disk, while roma publishes something. */
async function slowDisk({ broker, roma }: FaultWorld): Promise<Undo> {
  const stop = new AbortController()
  const pulses = (async (): Promise<void> => {
    for (let n = 0; !stop.signal.aborted; n += 1) {
      roma.write('fault', service('slow', NONE, 'shop', `10.62.1.${1 + (n % 2)}`))
      broker.signal('SIGSTOP')
      await sleep(SLOW_MS)
      broker.signal('SIGCONT')
      await sleep(RUNS_MS)
    }
  })()
  return async () => {
    stop.abort()
    await pulses
    roma.write('fault', undefined)
  }
}

/** Faults of the broker. */
const BROKERS: readonly (readonly Fault[])[] = [
  [
    {
      name: 'one of two addresses of the broker is dead',
      found: {
        'milano/gw1': ['BrokerAddressFailing'],
        'paris/gw1': ['BrokerAddressFailing'],
        'roma/gw1': ['BrokerAddressFailing'],
      },
      ends: { from: 'milano/gw1', to: '10.62.1.1', asks: 'roma', outcome: 'REACHABLE' },
      inject: ({ broker }) => firewall(broker.netns, chain('input', `ip daddr ${SECOND_ADDRESS} tcp dport 7443 drop`)),
    },
  ],
  [
    {
      name: 'the broker hangs',
      found: { 'milano/gw1': ['BrokerLate'], 'paris/gw1': ['BrokerLate'], 'roma/gw1': ['BrokerLate'] },
      ends: { from: 'roma/gw1', to: '10.52.1.1', asks: 'paris', outcome: 'REACHABLE' },
      inject: ({ broker }) => {
        broker.signal('SIGSTOP')
        return () => broker.signal('SIGCONT')
      },
    },
  ],
  [
    {
      name: 'the broker is down',
      found: { 'milano/gw1': ['BrokerSilent'], 'paris/gw1': ['BrokerSilent'], 'roma/gw1': ['BrokerSilent'] },
      ends: { from: 'roma/gw1', to: '10.52.1.1', asks: 'paris', outcome: 'REACHABLE' },
      inject: async (world) => {
        world.broker.signal('SIGKILL')
        await world.broker.ended()
        return () => world.startBroker()
      },
    },
  ],
  // The undo withdraws the record and needs its acknowledgement at once, so no other fault of the broker follows
  // directly.
  [
    {
      name: 'the disk of the broker is slow',
      found: { 'roma/gw1': ['StoreSlow'] },
      ends: { from: 'roma/gw1', to: '10.52.1.1', asks: 'paris', outcome: 'REACHABLE' },
      inject: slowDisk,
    },
  ],
]

export const ROUNDS: readonly (readonly Fault[])[] = [KERNELS, TABLES, ...SERVICES, HANGING, ...WAYS, ...BROKERS]

/** A Service that is exported, with a pod if `address` is given. */
function service(name: string, spec: string, within = 'shop', address?: string): readonly string[] {
  const metadata = `metadata: { name: ${name}, namespace: ${within} }`
  const slice = `metadata: { name: ${name}-1, namespace: ${within}, labels: { kubernetes.io/service-name: ${name} } }`
  const endpoint = `{ addresses: [${address ?? ''}], nodeName: gw1, conditions: { ready: true } }`
  return [
    `apiVersion: v1\nkind: Service\n${metadata}\nspec: ${spec}`,
    `apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\n${metadata}`,
    ...(address === undefined
      ? []
      : [
          `apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n${slice}\naddressType: IPv4\n` +
            `ports: [{ port: 80, protocol: TCP }]\nendpoints: [${endpoint}]`,
        ]),
  ]
}

function namespace(name: string): string {
  return `apiVersion: v1\nkind: Namespace\nmetadata: { name: ${name} }`
}

function exported(
  name: string,
  site: 'milano' | 'paris' | 'roma',
  code: string,
  ends: Fault['ends'],
  documents: readonly string[],
): Fault {
  return {
    name,
    found: { [`${site}/gw1` satisfies MachinePath]: [code] },
    ends,
    inject: (world) => {
      world[site].write('fault', documents)
      return () => world[site].write('fault', undefined)
    },
  }
}

/** Both sites get the condition. */
function conflict(name: string, code: string, first: string, second: string): Fault {
  return {
    name,
    found: { 'milano/gw1': [code], 'roma/gw1': [code] },
    // The older export counts, and both are called. Of these, milano is asked.
    ends: { from: 'paris/gw1', to: 'db.shop', asks: 'milano', outcome: 'UNDETERMINED' },
    inject: ({ milano, roma }) => {
      milano.write('fault', service('db', first, 'shop', '10.42.1.1'))
      roma.write('fault', service('db', second, 'shop', '10.62.1.1'))
      return () => [milano, roma].forEach((site) => site.write('fault', undefined))
    },
  }
}

function udpOf(address: string): string {
  return `ip daddr ${address} udp dport ${LANES} drop\nip saddr ${address} udp dport ${LANES} drop`
}

/** Sets a limit that suffices now, but is so low that it is reported: nearly all of the files are in use. */
function fewFiles(pid: number): Undo {
  const prlimit = (...args: string[]): string => execFileSync('prlimit', ['--pid', String(pid), ...args]).toString()
  const before = prlimit('--nofile', '--noheadings', '-o', 'SOFT,HARD').trim().split(/\s+/)
  const open = readdirSync(`/proc/${pid}/fd`).length
  prlimit(`--nofile=${Math.floor(open / 0.92)}:${before[1] ?? ''}`)
  return () => void prlimit(`--nofile=${before.join(':')}`)
}

function fill(file: string): Undo {
  try {
    writeFileSync(file, Buffer.alloc(32 << 20))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  }
  return () => rmSync(file)
}
