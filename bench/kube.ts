/**
 * `npm run bench:kube -- [--json] [--exports N] [--services N] [--flips N]`: two real, joined control planes. It
 * measures how long it takes from a ServiceExport in one to the ServiceImport in the other, with many services from
 * nothing, and with one changed endpoint, and then the memory of the agents. Beside each figure is the time of the bare
 * API servers.
 */
import { parseArgs } from 'node:util'
import { median, percentile, round, progress } from './figures.ts'
import { type BenchLab, withKubeLab } from './kube/lab.ts'
import {
  type Chained,
  type Cold,
  makeExports,
  makeNamespaces,
  measureCold,
  measureExports,
  measureFlips,
  measureImport,
  measureLarge,
} from './kube/stages.ts'

interface Options {
  readonly exports: number
  readonly services: number
  readonly flips: number
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      exports: { type: 'string', default: '200' },
      services: { type: 'string', default: '1000' },
      flips: { type: 'string', default: '20' },
    },
  })
  return { exports: Number(values.exports), services: Number(values.services), flips: Number(values.flips) }
}

async function measure(lab: BenchLab, options: Options) {
  await makeNamespaces(lab)
  say('exports, one by one')
  const exported = await measureExports(lab, options.exports)
  sayChained(exported)
  say(`${options.services} services from the start of both agents`)
  await makeExports(lab, options.services)
  const cold = await measureCold(lab, options.services)
  sayCold(cold)
  say('the same, published already')
  const imported = await measureImport(lab, options.services)
  sayCold(imported)
  say('endpoints that change')
  const flips = await measureFlips(lab, options.flips)
  sayChained(flips)
  const memory = memoryOf(lab)
  say('one service with 5,000 endpoints')
  const large = await measureLarge(lab)
  say(`  ${round(large.ms, 0)} ms`)
  const after = memoryOf(lab)
  return {
    p50Ms: round(median(exported.ms)),
    bareP50Ms: round(median(exported.bareMs)),
    p99Ms: round(percentile(exported.ms, 0.99)),
    bareP99Ms: round(percentile(exported.bareMs, 0.99)),
    coldMs: round(imported.ms, 0),
    bareColdMs: round(imported.bareMs, 0),
    bothColdMs: round(cold.ms, 0),
    bareBothColdMs: round(cold.bareMs, 0),
    flipMs: round(median(flips.ms)),
    bareFlipMs: round(median(flips.bareMs)),
    largeMs: round(large.ms, 0),
    largeSlices: large.slices,
    largestSlice: large.largest,
    agentRssMb: round(Math.max(memory.now, after.now), 0),
    agentPeakRssMb: round(after.peak, 0),
    ...options,
  }
}

/** The memory of the larger agent. */
function memoryOf({ exporter, importer }: BenchLab): { readonly now: number; readonly peak: number } {
  const [a, b] = [exporter.agent.memory(), importer.agent.memory()]
  say(
    `  resident: exporting ${round(a.now, 0)} (peak ${round(a.peak, 0)}), importing ${round(b.now, 0)} (peak ${round(b.peak, 0)}) MB`,
  )
  return { now: Math.max(a.now, b.now), peak: Math.max(a.peak, b.peak) }
}

function sayChained({ ms, bareMs }: Chained): void {
  const texts = [ms, bareMs].map(
    (samples) => `p50 ${round(median(samples))} p99 ${round(percentile(samples, 0.99))} ms`,
  )
  say(`  ${texts.join(', bare ')}`)
}

function sayCold({ ms, bareMs }: Cold): void {
  say(`  ${round(ms, 0)} ms, bare ${round(bareMs, 0)} ms`)
}

function say(text: string): void {
  process.stderr.write(`${text}\n`)
}

const options = readOptions()
const result = await withKubeLab((lab) => measure(lab, options))
progress(
  result,
  [
    `ServiceExport to ServiceImport in the other cluster, ${result.exports} times: p50 ${result.p50Ms} ms, p99 ` +
      `${result.p99Ms} ms (two bare API servers: ${result.bareP50Ms} and ${result.bareP99Ms} ms)`,
    `${result.services} services with 10 endpoints each, from the start of an agent that knows nothing to all imported: ` +
      `${result.coldMs} ms (bare writes: ${result.bareColdMs} ms)`,
    `the same from the start of both agents, nothing published: ${result.bothColdMs} ms (bare writes: ${result.bareBothColdMs} ms)`,
    `one endpoint changed then: ${result.flipMs} ms (two bare API servers: ${result.bareFlipMs} ms)`,
    `one service with 5,000 endpoints: ${result.largeMs} ms, ${result.largeSlices} slices, at most ${result.largestSlice} endpoints each`,
    `the larger agent: ${result.agentRssMb} MB resident, ${result.agentPeakRssMb} MB at most`,
  ].join('\n'),
)
