/**
 * Answers a second over UDP with 10,000 services: dnsperf against one Sealane DNS process and, in turn, against Knot DNS
 * with one worker that serves the same zone. Usage: node bench/dns.ts [--json] [--rounds N] [--seconds S] [--pin]
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
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

const SERVICES = 10_000
const NAMESPACES = 100
const ZONE = 'clusterset.local'

interface BenchService { readonly namespace: string; readonly name: string; readonly ip: string }

function services(): BenchService[] {
  return Array.from({ length: SERVICES }, (_, i) => ({
    namespace: `team-${i % NAMESPACES}`, name: `service-${i}`, ip: `245.0.${i >> 8}.${i & 0xff}`,
  }))
}

/** The server process: the component as it is, fed by the in-memory cluster. Prints its address. */
async function serve(): Promise<void> {
  const cluster = new MemoryCluster()
  for (const { namespace, name, ip } of services()) {
    cluster.put({
      apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceImport', metadata: { namespace, name },
      spec: { type: 'ClusterSetIP', ips: [ip], ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
    })
  }
  const stop = new AbortController()
  process.on('SIGTERM', () => stop.abort())
  process.on('disconnect', () => stop.abort())
  await runDns(
    {
      cluster, clock: new SystemClock(), logger: createLogger('dns', 'warn'), metrics: createMetrics('dns'),
      status: new StatusBoard(), onListening: (address) => process.send?.(address),
    },
    dnsConfig({ clusterId: 'east', listen: ['127.0.0.1:0'] }),
    stop.signal,
  )
  process.disconnect?.()
}

interface Server { readonly port: number; readonly process: ChildProcess }

async function startOurs(pin: boolean): Promise<Server> {
  const [command, args] = pinned(pin, 0, process.execPath, [fileURLToPath(import.meta.url), '--serve'])
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const died = once(child, 'exit').then(([code]) => { throw new Error(`the server ended with code ${code}`) })
  const [address] = (await Promise.race([once(child, 'message'), died])) as [string]
  died.catch(() => undefined)
  return { process: child, port: Number(address.split(':')[1]) }
}

async function startKnot(folder: string, pin: boolean): Promise<Server> {
  const port = await freePort()
  const records = services().map(({ namespace, name, ip }) => `${name}.${namespace}.svc.${ZONE}. 5 IN A ${ip}`)
  const soa = `${ZONE}. 5 IN SOA ns.${ZONE}. hostmaster.${ZONE}. 1 7200 1800 86400 5\n${ZONE}. 5 IN NS ns.${ZONE}.`
  writeFileSync(join(folder, 'zone'), `${soa}\nns.${ZONE}. 5 IN A 127.0.0.1\n${records.join('\n')}\n`)
  writeFileSync(join(folder, 'knot.conf'), `server:
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
`)
  const [command, args] = pinned(pin, 0, 'knotd', ['-c', join(folder, 'knot.conf')])
  return { port, process: spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit'] }) }
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

interface Load { readonly port: number; readonly queries: string; readonly seconds: number; readonly pin: boolean }

/** Answers a second. Throws when any answer was not NOERROR or more than one in a thousand was lost. */
async function dnsperf({ port, queries, seconds, pin }: Load): Promise<number> {
  const flags = ['-s', '127.0.0.1', '-p', String(port), '-d', queries, '-l', String(seconds), '-c', '8', '-T', '1', '-q', '200']
  const [command, args] = pinned(pin, 1, 'dnsperf', flags)
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let report = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => { report += text })
  await once(child, 'close')
  const number = (pattern: RegExp): number => Number(pattern.exec(report)?.[1] ?? Number.NaN)
  const completed = number(/Queries completed:\s+(\d+)/)
  if (number(/NOERROR (\d+)/) !== completed) throw new Error(`wrong answers:\n${report}`)
  if (number(/Queries lost:\s+(\d+)/) > completed / 1000) throw new Error(`lost answers:\n${report}`)
  return number(/Queries per second:\s+([\d.]+)/)
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false }, serve: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '4' },
      pin: { type: 'boolean', default: false },
    },
  })
  if (values.serve) return serve()
  const folder = mkdtempSync(join(tmpdir(), 'sealane-bench-dns-'))
  const servers: Server[] = []
  const stop = (): void => {
    for (const server of servers) server.process.kill('SIGTERM')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('SIGINT', () => { stop(); process.exit(1) })
  try {
    const queries = join(folder, 'queries')
    const names = services().map(({ namespace, name }) => `${name}.${namespace}.svc.${ZONE} A`)
    writeFileSync(queries, names.sort((a, b) => shuffleKey(a) - shuffleKey(b)).join('\n'))
    const ours = await startOurs(values.pin)
    servers.push(ours)
    const knot = await startKnot(folder, values.pin)
    servers.push(knot)
    for (const server of servers) await untilAnswering(server.port)
    const load = { queries, pin: values.pin }
    for (const server of servers) await dnsperf({ ...load, port: server.port, seconds: 1 })
    const qps: number[] = []
    const knotQps: number[] = []
    for (let round = 1; round <= Number(values.rounds); round += 1) {
      qps.push(await dnsperf({ ...load, port: ours.port, seconds: Number(values.seconds) }))
      knotQps.push(await dnsperf({ ...load, port: knot.port, seconds: Number(values.seconds) }))
      console.error(`round ${round}: sealane ${Math.round(qps.at(-1) ?? 0)}/s, knot ${Math.round(knotQps.at(-1) ?? 0)}/s`)
    }
    report(values.json, { qps: Math.round(median(qps)), knotQps: Math.round(median(knotQps)), services: SERVICES })
  } finally {
    stop()
    await Promise.all(servers.map(({ process: child }) => child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined))
    rmSync(folder, { recursive: true, force: true })
  }
}

/** The same order in every run. */
function shuffleKey(text: string): number {
  let hash = 0
  for (const character of text) hash = Math.imul(hash ^ character.charCodeAt(0), 0x01000193)
  return hash
}

function report(json: boolean, figures: { readonly qps: number; readonly knotQps: number; readonly services: number }): void {
  const ratio = Math.round((figures.qps / figures.knotQps) * 1000) / 1000
  if (json) console.log(JSON.stringify({ ...figures, ratio }))
  else console.log(`sealane ${figures.qps} answers/s, knot (one worker) ${figures.knotQps} answers/s, ratio ${ratio}`)
}

await main()
