/**
 * `npm run bench:flows -- [--json] [--rate 5000] [--seconds 30] [--pairs 200]`: what it costs to count calls. A program
 * opens UDP flows to clusterset IPs in a network namespace; the route agent's table counts them, and its readings are
 * made every ten seconds as its loop makes them. The peer in the same run is `conntrack -E`, which reads each event.
 *
 * - `corePercent`: time of a processor for counting: that of the readings, and what the program that calls takes more than
 *   without the table, as the kernel counts while it sends.
 * - `lostPercent`: calls that no element has.
 * - `eventsCorePercent`, `eventsLostPercent`: the same by `conntrack -E`; -1 where it is not installed.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { NftCommand } from '../kernel/nft/nft-command.ts'
import { runCommand } from '../kernel/run-command.ts'
import { NFT_TABLE_FLOWS } from '../model/kernel-ids.ts'
import { READ_EACH_MS } from '../routeagent/flows/flow-loop.ts'
import { ALL_SETS, planFlowsTable } from '../routeagent/flows/plan-flows-table.ts'
import { FlowReadings, FlowTotals } from '../routeagent/flows/plan-totals.ts'
import { addressFamily } from '../routeagent/world/address-family.ts'
import { progress, round } from './figures.ts'

const INSIDE = 'SEALANE_BENCH_PRIVATE_NETNS'
const CALLING = 'SEALANE_BENCH_CALLS'
const TARGETS = { corePercent: 1, lostPercent: 0.1 }
/** Calls are made in bursts this far apart. */
const BURST_MS = 10
const signal = new AbortController().signal

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    rate: { type: 'string', default: '5000' },
    seconds: { type: 'string', default: '30' },
    pairs: { type: 'string', default: '200' },
  },
})
const [rate, seconds, pairs] = [Number(values.rate), Number(values.seconds), Number(values.pairs)]

if (process.env[CALLING] === '1') await makeCalls()
else if (process.env[INSIDE] === '1') await measure()
else process.exitCode = runInPrivateNetns()

/** The namespace has no name and disappears with the process, so nothing can stay behind. */
function runInPrivateNetns(): number {
  const args = ['--net', '--', process.execPath, fileURLToPath(import.meta.url), ...process.argv.slice(2)]
  const run = spawnSync('unshare', args, { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } })
  if (run.error !== undefined) process.stderr.write(`unshare: ${run.error.message}; needs root and util-linux\n`)
  return run.status ?? 1
}

interface Calls {
  readonly made: number
  readonly cpuMs: number
}

/** Each datagram goes to another port, and so begins a flow. Prints how many there were. */
async function makeCalls(): Promise<void> {
  const socket = createSocket('udp4')
  const started = performance.now()
  const data = Buffer.from('hello')
  let made = 0
  while (performance.now() - started < seconds * 1000) {
    const wanted = Math.floor(((performance.now() - started) / 1000) * rate)
    for (; made < wanted; made += 1) {
      const target = made % pairs
      socket.send(data, 1 + (Math.floor(made / pairs) % 65_535), `245.0.${target >> 8}.${target & 0xff}`)
    }
    await sleep(BURST_MS)
  }
  await new Promise<void>((resolve) => socket.close(resolve))
  const { user, system } = process.cpuUsage()
  process.stdout.write(JSON.stringify({ made, cpuMs: (user + system) / 1000 } satisfies Calls))
}

async function callsOfChild(): Promise<Calls> {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, [CALLING]: '1' },
  })
  let said = ''
  child.stdout.on('data', (text: Buffer) => (said += String(text)))
  await once(child, 'close')
  return JSON.parse(said) as Calls
}

