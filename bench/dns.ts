/**
 * DNS with 10,000 services: one Sealane process and, in turn, Knot DNS with one worker that serves the same zone. It
 * measures answers a second for names that exist and names that do not, the time of an answer at 5,000 a second, in the
 * first seconds of a process and later, and what clients notice of a hand-over and of a restart. Usage: node
 * bench/dns.ts [--json] [--rounds N] [--seconds S] [--pin]
 */
import { type ChildProcess, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { type Paced, paced, throughput } from './dns/load.ts'
import { type Bench, type Server, endChild, startKnot, startOurs } from './dns/servers.ts'
import { type Question, SERVICES, questions } from './dns/zone.ts'
import { median, round, progress } from './figures.ts'

const PER_SECOND = 5000
/** How long the first seconds of a process last. */
const FIRST_SECONDS = 5
const HAND_OVER_SECONDS = 10
/** For this time, the new process of a hand-over cannot read its objects. */
const HELD_MS = 500

interface Run {
  readonly bench: Bench
  readonly rounds: number
  readonly seconds: number
  readonly files: Readonly<Record<Question, string>>
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '4' },
      pin: { type: 'boolean', default: false },
    },
  })
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
  const files = { address: join(folder, 'address'), absent: join(folder, 'absent') }
  for (const kind of ['address', 'absent'] as const) writeFileSync(files[kind], questions(kind))
  const bench = { folder, children, pin: values.pin }
  try {
    report(await measure({ bench, files, rounds: Number(values.rounds), seconds: Number(values.seconds) }))
  } finally {
    await Promise.all(children.map((child) => endChild(child)))
    rmSync(folder, { recursive: true, force: true })
  }
}

type Peers = readonly [ours: Server, knot: Server]

async function measure(run: Run): Promise<Figures> {
  const ours = await startOurs(run.bench)
  const first = await pace(run, ours, 'address', FIRST_SECONDS)
  const knot = await startKnot(run.bench)
  const knotFirst = await pace(run, knot, 'address', FIRST_SECONDS)
  const peers = [ours, knot] as const
  const [qps, knotQps] = await mostOf(run, peers, 'address')
  const [nxdomainQps, knotNxdomainQps] = await mostOf(run, peers, 'absent')
  const [later, knotLater] = [await pace(run, ours, 'address'), await pace(run, knot, 'address')]
  const [absent, knotAbsent] = [await pace(run, ours, 'absent'), await pace(run, knot, 'absent')]
  await ours.end()
  await knot.end()
  return {
    ...{ qps, knotQps, services: SERVICES, ratio: round(qps / knotQps, 3) },
    ...{ nxdomainQps, knotNxdomainQps, nxdomainRatio: round(nxdomainQps / knotNxdomainQps, 3) },
    ...{ p50Ms: later.p50Ms, p99Ms: later.p99Ms, knotP50Ms: knotLater.p50Ms, knotP99Ms: knotLater.p99Ms },
    ...{ nxdomainP50Ms: absent.p50Ms, nxdomainP99Ms: absent.p99Ms },
    ...{ knotNxdomainP50Ms: knotAbsent.p50Ms, knotNxdomainP99Ms: knotAbsent.p99Ms },
    ...{ firstP50Ms: first.p50Ms, firstP99Ms: first.p99Ms },
    ...{ knotFirstP50Ms: knotFirst.p50Ms, knotFirstP99Ms: knotFirst.p99Ms },
    ...(await handOver(run)),
    restartMs: await restart(run),
  }
}

function pace({ bench, files }: Run, { port }: Server, kind: Question, seconds = FIRST_SECONDS): Promise<Paced> {
  return paced({ port, file: files[kind], seconds, pin: bench.pin, perSecond: PER_SECOND })
}

