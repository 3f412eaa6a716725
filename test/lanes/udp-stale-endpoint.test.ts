/**
 * A UDP client that never pauses (ten datagrams a second from one socket), and endpoints that go: after the change, the
 * new endpoint answers on the same socket within two seconds, as with kube-proxy. Real routeagent, kernel and packets.
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import type { KubeObject } from '../../model/objects.ts'
import {
  type Site,
  TALKER,
  buildBridge,
  buildGatewayNode,
  call,
  ip,
  here,
  serving,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import {
  cluster,
  dualStack,
  dualStackNode,
  endpoint,
  gateway,
  membership,
  node,
  serviceImport,
  slice,
  slice6,
} from '../routeagent/support/site.ts'
import { IMPORT_PORTS, PORTS, VIP, holdConnection } from '../routeagent/support/vip-calls.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

const VIP6 = 'fd53:ea1a:4e00::f500:7'
const WEB = { 4: ['10.42.1.6', '10.42.1.7', '10.42.1.8'], 6: ['fd00:10:42:1::6', 'fd00:10:42:1::7', 'fd00:10:42:1::8'] }
/** Pods of paris, on the gateway node. */
const FAR = { 4: '244.1.0.5', 6: 'fd00:20:42::5' }
const SLICES = { 4: slice, 6: slice6 }
/** The bound. */
const SOON_MS = 2000

inPrivateNetns(t, import.meta.url, () => {
  t.test('a client that never pauses', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns((web) =>
        withNetns(async (far) => {
          await build(client, web, far)
          let site = startRouteAgent(t, objects())
          await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
          for (const family of [4, 6] as const) await moves(t, site, client, family)
          for (const family of [4, 6] as const) await endsNow(t, site, client, family)
          await withdrawn(t, site, client, far)
          // Endpoints that leave while no routeagent runs.
          const streams = [streamTo(t, client, VIP), streamTo(t, client, VIP6)]
          for (const [i, family] of ([4, 6] as const).entries()) await answers(streams[i]!, WEB[family][2]!, 'before')
          await site.stop()
          const left = [slice('web', 'milano', [WEB[4][1]!], PORTS), slice6('web', 'milano', [WEB[6][1]!], PORTS)]
          await answers(streams[0]!, WEB[4][2]!, 'without a routeagent, flows go on')
          site = startRouteAgent(t, [...objects(), ...left])
          for (const [i, family] of ([4, 6] as const).entries())
            await answers(streams[i]!, WEB[family][1]!, `IPv${family} after the restart`, 10_000)
        }),
      ),
    ),
  )
})

async function build(client: Netns, web: Netns, far: Netns): Promise<void> {
  const still = async (run: (...args: string[]) => Promise<unknown>): Promise<void> => {
    for (const where of ['all', 'default']) await run('sysctl', '-qw', `net.ipv6.conf.${where}.accept_dad=0`)
  }
  await still(here)
  for (const ns of [client, web, far]) await still((command, ...args) => ns.exec(command, args))
  await buildBridge([client, web])
  await buildGatewayNode(far)
  await ip('address add fd00:10:42:1::1/64 dev cni0')
  for (const [pod, addresses] of [
    [client, ['fd00:10:42:1::5/64']],
    [web, ['10.42.1.7/24', '10.42.1.8/24', ...WEB[6].map((address) => `${address}/64`)]],
  ] as const) {
    for (const address of addresses) await pod.exec('ip', ['address', 'add', address, 'dev', 'eth0'])
    await pod.exec('ip', ['-6', 'route', 'add', 'default', 'via', 'fd00:10:42:1::1'])
  }
  const served = [...WEB[4].map((address) => `${address}:8080`), ...WEB[6].map((address) => `[${address}]:8080`)]
  const lines = [
    '-6 neighbour replace fe80::5ea1:c0a8:70b lladdr 0a:5e:c0:a8:07:0b dev sealane-vx nud permanent',
    '-6 route add fd00:10:42:1::/64 via fe80::5ea1:c0a8:70b dev sealane-vx onlink',
    `address add ${FAR[6]}/128 dev lo`,
  ]
  for (const line of lines) await far.exec('ip', line.split(' '))
  await serving(far.spawn(process.execPath, [TALKER, 'serve', `${FAR[4]}:8080`, `[${FAR[6]}]:8080`]))
  await serving(web.spawn(process.execPath, [TALKER, 'serve', ...served]))
}

