/**
 * `npm run bench:converge -- [--json] [--count N]`: a ServiceExport is written in milano; how long until paris' DNS
 * gives the first right answer? This covers the whole path: file, agent, broker, agent, file, dns. Both ends read the
 * same monotonic clock. The floor is one DNS round trip in paris.
 */
import { spawn } from 'node:child_process'
import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import type { Lab } from '../demo/lab.ts'
import { median, percentile, round, progress } from './figures.ts'
import { type JoinedSites, withJoinedSites } from './joined-sites.ts'
import type { ProbeLine } from './dns/probe.ts'
import { LABEL_K8S_SERVICE_NAME } from '../model/spec-constants.ts'

const PROBE = join(import.meta.dirname, 'dns/probe.ts')

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { json: { type: 'boolean' }, count: { type: 'string' } } })
  const count = Number(values.count ?? 200)
  const result = await withJoinedSites(
    { names: ['milano', 'paris'], prepare: ({ lab }) => writeServices(lab, count) },
    (joined) => measure(joined, count),
  )
  progress(
    result,
    `ServiceExport written in milano to first right answer in paris, ${count} times: ` +
      `p50 ${result.p50Ms} ms, p99 ${result.p99Ms} ms, worst ${result.maxMs} ms (one DNS round trip: ${result.floorMs} ms)`,
  )
}

/** Writes services with one endpoint each, none of them exported yet. */
async function writeServices(lab: Lab, count: number): Promise<void> {
  const objects = Array.from({ length: count }, (_, i) => [
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: `bench-${i}`, namespace: 'shop' },
      spec: { ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
    },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: `bench-${i}-1`, namespace: 'shop', labels: { [LABEL_K8S_SERVICE_NAME]: `bench-${i}` } },
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
      endpoints: [{ addresses: ['10.42.1.10'], conditions: { ready: true } }],
    },
  ]).flat()
  const list = { apiVersion: 'v1', kind: 'List', items: objects }
  await writeFile(join(lab.directory, 'milano', 'objects', 'bench.yaml'), JSON.stringify(list))
}

async function measure({ lab, sites }: JoinedSites, count: number) {
  const argv = ['netns', 'exec', lab.full('paris-client-0'), process.execPath, PROBE, '10.42.0.1', String(count)]
  const probe = spawn('ip', argv, { stdio: ['ignore', 'pipe', 'inherit'] })
  const samples: number[] = []
  const floor: number[] = []
  try {
    let started = 0n
    for await (const text of createInterface({ input: probe.stdout })) {
      const line = JSON.parse(text) as ProbeLine
      if (line.state === 'absent') {
        // The name is already being queried all the time, so the result includes the probe's own millisecond.
        started = process.hrtime.bigint()
        await writeExport(lab, line.name.split('.')[0] ?? '')
      } else {
        samples.push(Number(BigInt(line.atNs) - started) / 1e6)
        floor.push(line.roundTripMs)
      }
    }
  } finally {
    probe.kill('SIGKILL')
  }
  if (samples.length !== count) throw new Error(`${samples.length} of ${count} exports were answered`)
  const imports = await sites.show('paris', 'services')
  return {
    p50Ms: round(median(samples)),
    p99Ms: round(percentile(samples, 0.99)),
    maxMs: round(Math.max(...samples)),
    floorMs: round(median(floor)),
    count,
    imports: imports.length,
  }
}

async function writeExport(lab: Lab, name: string): Promise<void> {
  const file = join(lab.directory, 'milano', 'objects', `serviceexport-shop-${name}.yaml`)
  const object = {
    apiVersion: 'multicluster.x-k8s.io/v1beta1',
    kind: 'ServiceExport',
    metadata: { name, namespace: 'shop' },
  }
  await writeFile(`${file}.tmp`, JSON.stringify(object))
  await rename(`${file}.tmp`, file)
}

await main()
