/**
 * `npm run bench:broker -- --clusters N [--services S] [--namespaces K] [--store etcd [--replicas R]] [--json]
 * [--burst-seconds S] [--idle-seconds S] [--tenth] [--alone] [--only STAGE,…]`: brokers as they are installed, in
 * processes of their own, and N simulated members over real TLS on the loopback, in processes of their own. In the same
 * run the peers do the same fan-out: a bare TLS server, and etcd. One of several brokers on an etcd is also killed. The
 * simulated members decode no record, so that they leave the machine to what is measured.
 */
import { Brokers } from './brokers.ts'
import { Generators } from './generators.ts'
import { readOptions } from './options.ts'
import { report } from './report.ts'
import * as stages from './stages.ts'
import { failover } from './failover.ts'

/** The benchmark always ends after this time. */
const MAX_MS = 20 * 60_000

const STAGES = {
  cold: stages.coldStart,
  snapshots: stages.snapshots,
  fanout: stages.oneChange,
  burst: stages.burst,
  failover,
  endpoints: stages.endpoints,
  idle: stages.idle,
  restart: (bench: stages.Bench) => stages.restart(bench),
  tenth: (bench: stages.Bench) => stages.restart(bench, 0.1),
  peers: stages.peers,
}

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2))
  const broker = await Brokers.prepare(options)
  const { ports, state } = broker
  const { services, namespaces, clusters } = options
  const members = { address: `127.0.0.1:${ports[0]}`, ports, state }
  const init = { broker: members, services, namespaces, clusters }
  const generators = new Generators(init, options.clusters)
  const end = async (code: number): Promise<void> => {
    generators.stop()
    await broker.remove()
    process.exit(code)
  }
  const interrupted = (): void => void end(130)
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted)
  setTimeout(() => {
    process.stderr.write(`it took more than ${MAX_MS} ms\n`)
    void end(1)
  }, MAX_MS).unref()
  try {
    await broker.startFirst()
    const bench = { options, broker, generators }
    const figures: Record<string, number> = { ...(await stages.setUp(bench)) }
    for (const [name, stage] of Object.entries(STAGES)) {
      if (!isWanted(name, options)) continue
      const found = await stage(bench)
      Object.assign(figures, found)
      process.stderr.write(`${name}: ${JSON.stringify(found)}\n`)
    }
    report(options, figures)
  } finally {
    generators.stop()
    await broker.remove()
  }
}

function isWanted(name: string, { only, tenth, alone, replicas }: ReturnType<typeof readOptions>): boolean {
  // Before all members have joined there is nothing to measure.
  if (name === 'cold') return true
  if (name === 'failover' && replicas === 1) return false
  if (only.size > 0) return only.has(name)
  return (name !== 'tenth' || tenth) && (name !== 'peers' || !alone)
}

await main()
