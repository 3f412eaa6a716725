/**
 * `npm run bench:policy -- [--json] [--services 10000] [--connections 10000] [--repeat 15]`: what weights cost, and how
 * exact they are. A route agent's own loop fills a real nftables with 10,000 services; one of them has endpoints in three
 * clusters with the weights 1, 10 and 89. The peer in the same run is kube-proxy's way: one rule for each endpoint, drawn
 * by `numgen … vmap`.
 *
 * - `onePercentErrorPct`, `weightErrorPct`: how far the share of the smallest weight, and the farthest of the others, is
 *   from what was wanted, in percentage points of all connections.
 * - `changeMs`: from other weights in the route agent's cache until the kernel has them.
 * - `connectNsWith`, `connectNsWithout`: a TCP connection on loopback to the clusterset IP with weights, and to an endpoint
 *   itself; `proxyConnectNs` by kube-proxy's way.
 * - `endpoints5000Ms`: a service of 5,000 endpoints, planned and sent; `proxyEndpoints5000Ms` the same by kube-proxy's way.
 */
import { spawnSync } from 'node:child_process'
import { type AddressInfo, connect, createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { runCommand } from '../kernel/run-command.ts'
import { BenchSite, vip } from './apply-site.ts'
import { median, progress, round } from './figures.ts'

const INSIDE = 'SEALANE_BENCH_PRIVATE_NETNS'
const WEIGHTS = { paris: 100, roma: 1000, tokyo: 8900 } as const
const ENDPOINTS = { paris: 3, roma: 1, tokyo: 7 } as const
const NETS = { paris: '244.1', roma: '244.2', tokyo: '244.3' } as const
/** A service that kube-proxy's rules balance. */
const PROXY_IP = '245.9.0.1'
const CONNECTS = 2000
const MANY = 5000
const TARGETS = { weightErrorPct: 1, onePercentErrorPct: 0.3, changeMs: 100 }

type ClusterName = keyof typeof WEIGHTS

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    services: { type: 'string', default: '10000' },
    connections: { type: 'string', default: '10000' },
    repeat: { type: 'string', default: '15' },
  },
})
const signal = new AbortController().signal

if (process.env[INSIDE] === '1') await measure()
else process.exitCode = runInPrivateNetns()

/** The namespace has no name and disappears with the process, so nothing can stay behind. */
function runInPrivateNetns(): number {
  const args = ['--net', '--', process.execPath, fileURLToPath(import.meta.url), ...process.argv.slice(2)]
  const run = spawnSync('unshare', args, { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } })
  if (run.error !== undefined) process.stderr.write(`unshare: ${run.error.message}; needs root and util-linux\n`)
  return run.status ?? 1
}

async function measure(): Promise<void> {
  const [services, connections, repeat] = [Number(values.services), Number(values.connections), Number(values.repeat)]
  await buildHole()
  const site = new BenchSite(services)
  for (const name of Object.keys(ENDPOINTS) as ClusterName[]) site.setEndpoints(0, name, hostsOf(name))
  site.setWeights(0, WEIGHTS)
  await site.loop.reconcile(signal)
  const errors = await shareErrors(connections)
  const changes: number[] = []
  for (let i = 0; i < repeat; i += 1) {
    site.setWeights(0, { ...WEIGHTS, roma: 2000 + i })
    changes.push(await timed(() => site.loop.reconcile(signal)))
  }
  const connectNs = await connectTimes(site)
  const endpoints = Array.from({ length: MANY }, (_, i) => `244.1.${100 + (i >> 8)}.${i & 0xff}`)
  site.setEndpoints(1, 'paris', endpoints)
  const endpoints5000Ms = await timed(() => site.loop.reconcile(signal))
  const proxyEndpoints5000Ms = await timed(() => nft(proxyRules('proxy-many', '245.9.0.2', endpoints)))
  const figures = {
    weightErrorPct: round(Math.max(errors.roma, errors.tokyo), 3),
    onePercentErrorPct: round(errors.paris, 3),
    changeMs: round(median(changes), 1),
    ...{ services, connections },
    ...connectNs,
    endpoints5000Ms: round(endpoints5000Ms, 1),
    proxyEndpoints5000Ms: round(proxyEndpoints5000Ms, 1),
  }
  progress(
    figures,
    `${connections} connections by the weights 1, 10 and 89: the smallest share is ${figures.onePercentErrorPct} points ` +
      `off (at most ${TARGETS.onePercentErrorPct}), the others ${figures.weightErrorPct} (at most ${TARGETS.weightErrorPct})\n` +
      `other weights among ${services} services: ${figures.changeMs} ms (at most ${TARGETS.changeMs})\n` +
      `a connection: ${connectNs.connectNsWith} ns, to an endpoint itself ${connectNs.connectNsWithout}, by one rule an ` +
      `endpoint ${connectNs.proxyConnectNs}\n` +
      `a service of ${MANY} endpoints: ${figures.endpoints5000Ms} ms, by one rule an endpoint ` +
      `${figures.proxyEndpoints5000Ms}`,
  )
}

function hostsOf(name: ClusterName): string[] {
  return Array.from({ length: ENDPOINTS[name] }, (_, i) => `${NETS[name]}.0.${i + 5}`)
}