function objects(): KubeObject[] {
  return [
    membership(),
    dualStackNode(node('gw', '192.168.7.1', '10.42.0.0/24'), 'fd00:10:42::/64'),
    dualStackNode(node('worker', '192.168.7.11', '10.42.1.0/24'), 'fd00:10:42:1::/64'),
    dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd00:10:42::/56'),
    dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd00:20:42::/56'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up' }, 1400),
    serviceImport('web', VIP, { ips: [VIP, VIP6], ports: IMPORT_PORTS }),
  ]
}

/** A drain, and a drain now, of the only cluster and of one of two, with a TCP connection and a UDP flow to it. */
async function endsNow(t: Test, site: Site, client: Netns, family: 4 | 6): Promise<void> {
  const [web0 = ''] = WEB[family]
  const far = FAR[family]
  const [nft, vip] = family === 4 ? (['ip', VIP] as const) : (['ip6', VIP6] as const)
  const put = (paris: KubeObject['metadata']['annotations'], ...milano: string[]): void => {
    const drained = SLICES[family]('web', 'paris', [far], PORTS)
    site.api.put({ ...drained, metadata: { ...drained.metadata, annotations: paris ?? {} } })
    site.api.put(SLICES[family]('web', 'milano', milano, PORTS))
  }
  const soft = { 'sealane.io/drained': 'true' }
  const now = { ...soft, 'sealane.io/drained-now': 'true' }
  const to = (pod: string): RegExp => new RegExp(`slot-0: \\S+ . tcp . 80 ${pod}`)
  put({})
  await settled(site, to(far), nft)
  const stream = streamTo(t, client, vip)
  await answers(stream, far, 'at first')
  const held = holdConnection(client, vip)
  const asked = async (say: string): Promise<void> => {
    t.match(await held.ask(), `${far} `, `IPv${family}: ${say}`)
  }
  await asked('at first')
  put(now)
  await settled(site, to(far), nft)
  await asked('it is the last one: the connection goes on')
  put(soft, web0)
  await settled(site, to(web0), nft)
  await asked('drained: it goes on')
  await answers(stream, far, 'drained: the flow goes on')
  const started = performance.now()
  put(now, web0)
  await answers(stream, web0, 'drained now: the flow moves')
  t.ok(performance.now() - started < SOON_MS)
  await settled(site, new RegExp(`ended: \\S+ . tcp . 80 . ${far}`), nft)
  const sent = performance.now()
  t.equal(await held.ask(), 'ECONNRESET', `IPv${family}: the client hears it when it sends`)
  const ms = Math.round(performance.now() - sent)
  t.ok(ms < SOON_MS, `after ${ms} ms`)
  t.match(await call(client, 'tcp', { address: vip, port: 80, count: 1 }), [`${web0} `], 'a new one goes elsewhere')
  held.end()
  put(soft, WEB[family][2] ?? '')
  site.api.drop('EndpointSlice', SLICES[family]('web', 'paris', []).metadata.name, 'shop')
}