async function measure(): Promise<void> {
  for (const line of [
    'link set lo up',
    'link add eth0 type veth peer name hole',
    'link set hole up',
    'link set eth0 arp off up',
    'address add 192.0.2.1/24 dev eth0',
    'route add 244.0.0.0/7 dev eth0',
  ])
    await must('ip', line.split(' '))
  await must('sysctl', ['-qw', 'net.netfilter.nf_conntrack_udp_timeout=5'])
  await must('nft', ['add table ip t; add chain ip t out { type nat hook output priority -101; }'])
  await must('nft', ['add rule ip t out ip daddr 245.0.0.0/16 dnat to 244.1.0.5'])
  const plain = await callsOfChild()
  const counted = await countCalls()
  const events = await followEvents()
  const percent = (cpuMs: number): number => (100 * cpuMs) / (seconds * 1000)
  const more = (one: Calls): number => Math.max(0, (one.cpuMs * plain.made) / one.made - plain.cpuMs)
  const figures = {
    corePercent: round(percent(counted.readMs + more(counted.calls))),
    lostPercent: round(100 * (1 - counted.counted / counted.calls.made), 3),
    readPercent: round(percent(counted.readMs)),
    eventsCorePercent: events === undefined ? -1 : round(percent(events.readMs + more(events.calls))),
    eventsLostPercent: events === undefined ? -1 : round(100 * (1 - events.counted / events.calls.made), 3),
    ratePerSecond: Math.round(counted.calls.made / seconds),
    pairs,
  }
  progress(
    figures,
    `${figures.ratePerSecond} calls a second of ${pairs} pairs: ${figures.corePercent} % of a core (at most ` +
      `${TARGETS.corePercent}), ${figures.readPercent} % of it by readings, ${figures.lostPercent} % lost (at most ` +
      `${TARGETS.lostPercent})\nby conntrack -E: ${figures.eventsCorePercent} %, ${figures.eventsLostPercent} % lost`,
  )
}

interface Counted {
  readonly calls: Calls
  readonly counted: number
  readonly readMs: number
}

async function countCalls(): Promise<Counted> {
  const nft = new NftCommand()
  const table = { family: addressFamily(4), clustersetIpRange: '245.0.0.0/16', ownPods: [], remote: [] }
  await nft.run(planFlowsTable({ ...table, isSampled: false, cpus: cpus().length }))
  const [readings, totals] = [new FlowReadings(), new FlowTotals()]
  let [counted, readMs] = [0, 0]
  const read = async (): Promise<void> => {
    const before = ownCpuMs()
    const { calls } = readings.take(await nft.counts(NFT_TABLE_FLOWS, ALL_SETS, signal), () => false)
    for (const { called, counts } of calls) {
      counted += counts.opened
      totals.add({ way: 'out', namespace: 'shop', service: called, cluster: 'paris' }, counts, performance.now())
    }
    readMs += ownCpuMs() - before
  }
  const ended = callsOfChild()
  const ending = new AbortController()
  void ended.then(() => ending.abort())
  let dueMs = performance.now() + READ_EACH_MS
  while (!ending.signal.aborted) {
    await Promise.race([ended, sleep(100)])
    if (performance.now() < dueMs) continue
    dueMs += READ_EACH_MS
    await read()
  }
  const calls = await ended
  await read()
  await must('nft', ['delete', 'table', 'ip', NFT_TABLE_FLOWS])
  return { calls, counted, readMs }
}

/** Undefined if the tool is not installed. */
async function followEvents(): Promise<Counted | undefined> {
  if (spawnSync('conntrack', ['--version']).error !== undefined) return undefined
  const tool: ChildProcess = spawn('conntrack', ['-E', '-e', 'NEW'], { stdio: ['ignore', 'pipe', 'ignore'] })
  let counted = 0
  tool.stdout?.on('data', (text: Buffer) => {
    for (const octet of text) if (octet === 10) counted += 1
  })
  await sleep(500)
  const calls = await callsOfChild()
  await sleep(500)
  const readMs = cpuMsOf(String(tool.pid), false)
  tool.kill()
  return { calls, counted, readMs }
}

/** This process and the children that it has waited for. */
function ownCpuMs(): number {
  return cpuMsOf('self', true)
}

/** proc(5): fields 14 to 17 of stat, in hundredths of a second. */
function cpuMsOf(pid: string, withChildren: boolean): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = fields.slice(11, withChildren ? 15 : 13).map(Number)
  return ticks.reduce((sum, n) => sum + n, 0) * 10
}

async function must(tool: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runCommand(tool, args)
  if (code !== 0) throw new Error(`${tool} ${args.join(' ')}: ${stderr}`)
  return stdout
}