/** Answers a second of both, as the median of all rounds. They alternate, because the speed of the machine changes. */
async function mostOf(run: Run, [ours, knot]: Peers, kind: Question): Promise<[number, number]> {
  const { bench, files, rounds, seconds } = run
  const load = { file: files[kind], pin: bench.pin, kind }
  for (const { port } of [ours, knot]) await throughput({ ...load, port, seconds: 1 })
  const all: { readonly ours: number; readonly knot: number }[] = []
  for (let i = 1; i <= rounds; i += 1) {
    const both = {
      ours: await throughput({ ...load, port: ours.port, seconds }),
      knot: await throughput({ ...load, port: knot.port, seconds }),
    }
    all.push(both)
    console.error(`${kind}, round ${i}: sealane ${Math.round(both.ours)}/s, knot ${Math.round(both.knot)}/s`)
  }
  return [Math.round(median(all.map((one) => one.ours))), Math.round(median(all.map((one) => one.knot)))]
}

interface HandOver {
  readonly handOverQuestions: number
  readonly handOverLost: number
  readonly handOverServfail: number
}

/** While clients ask, a second process starts on the same port, and the first ends once the second listens. */
async function handOver(run: Run): Promise<HandOver> {
  const old = await startOurs(run.bench)
  const asking = pace(run, old, 'address', HAND_OVER_SECONDS)
  await sleep(2000)
  const young = await startOurs(run.bench, old.port, HELD_MS)
  await sleep(1000)
  await old.end()
  const { asked, lost, codes } = await asking
  await young.end()
  const { NOERROR: right = 0, SERVFAIL: handOverServfail = 0 } = codes
  if (right + handOverServfail + lost !== asked)
    throw new Error(`other answers: ${JSON.stringify({ asked, ...codes })}`)
  return { handOverQuestions: asked, handOverLost: lost, handOverServfail }
}

/** The time from the end of one process to the first answer of the next, which starts when the first has ended. */
async function restart({ bench }: Run): Promise<number> {
  const old = await startOurs(bench)
  await old.end()
  const start = performance.now()
  const young = await startOurs(bench, old.port)
  const tookMs = performance.now() - start
  await young.end()
  return Math.round(tookMs)
}

interface Figures extends HandOver {
  readonly qps: number
  readonly knotQps: number
  readonly services: number
  readonly ratio: number
  readonly nxdomainQps: number
  readonly knotNxdomainQps: number
  readonly nxdomainRatio: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly knotP50Ms: number
  readonly knotP99Ms: number
  readonly nxdomainP50Ms: number
  readonly nxdomainP99Ms: number
  readonly knotNxdomainP50Ms: number
  readonly knotNxdomainP99Ms: number
  readonly firstP50Ms: number
  readonly firstP99Ms: number
  readonly knotFirstP50Ms: number
  readonly knotFirstP99Ms: number
  readonly restartMs: number
}

function report(f: Figures): void {
  progress(
    { ...f },
    [
      `addresses     sealane ${f.qps} answers/s, knot (one worker) ${f.knotQps}, ratio ${f.ratio}`,
      `no such name  sealane ${f.nxdomainQps} answers/s, knot ${f.knotNxdomainQps}, ratio ${f.nxdomainRatio}`,
      `at ${PER_SECOND}/s, p50 and p99 in ms`,
      `  first ${FIRST_SECONDS} s   sealane ${f.firstP50Ms} ${f.firstP99Ms}, knot ${f.knotFirstP50Ms} ${f.knotFirstP99Ms}`,
      `  later       sealane ${f.p50Ms} ${f.p99Ms}, knot ${f.knotP50Ms} ${f.knotP99Ms}`,
      `  no such name  sealane ${f.nxdomainP50Ms} ${f.nxdomainP99Ms}, knot ${f.knotNxdomainP50Ms} ${f.knotNxdomainP99Ms}`,
      `hand-over     ${f.handOverServfail} SERVFAIL and ${f.handOverLost} lost of ${f.handOverQuestions}`,
      `restart       ${f.restartMs} ms from the end of one to the first answer of the next`,
    ].join('\n'),
  )
}

await main()
