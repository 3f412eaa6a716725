/**
 * `npm run bench:writers -- [--json] [--replicas N] [--writers N] [--seconds S]`: how long a write to the log takes
 * while several replicas write one etcd at the same time (default: 3 replicas of 20 writers for 15 s; each writer
 * pauses for 50 ms on average), and whether all of them make progress. The peer in the same run is bare puts to that
 * etcd, one after the other, which is the least that a write can take.
 */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type { Change } from '../../broker/store/record-log.ts'
import type { EtcdLog } from '../../broker/store/etcd/etcd-log.ts'
import { openReplica } from '../../test/etcd/support/open-replica.ts'
import { startEtcdCluster } from '../../test/etcd/support/etcd-cluster.ts'
import { row } from '../../test/compliance/record-log.ts'
import { percentile, progress, round } from '../figures.ts'

const PREFIX = '/bench/writers'
const PAUSE_MS = 100
const BARE_WRITES = 300

interface Options {
  readonly replicas: number
  readonly writers: number
  readonly seconds: number
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      replicas: { type: 'string', default: '3' },
      writers: { type: 'string', default: '20' },
      seconds: { type: 'string', default: '15' },
    },
  })
  const whole = (name: 'replicas' | 'writers' | 'seconds', most: number): number => {
    const number = Number(values[name])
    if (Number.isInteger(number) && number > 0 && number <= most) return number
    throw new Error(`--${name} ${JSON.stringify(values[name])}: expected a whole number from 1 to ${most}`)
  }
  return { replicas: whole('replicas', 16), writers: whole('writers', 1000), seconds: whole('seconds', 600) }
}

/** Closes everything in reverse order, as a test's teardown does. */
async function withTeardown(work: (t: Teardown) => Promise<void>): Promise<void> {
  const toDo: (() => unknown)[] = []
  try {
    await work({ teardown: (end) => void toDo.unshift(end) })
  } finally {
    for (const end of toDo) await end()
  }
}

interface Teardown {
  teardown(end: () => unknown): void
}

async function main(): Promise<void> {
  const options = readOptions()
  await withTeardown(async (t) => {
    const cluster = await startEtcdCluster(t)
    const opened: Awaited<ReturnType<typeof openReplica>>[] = []
    for (let i = 0; i < options.replicas; i += 1) opened.push(await openReplica(t, cluster, { prefix: PREFIX }))
    const [first] = opened
    if (first === undefined) throw new Error('no replica is open')
    const bare = await barePuts(first)
    const replicas = await Promise.all(opened.map(({ log }, i) => write(log, i, options)))
    const times = replicas.map((samples) => ({
      writes: samples.length,
      p50Ms: round(percentile(samples, 0.5)),
      p99Ms: round(percentile(samples, 0.99)),
      maxMs: round(Math.max(...samples)),
    }))
    const result = {
      ...options,
      writesP50Ms: round(percentile(replicas.flat(), 0.5)),
      writesP99Ms: round(percentile(replicas.flat(), 0.99)),
      leastWrites: Math.min(...times.map(({ writes }) => writes)),
      mostWrites: Math.max(...times.map(({ writes }) => writes)),
      barePutP50Ms: round(percentile(bare, 0.5)),
      barePutP99Ms: round(percentile(bare, 0.99)),
      byReplica: times,
    }
    const lines = times.map(({ writes, p50Ms, p99Ms, maxMs }, i) => {
      return `replica ${i}: ${writes} writes, p50 ${p50Ms} ms, p99 ${p99Ms} ms, at most ${maxMs} ms`
    })
    progress(result, [...lines, `bare puts: p50 ${result.barePutP50Ms} ms, p99 ${result.barePutP99Ms} ms`].join('\n'))
  })
}

async function barePuts({ store }: Awaited<ReturnType<typeof openReplica>>): Promise<readonly number[]> {
  const { signal } = new AbortController()
  const samples: number[] = []
  for (let i = 0; i < BARE_WRITES; i += 1) {
    const began = performance.now()
    await store.client.put(Buffer.from(`${PREFIX}/bare/${i % 5}`), Buffer.from('x'), { action: 'bare put', signal })
    samples.push(performance.now() - began)
  }
  return samples
}

/** The milliseconds of each write of a replica. Throws what a write fails with. */
async function write(log: EtcdLog, replica: number, { writers, seconds }: Options): Promise<readonly number[]> {
  const samples: number[] = []
  const untilMs = performance.now() + seconds * 1000
  const key = (writer: number): Change<'record'>['key'] => `bench/K/n/${replica}-${writer}`
  const one = async (writer: number): Promise<void> => {
    while (performance.now() < untilMs) {
      const began = performance.now()
      await log.transact((tx) => tx.put('record', key(writer), row('1')))
      samples.push(performance.now() - began)
      await sleep(randomInt(PAUSE_MS))
    }
  }
  await Promise.all(Array.from({ length: writers }, (_, i) => one(i)))
  return samples
}

await main()
