/**
 * What answers a member that owns its cluster, at every kind of address of another member: all pods exposed, then
 * exported services only, then those that are offered. The scanner is the taken-over gateway node of paris, so each
 * probe is a packet out of a real lane at the gateway node of milano, which has a pod and leads to that of a worker.
 * Counters at the end of the lane show that every probe has come: silence is an answer of milano's.
 */
import t, { type Test } from 'tap'
import type { KubeObject } from '../../model/objects.ts'
import { serving } from '../routeagent/support/datapath.ts'
import { cluster } from '../routeagent/support/site.ts'
import { ownSlice } from '../routeagent/support/own-slice.ts'
import { FLAT_DUAL_STACK, OVERLAPPING, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { takeOver } from '../gateway/support/take-over.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing } from '../support/netns.ts'
import { accessPolicy } from '../support/objects/access-objects.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { exportObject } from '../support/objects/service-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'
import { HOST_SERVICES } from './support/raw-packets.ts'
import { type Probe, arrivals, scan } from './support/scan.ts'

t.setTimeout(240_000 * SLOWNESS)

/** In every state, in this order. */
const STATES = ['pods', 'exports', 'offered to another'] as const
type Table = Readonly<Record<string, readonly [string, string, string]>>

const NOTHING = ['', '', ''] as const
/** By the kind of address: what answers in each state. */
const WANTED: Table = {
  'pod of the gateway node': ['echo tcp/53 tcp/8080 tcp/9000 udp/53 udp/8080 udp/9000', 'echo tcp/8080 udp/8080', ''],
  'pod of the worker': ['echo tcp/53 tcp/8080 tcp/9000 udp/53 udp/8080 udp/9000', 'echo tcp/8080 udp/8080', ''],
  'gateway node among pods': ['echo', '', ''],
  'worker among pods': ['echo', '', ''],
  'gateway node': NOTHING,
  worker: NOTHING,
  service: NOTHING,
  'API server': NOTHING,
  metadata: NOTHING,
  'link-local': NOTHING,
  broadcast: NOTHING,
  'clusterset IP': NOTHING,
  'lane of the gateway node': ['echo', 'echo', 'echo'],
}

const PORTS = [53, 4500, 4498, 4810, 8080, 9000, 10250, 30080]
/** A pod of a third member. */
const OSLO = '10.99.0.5'
const METADATA = '169.254.169.254'
const LINK_LOCAL = '169.254.7.7'
const SERVICE = '10.43.0.10'
const API_SERVER = '10.43.0.1'

const PORTS_OF_WEB = (['TCP', 'UDP'] as const).map((protocol) => ({
  name: protocol.toLowerCase(),
  protocol,
  port: 8080,
}))

function scanning(addresses: typeof FLAT_DUAL_STACK, own: readonly [string, string?]) {
  return (t: Test): Promise<void> => {
    const folder = temporaryFolder(t)
    const story = (sites: TwoSites): Promise<void> => scanned(t, { sites, folder, own })
    return withTwoSites(folder, story, { addresses, podsOnGateways: true, names: ['gw0', 'worker'] })
  }
}

const missing = netnsMissing()
if (missing !== undefined) t.test('access-scan', { skip: missing }, () => undefined)
else {
  await attack('access-scan', scanning(FLAT_DUAL_STACK, ['10.44.4.9', 'fd42:2:0:4::9']))
  await attack('access-scan-translated', scanning(OVERLAPPING, ['244.1.4.9']))
}

interface Scene {
  readonly sites: TwoSites
  readonly folder: string
  /** The addresses of the scanner, among the pods of paris. */
  readonly own: readonly [string, string?]
}

async function scanned(t: Test, { sites, folder, own }: Scene): Promise<void> {
  const node = (site: string, name: string): SiteNode => {
    const found = sites.nodes.find((one) => one.site === site && one.name === name)
    if (found === undefined) throw new Error(`no node ${site} ${name}`)
    return found
  }
  const [gw, worker, scanner] = [node('milano', 'gw0'), node('milano', 'worker'), node('paris', 'gw0')]
  const isFlat = own[1] !== undefined
  const known = isFlat ? '10.42' : '244.0'
  await serveEverywhere(t, gw, worker)
  const targets: Readonly<Record<string, readonly string[]>> = {
    'pod of the gateway node': [`${known}.4.7`, ...(isFlat ? ['fd42:1:0:4::7'] : [])],
    'pod of the worker': [`${known}.6.7`, ...(isFlat ? ['fd42:1:0:6::7'] : [])],
    'gateway node among pods': [`${known}.4.1`, ...(isFlat ? ['fd42:1:0:4::1'] : [])],
    'worker among pods': [`${known}.6.1`, ...(isFlat ? ['fd42:1:0:6::1'] : [])],
    'gateway node': [gw.address],
    worker: [worker.address],
    service: [SERVICE],
    'API server': [API_SERVER],
    metadata: [METADATA],
    'link-local': [LINK_LOCAL],
    broadcast: [`${known}.4.255`],
    'clusterset IP': ['245.0.0.7'],
    'lane of the gateway node': ['246.0.1.0'],
  }
  const all = Object.values(targets).flat()
  const process = { stop: (): Promise<void> => scanner.process?.stop() ?? Promise.resolve() }
  const taken = { process, site: { gateway: scanner.netns, folder: `${folder}/${scanner.port}` } }
  const owns = own.flatMap((one) => one ?? [])
  await takeOver(taken, { own: owns, targets: all })
  await scanner.netns.tryExec('nft', ['flush', 'ruleset'])
  const probes = all.flatMap((address): Probe[] => [
    { kind: 'echo', address, port: 0 },
    ...PORTS.flatMap((port) => [
      { kind: 'tcp' as const, address, port },
      { kind: 'udp' as const, address, port },
    ]),
  ])
  const came = await arrivals(gw.netns)
  const measured = async (want: Record<string, string>): Promise<Record<string, string>> => {
    const found: Record<string, string> = {}
    // A busy machine may lose an answer. What answers once counts.
    const answered = new Map<string, Set<string>>()
    const all = (address: string): string => [...(answered.get(address) ?? [])].sort().join(' ')
    for (let i = 0; i < 3 && JSON.stringify(found) !== JSON.stringify(want); i += 1) {
      for (const [address, what] of await scan(scanner.netns, probes, owns))
        answered.set(address, new Set([...(answered.get(address) ?? []), ...what.split(' ')]))
      for (const [name, of] of Object.entries(targets)) found[name] = [...new Set(of.map(all))].join(' | ')
    }
    return found
  }
  const wanted = (state: number): Record<string, string> =>
    Object.fromEntries(Object.entries(WANTED).map(([name, columns]) => [name, columns[state] ?? '']))

  const forge = async (): Promise<void> => {
    const forged = [OSLO, '10.42.4.9', worker.address, '246.0.7.0', '198.51.100.77']
    for (const address of forged) await scanner.netns.exec('ip', ['address', 'add', `${address}/32`, 'dev', 'lo'])
    const pod: Probe = { kind: 'udp', address: `${known}.4.7`, port: 8080 }
    t.ok((await scan(scanner.netns, [pod], owns)).size > 0, 'its own address gets an answer')
    const answered = await Promise.all(forged.map((address) => scan(scanner.netns, [pod], [address])))
    t.same(
      answered.flatMap((found, i) => (found.size > 0 ? [forged[i]] : [])),
      [],
      'no other does',
    )
    for (const address of forged) await scanner.netns.exec('ip', ['address', 'del', `${address}/32`, 'dev', 'lo'])
    const sources = await came('sources')
    t.ok(sources.has(owns[0] ?? ''))
    t.same(
      forged.filter((address) => sources.has(address)),
      [],
      'and none comes out of the lane: its key proves its prefixes',
    )
  }

  for (const [i, state] of STATES.entries()) {
    await enter(state, [gw, worker])
    t.strictSame(await measured(wanted(i)), wanted(i), state)
    if (state === 'exports') await forge()
    for (const { name, pod } of [gw, worker])
      t.match(pod === undefined ? '' : await pings(pod, own[0]), '1 received', `${state}: the pod of ${name} calls`)
  }
  const seen = await came()
  t.same(
    all.filter((address) => !seen.has(address)),
    [],
    'all probes have come out of the lane',
  )
}

async function serveEverywhere(t: Test, gw: SiteNode, worker: SiteNode): Promise<void> {
  const serve = async (ns: Netns, ...ports: readonly (number | string)[]): Promise<void> =>
    serving(ns.spawn(process.execPath, ['-e', HOST_SERVICES, ...ports.map(String)]))
  // As Calico and Red Hat set it, and as Ubuntu does.
  await gw.netns.exec('sysctl', ['-qw', 'net.ipv4.conf.pod0.rp_filter=1'])
  await worker.netns.exec('sysctl', ['-qw', 'net.ipv4.conf.pod0.rp_filter=2'])
  for (const { netns, pod, podNetwork } of [gw, worker]) {
    // As a node-local cache of DNS and a metadata service have them.
    for (const address of [METADATA, LINK_LOCAL])
      await netns.exec('ip', ['address', 'add', `${address}/32`, 'dev', 'lo'])
    const lead = `
        ip daddr ${SERVICE} meta l4proto { tcp, udp } th dport 8080 dnat to 10.42.${podNetwork}.7
        ip daddr ${API_SERVER} tcp dport 10250 dnat to ${gw.address}
        fib daddr type local tcp dport 30080 dnat to 10.42.${podNetwork}.7:8080`
    const table = `table ip proxy {
      chain ports { type nat hook prerouting priority -100; ${lead}
      }
      chain own { type nat hook output priority -100; ${lead}
      }
    }`
    await netns.exec('nft', ['-f', '-'], { input: table })
    await serve(netns, 53, 8080, 9000, 10250)
    if (pod !== undefined) await serve(pod, 53, 8080, 9000)
  }
  const { pod } = gw
  if (pod === undefined) throw new Error('no pod')
  // What is silent for others answers at home.
  const calls = [
    [pod, '10.42.4.1 8080'],
    [pod, '10.42.4.1 10250'],
    [pod, `${gw.address} 10250`],
    [pod, `${METADATA} 8080`],
    [pod, `${LINK_LOCAL} 8080`],
    [pod, `${API_SERVER} 10250`],
    [gw.netns, `${SERVICE} 8080`],
    [gw.netns, '10.42.4.1 30080'],
    [gw.netns, '10.42.4.7 9000'],
    [worker.netns, '10.42.6.7 9000'],
    [worker.netns, '10.42.6.1 30080'],
  ] as const
  const answers = await Promise.all(
    calls.map(async ([from, where]) => {
      const [address = '', port] = where.split(' ')
      return (await scan(from, [{ kind: 'tcp', address, port: Number(port) }], [])).has(address)
    }),
  )
  const silent = calls.flatMap(([, where], i) => (answers[i] === true ? [] : [where]))
  t.same(silent, [], 'own pods reach all of it')
}

async function enter(state: (typeof STATES)[number], nodes: readonly SiteNode[]): Promise<void> {
  const exposure = state === 'pods' ? 'pods' : 'exports'
  const six = ownSlice('web', ['fd42:1:0:4::7', 'fd42:1:0:6::7'], PORTS_OF_WEB)
  const objects: KubeObject[] = [
    exportObject({ name: 'web' }),
    ownSlice('web', ['10.42.4.7', '10.42.6.7'], PORTS_OF_WEB),
    { ...six, metadata: { ...six.metadata, name: 'web-6' }, addressType: 'IPv6' },
    ...(state === 'offered to another' ? [accessPolicy('shop/web', { from: [{ clusters: ['oslo'] }] })] : []),
    cluster('oslo', 3, undefined, '10.99.0.0/16'),
    membershipObject({ exposure }),
  ]
  for (const { process, netns } of nodes) {
    process?.put(...objects)
    if (exposure === 'pods') continue
    const target = state === 'exports' ? 'all-members' : 'from-oslo'
    const isPlanned = async (): Promise<boolean> =>
      (await netns.exec('nft', ['list', 'map', 'ip', 'sealane_node', 'access'])).includes(target)
    await eventually(isPlanned, { deadlineMs: 20_000, say: `${state}: ${process?.errors ?? ''}` })
  }
}
