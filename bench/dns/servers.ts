/**
 * The servers of the DNS benchmark: Sealane's, and Knot DNS with one worker, which serves the same zone. As a program
 * (`node bench/dns/servers.ts PORT HELD_MS`) this file is Sealane's server: the unchanged component on the in-memory
 * cluster, whose objects cannot be read for HELD_MS. It sends its parent a message when it listens.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { portOf, serveDns } from '../../test/dns/serve-dns.ts'
import { ZONE, services } from './zone.ts'

export interface Bench {
  readonly folder: string
  /** All started processes, so that they can be ended. */
  readonly children: ChildProcess[]
  /**
   * Whether servers run on the first processor and dnsperf on the second. Otherwise the kernel decides, for both peers
   * alike.
   */
  readonly pin: boolean
}

export interface Server {
  readonly port: number
  /** Sends SIGTERM, and SIGKILL if that does not suffice. Resolves when the process has ended. */
  end(): Promise<void>
}

async function serve(port: string, heldMs: number): Promise<void> {
  const api = new MemoryApi({ hold: heldMs > 0 })
  for (const { namespace, name, ip } of services()) {
    api.put({
      apiVersion: 'multicluster.x-k8s.io/v1beta1',
      kind: 'ServiceImport',
      metadata: { namespace, name },
      spec: { type: 'ClusterSetIP', ips: [ip], ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
    })
  }
  await serveDns({ api, clusterId: 'east', listen: `127.0.0.1:${port}`, heldMs })
}

/** Resolves when it listens. */
export async function startOurs({ children, pin }: Bench, port = 0, heldMs = 0): Promise<Server> {
  const [command, args] = pinned(pin, 0, process.execPath, [
    '--disable-warning=ExperimentalWarning',
    fileURLToPath(import.meta.url),
    String(port),
    String(heldMs),
  ])
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  children.push(child)
  return { port: await portOf(child), end: () => endChild(child) }
}

/** Resolves when it answers. */
export async function startKnot({ folder, children, pin }: Bench): Promise<Server> {
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
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit'] })
  children.push(child)
  await untilAnswering(port)
  return { port, end: () => endChild(child) }
}

export function pinned(pin: boolean, cpu: number, command: string, args: string[]): [string, string[]] {
  return pin ? ['taskset', ['-c', String(cpu), command, ...args]] : [command, args]
}

/** A port that is free for UDP and TCP, as far as can be known. */
async function freePort(): Promise<number> {
  for (;;) {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const address = server.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    const socket = createSocket('udp4').bind(port, '127.0.0.1')
    const isFree = await once(socket, 'listening').then(
      () => true,
      () => false,
    )
    socket.close()
    server.close()
    await once(server, 'close')
    if (isFree) return port
  }
}

async function untilAnswering(port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const args = ['+short', '+tries=1', '+time=1', '-p', String(port), '@127.0.0.1', `service-0.team-0.svc.${ZONE}`]
    try {
      if (execFileSync('dig', args, { encoding: 'utf8' }).trim() === '245.0.0.0') return
    } catch {
      // The server does not answer yet.
    }
    await sleep(20)
  }
  throw new Error(`nobody answers on port ${port}`)
}

export async function endChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  const patience = setTimeout(() => child.kill('SIGKILL'), 5000)
  await exited
  clearTimeout(patience)
}

if (import.meta.main) await serve(process.argv[2] ?? '0', Number(process.argv[3] ?? '0'))