/** Its exporter offers the service no more: the import goes, and packets to its pods get no answer. */
async function withdrawn(t: Test, site: Site, client: Netns, far: Netns): Promise<void> {
  const web = serviceImport('web', VIP, { ips: [VIP, VIP6], ports: IMPORT_PORTS })
  const slices = [slice('web', 'paris', [FAR[4]], PORTS), slice6('web', 'paris', [FAR[6]], PORTS)]
  const [nft, chain] = [
    'table inet exporter',
    'chain in { type filter hook input priority -200; iifname sealane-vx drop; }',
  ]
  const ours = [slice('web', 'milano', [WEB[4][2]!], PORTS), slice6('web', 'milano', [WEB[6][2]!], PORTS)]
  for (const { metadata } of ours) site.api.drop('EndpointSlice', metadata.name, 'shop')
  // It outlives its last object.
  site.api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
  for (const keeps of [true, false]) {
    const annotations = keeps ? {} : { 'sealane.io/ends-open': 'true' }
    site.api.put(web)
    for (const one of slices) site.api.put({ ...one, metadata: { ...one.metadata, annotations } })
    for (const [ip, family] of [
      ['ip', 4],
      ['ip6', 6],
    ] as const)
      await settled(site, new RegExp(`slot-0: \\S+ . tcp . 80 ${FAR[family]}`), ip)
    const held = [holdConnection(client, VIP), holdConnection(client, VIP6)]
    for (const [i, family] of ([4, 6] as const).entries()) {
      t.match(await held[i]?.ask(), `${FAR[family]} `)
    }
    if (!keeps) await far.exec('nft', ['-f', '-'], { input: `${nft} { ${chain}; }` })
    for (const { metadata } of slices) site.api.drop('EndpointSlice', metadata.name, 'shop')
    site.api.drop('ServiceImport', 'web', 'shop')
    for (const [i, family] of ([4, 6] as const).entries()) {
      if (!keeps) {
        const element = new RegExp(`ended: \\S+ . tcp . 80 . ${FAR[family]}`)
        await settled(site, element, family === 4 ? 'ip' : 'ip6')
      }
      const sent = performance.now()
      const answer = await held[i]?.ask()
      if (keeps) t.match(answer, `${FAR[family]} `, `IPv${family}: its exporter does not say that it drops them`)
      else t.equal(answer, 'ECONNRESET', `IPv${family}: the client hears of the end when it sends`)
      t.ok(performance.now() - sent < SOON_MS)
      held[i]?.end()
    }
  }
  await far.exec('nft', [`delete ${nft}`])
  for (const object of [web, ...ours]) site.api.put(object)
}

interface Stream {
  /** What came last: the address that answered, or an error code. */
  last: string
}

function streamTo(t: Test, client: Netns, address: string): Stream {
  const args = ['netns', 'exec', client.name, process.execPath, TALKER, 'stream', address, '80']
  const child = spawn('ip', args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => void child.kill())
  const stream = { last: '' }
  createInterface({ input: child.stdout }).on('line', (line) => (stream.last = line))
  return stream
}

async function answers(stream: Stream, want: string, say: string, deadlineMs = 5000): Promise<void> {
  stream.last = ''
  await eventually(() => stream.last === want, { say: `${say}: ${want}, not ${stream.last}`, deadlineMs })
}

async function moves(t: Test, site: Site, client: Netns, family: 4 | 6): Promise<void> {
  const [web0 = '', web1 = '', web2 = ''] = WEB[family]
  const nft = family === 4 ? 'ip' : 'ip6'
  const put = (...addresses: string[]): void => site.api.put(SLICES[family]('web', 'milano', addresses, PORTS))
  put(web0)
  await settled(site, new RegExp(`slot-0: \\S+ . udp . 80 ${web0}`), nft)
  const stream = streamTo(t, client, family === 4 ? VIP : VIP6)
  await answers(stream, web0, 'at first')
  const steps: readonly (readonly [addresses: readonly string[], want: string, say: string])[] = [
    [[web1], web1, 'web-0 is gone, web-1 is there'],
    [[], 'ECONNREFUSED', 'none is left: refused'],
    [[web2], web2, 'web-2 came later'],
    [[web0, web2], web2, 'another one beside it moves nothing'],
    [[web2], web2, 'nor does its end'],
  ]
  for (const [addresses, want, say] of steps) {
    const started = performance.now()
    put(...addresses)
    await answers(stream, want, `IPv${family}: ${say}`)
    const ms = Math.round(performance.now() - started)
    t.ok(ms < SOON_MS, `IPv${family}: ${say}: ${ms} ms`)
  }
}