/** A device whose other end drops all packets, and a set that counts where they were going. */
async function buildHole(): Promise<void> {
  for (const line of [
    'link set lo up',
    'link add eth0 type veth peer name hole',
    'link set hole up',
    'link set eth0 arp off up',
    'address add 192.0.2.1/24 dev eth0',
    'route add 245.0.0.0/8 dev eth0',
    'route add 244.0.0.0/8 dev eth0',
  ])
    await must('ip', line.split(' '))
  await nft(
    'add table ip counted\n' +
      'add set ip counted seen { type ipv4_addr; counter; flags dynamic; size 65535; }\n' +
      'add chain ip counted out { type filter hook postrouting priority 0; }\n' +
      'add rule ip counted out meta l4proto tcp tcp flags & (syn | ack) == syn update @seen { ip daddr }\n',
  )
}

/** The error of each share, in percentage points. */
async function shareErrors(connections: number): Promise<Record<ClusterName, number>> {
  for (let left = connections; left > 0; left -= 250)
    await Promise.all(Array.from({ length: Math.min(left, 250) }, begun))
  const listing = await must('nft', ['list', 'set', 'ip', 'counted', 'seen'])
  const seen = new Map([...listing.matchAll(/([\d.]+) counter packets (\d+)/g)].map(([, at, n]) => [at, Number(n)]))
  const all = [...seen.values()].reduce((sum, n) => sum + n, 0)
  if (all < connections) throw new Error(`${all} of ${connections} connections were seen`)
  const error = (name: ClusterName): number => {
    const got = hostsOf(name).reduce((sum, host) => sum + (seen.get(host) ?? 0), 0)
    return Math.abs((100 * got) / all - WEIGHTS[name] / 100)
  }
  return { paris: error('paris'), roma: error('roma'), tokyo: error('tokyo') }
}

/** Begins a TCP connection, whose first packet is dropped behind the table. */
function begun(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: vip(0), port: 80 })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET' || error.code === 'ERR_SOCKET_CLOSED') resolve()
      else reject(error)
    })
    // The first packet is sent when the call connects, so the next turn may give the socket up.
    setImmediate(() => {
      socket.destroy()
      resolve()
    })
  })
}

/** The median ns of a connection on loopback, by each way in turn. */
async function connectTimes(site: BenchSite) {
  await must('ip', ['route', 'del', '244.0.0.0/8', 'dev', 'eth0'])
  await must('ip', ['route', 'add', 'local', '244.0.0.0/8', 'dev', 'lo'])
  await must('ip', ['address', 'add', '127.0.0.2/8', 'dev', 'lo'])
  site.setWeights(0, WEIGHTS)
  await site.loop.reconcile(signal)
  const endpoints = (Object.keys(ENDPOINTS) as ClusterName[]).flatMap(hostsOf)
  await nft(proxyRules('proxy', PROXY_IP, endpoints))
  const server = createServer((caller) => caller.on('error', () => undefined).resume())
  await new Promise<void>((resolve) => server.listen(8080, '0.0.0.0', resolve))
  const port = (server.address() as AddressInfo).port
  const rows = [
    { times: [] as number[], host: vip(0), port: 80 },
    { times: [] as number[], host: endpoints[0] ?? '', port },
    { times: [] as number[], host: PROXY_IP, port: 80 },
  ] as const
  for (let i = 0; i < CONNECTS; i += 1) for (const row of rows) row.times.push(await connected(row))
  server.close()
  const [connectNsWith, connectNsWithout, proxyConnectNs] = rows.map(({ times }) => Math.round(median(times)))
  return { connectNsWith, connectNsWithout, proxyConnectNs }
}

function connected({ host, port }: { readonly host: string; readonly port: number }): Promise<number> {
  const began = process.hrtime.bigint()
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port }, () => {
      resolve(Number(process.hrtime.bigint() - began))
      socket.resetAndDestroy()
    })
    socket.on('error', reject)
  })
}

/** A chain with one rule for each endpoint, and one that draws among them, as kube-proxy has it. */
function proxyRules(name: string, address: string, endpoints: readonly string[]): string {
  const chain = (i: number): string => `${name}-endpoint-${i}`
  const drawn = endpoints.map((_, i) => `${i} : goto ${chain(i)}`).join(', ')
  return [
    'add table ip proxy',
    'add chain ip proxy out { type nat hook output priority -100; }',
    ...endpoints.flatMap((endpoint, i) => [
      `add chain ip proxy ${chain(i)}`,
      `add rule ip proxy ${chain(i)} meta l4proto tcp dnat to ${endpoint}:8080`,
    ]),
    `add chain ip proxy ${name}-service`,
    `add rule ip proxy ${name}-service numgen random mod ${endpoints.length} vmap { ${drawn} }`,
    `add rule ip proxy out ip daddr ${address} tcp dport 80 goto ${name}-service`,
    '',
  ].join('\n')
}

async function nft(text: string): Promise<void> {
  const result = await runCommand('nft', ['-f', '-'], { input: text })
  if (result.code !== 0) throw new Error(result.stderr.slice(0, 1000))
}

async function must(command: string, args: readonly string[]): Promise<string> {
  const result = await runCommand(command, [...args])
  if (result.code !== 0) throw new Error(`${command} ${args.join(' ')}: ${result.stderr.slice(0, 1000)}`)
  return result.stdout
}

async function timed(action: () => Promise<void>): Promise<number> {
  const began = performance.now()
  await action()
  return performance.now() - began
}
