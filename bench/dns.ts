/**
 * Answers a second over UDP with 10,000 services: dnsperf against one Sealane DNS process and, in turn, against Knot DNS
 * with one worker that serves the same zone. Usage: node bench/dns.ts [--json] [--rounds N] [--seconds S] [--pin]
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createSocket } from 'node:dgram'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { MemoryCluster } from '../cluster/memory/memory-cluster.ts'
import { dnsConfig } from '../dns/config.ts'
import { runDns } from '../dns/main.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { createLogger } from '../runtime/pino-logger.ts'
import { createMetrics } from '../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../runtime/status-board.ts'
import { median } from './figures.ts'

const SERVICES = 10_000
const NAMESPACES = 100
const ZONE = 'clusterset.local'

interface BenchService {
  readonly namespace: string
  readonly name: string
  readonly ip: string
}

function services(): BenchService[] {
  return Array.from({ length: SERVICES }, (_, i) => ({
    namespace: `team-${i % NAMESPACES}`,
    name: `service-${i}`,
    ip: `245.0.${i >> 8}.${i & 0xff}`,
  }))
}

/** The server process: the component as it is, fed by the in-memory cluster. Prints its address. */
async function serve(): Promise<void> {
  const cluster = new MemoryCluster()
  for (const { namespace, name, ip } of services()) {
    cluster.put({
      apiVersion: 'multicluster.x-k8s.io/v1beta1',
      kind: 'ServiceImport',
      metadata: { namespace, name },
      spec: { type: 'ClusterSetIP', ips: [ip], ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
    })
  }
  const stop = new AbortController()
  process.on('SIGTERM', () => stop.abort())
  process.on('disconnect', () => stop.abort())
  await runDns(
    {
      cluster,
      clock: new SystemClock(),
      logger: createLogger('dns', 'warn'),
      metrics: createMetrics('dns'),
      status: new StatusBoard(),
      onListening: (address) => process.send?.(address),
    },
    dnsConfig({ clusterId: 'east', listen: ['127.0.0.1:0'] }),
    stop.signal,
  )
  process.disconnect?.()
}

/** Gives the port. */
async function startOurs({ children, pin }: Bench): Promise<number> {
  const [command, args] = pinned(pin, 0, process.execPath, [
    '--disable-warning=ExperimentalWarning',
    fileURLToPath(import.meta.url),
    '--serve',
  ])
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  children.push(child)
  const died = once(child, 'exit').then(([code]) => {
    throw new Error(`the server ended with code ${String(code)}`)
  })
  died.catch(() => undefined)
  const [address] = (await Promise.race([once(child, 'message'), died])) as [string]
  return Number(address.split(':')[1])
}

/** Gives the port. */
async function startKnot({ folder, children, pin }: Bench): Promise<number> {
  const port = await freePort()
  const records = services().map(({ namespace, name, ip }) => `${name}.${namespace}.svc.${ZONE}. 5 IN A ${ip}`)
  const soa = `${ZONE}. 5 IN SOA ns.${ZONE}. hostmaster.${ZONE}. 1 7200 1800 86400 5\n${ZONE}. 5 IN NS ns.${ZONE}.`
  writeFileSync(join(folder, 'zone'), `${soa}\nns.${ZONE}. 5 IN A 127.0.0.1\n${records.join('\n')}\n`)
  writeFileSync(
    join(folder, 'knot.conf'),
    `server:
  rundir: ${folder}
  listen: 127.0.0.1@${port}
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
log:
  - target: stderr
    any: error
database:
  storage: ${folder}
zone:
  - domain: ${ZONE}
    file: ${join(folder, 'zone')}
    zonefile-sync: -1
    journal-content: none
`,
  )
  const [command, args] = pinned(pin, 0, 'knotd', ['-c', join(folder, 'knot.conf')])
  children.push(spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit'] }))
  return port
}

function pinned(pin: boolean, cpu: number, command: string, args: string[]): [string, string[]] {
  return pin ? ['taskset', ['-c', String(cpu), command, ...args]] : [command, args]
}

async function freePort(): Promise<number> {
  const socket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  const { port } = socket.address()
  socket.close()
  return port
}

async function untilAnswering(port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const args = ['+short', '+tries=1', '+time=1', '-p', String(port), '@127.0.0.1', `service-0.team-0.svc.${ZONE}`]
    try {
      if (execFileSync('dig', args, { encoding: 'utf8' }).trim() === '245.0.0.0') return
    } catch {
      // Not there yet.
    }
    await sleep(50)
  }
  throw new Error(`nobody answers on port ${port}`)
}

interface Load {
  readonly port: number
  readonly queries: string
  readonly seconds: number
  readonly pin: boolean
}

/** Answers a second. Throws when any answer was not NOERROR or more than one in a thousand was lost. */
async function dnsperf({ port, queries, seconds, pin }: Load): Promise<number> {
  const flags = [
    '-s',
    '127.0.0.1',
    '-p',
    String(port),
    '-d',
    queries,
    '-l',
    String(seconds),
    '-c',
    '8',
    '-T',
    '1',
    '-q',
    '200',
  ]
  const [command, args] = pinned(pin, 1, 'dnsperf', flags)
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let report = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    report += text
  })
  await once(child, 'close')
  const number = (pattern: RegExp): number => Number(pattern.exec(report)?.[1] ?? Number.NaN)
  const completed = number(/Queries completed:\s+(\d+)/)
  if (number(/NOERROR (\d+)/) !== completed) throw new Error(`wrong answers:\n${report}`)
  if (number(/Queries lost:\s+(\d+)/) > completed / 1000) throw new Error(`lost answers:\n${report}`)
  return number(/Queries per second:\s+([\d.]+)/)
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      serve: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '4' },
      pin: { type: 'boolean', default: false },
    },
  })
  if (values.serve) return serve()
  const missing = ['knotd', 'dnsperf', 'dig'].filter((tool) => spawnSync(tool, ['-V']).error !== undefined)
  if (missing.length > 0) throw new Error(`missing: ${missing.join(', ')}; apt-get install knot dnsperf bind9-dnsutils`)
  const folder = mkdtempSync(join(tmpdir(), 'sealane-bench-dns-'))
  const children: ChildProcess[] = []
  const interrupted = (): void => {
    for (const child of children) child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
    process.exit(1)
  }
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted)
  try {
    report(
      values.json,
      await measure({ folder, children, pin: values.pin }, Number(values.rounds), Number(values.seconds)),
    )
  } finally {
    await Promise.all(children.map((child) => end(child)))
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Bench {
  readonly folder: string
  /** Everything started, so that it can be ended. */
  readonly children: ChildProcess[]
  /** Servers on the first processor, dnsperf on the second; else the kernel decides, for both peers alike. */
  readonly pin: boolean
}

async function measure(bench: Bench, rounds: number, seconds: number): Promise<Figures> {
  const queries = join(bench.folder, 'queries')
  const names = services().map(({ namespace, name }) => `${name}.${namespace}.svc.${ZONE} A`)
  writeFileSync(queries, names.sort((a, b) => shuffleKey(a) - shuffleKey(b)).join('\n'))
  const ports = [await startOurs(bench), await startKnot(bench)] as const
  const load = { queries, pin: bench.pin }
  for (const port of ports) {
    await untilAnswering(port)
    await dnsperf({ ...load, port, seconds: 1 })
  }
  const qps: number[] = []
  const knotQps: number[] = []
  for (let round = 1; round <= rounds; round += 1) {
    const ours = await dnsperf({ ...load, port: ports[0], seconds })
    const knot = await dnsperf({ ...load, port: ports[1], seconds })
    qps.push(ours)
    knotQps.push(knot)
    console.error(`round ${round}: sealane ${Math.round(ours)}/s, knot ${Math.round(knot)}/s`)
  }
  return { qps: Math.round(median(qps)), knotQps: Math.round(median(knotQps)), services: SERVICES }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  const patience = setTimeout(() => child.kill('SIGKILL'), 5000)
  await exited
  clearTimeout(patience)
}

/** The same order in every run. */
function shuffleKey(text: string): number {
  let hash = 0
  for (const character of text) hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193)
  return hash
}

interface Figures {
  readonly qps: number
  readonly knotQps: number
  readonly services: number
}

function report(json: boolean, figures: Figures): void {
  const ratio = Math.round((figures.qps / figures.knotQps) * 1000) / 1000
  if (json) console.log(JSON.stringify({ ...figures, ratio }))
  else console.log(`sealane ${figures.qps} answers/s, knot (one worker) ${figures.knotQps} answers/s, ratio ${ratio}`)
}

await main()
