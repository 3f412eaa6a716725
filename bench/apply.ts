/**
 * How long nftables takes to follow the services: 10,000 services with 2 endpoints each into an empty network
 * namespace, then one endpoint changed, again and again. The routeagent's own loop does it, planning included; a bare
 * `nft -f -` of the same text in the same run is the peer.
 *
 * With --policy, a ClusterTrafficPolicy divides the connections of all services by weights.
 *
 *   node bench/apply.ts [--json] [--services 10000] [--repeat 15] [--policy]
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { runCommand } from '../kernel/run-command.ts'
import type { ClusterTrafficPolicy } from '../model/objects.ts'
import { BenchSite } from './apply-site.ts'
import { median, round } from './figures.ts'

const INSIDE = 'SEALANE_BENCH_PRIVATE_NETNS'
const TARGET_FULL_MS = 1500
const TARGET_DELTA_MS = 15

interface Options {
  readonly json: boolean
  readonly services: number
  readonly repeat: number
  readonly policy: boolean
}

interface Result {
  readonly fullMs: number
  readonly deltaMs: number
  readonly bareFullMs: number
  readonly bareDeltaMs: number
  readonly services: number
  readonly repeat: number
}

/** On all services. The other cluster is not there. */
const POLICY: ClusterTrafficPolicy = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'ClusterTrafficPolicy',
  metadata: { name: 'default', uid: 'default' },
  spec: { order: [{ local: {} }, { any: {}, weights: { paris: 9000, tokyo: 1000 } }], spillBelowPercent: 70 },
}

const signal = new AbortController().signal
const options = readOptions()
if (process.env[INSIDE] === '1') print(await measure(options), options)
else process.exitCode = runInPrivateNetns()

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      services: { type: 'string', default: '10000' },
      repeat: { type: 'string', default: '15' },
      policy: { type: 'boolean', default: false },
    },
  })
  return { json: values.json, services: Number(values.services), repeat: Number(values.repeat), policy: values.policy }
}

/** The namespace has no name and disappears with the process, so nothing can stay behind. */
function runInPrivateNetns(): number {
  const args = ['--net', '--', process.execPath, fileURLToPath(import.meta.url), ...process.argv.slice(2)]
  const run = spawnSync('unshare', args, { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } })
  if (run.error !== undefined) process.stderr.write(`unshare: ${run.error.message}; needs root and util-linux\n`)
  return run.status ?? 1
}

async function measure({ services, repeat, policy }: Options): Promise<Result> {
  const fullMs: number[] = []
  const bareFullMs: number[] = []
  const deltaMs: number[] = []
  const bareDeltaMs: number[] = []
  for (let turn = 0; turn < 3; turn++) {
    const site = new BenchSite(services, policy ? POLICY : undefined)
    await bareNft('add table ip sealane_node\ndelete table ip sealane_node\n')
    fullMs.push(await timed(() => site.loop.reconcile(signal)))
    const full = site.nft.lastText()
    if (turn === 2) {
      for (let i = 0; i < repeat; i++) {
        deltaMs.push(await timed(() => site.changeOneEndpoint(i)))
        const there = site.nft.lastText()
        // The peer sends the same statements for the next service's elements, so that both make a change that is new to
        // nft.
        bareDeltaMs.push(await timed(() => bareNft(site.textForOther(there, i))))
      }
    }
    await bareNft('delete table ip sealane_node\n')
    bareFullMs.push(await timed(() => bareNft(full)))
    await bareNft('delete table ip sealane_node\n')
  }
  return {
    fullMs: round(median(fullMs)),
    deltaMs: round(median(deltaMs)),
    bareFullMs: round(median(bareFullMs)),
    bareDeltaMs: round(median(bareDeltaMs)),
    services,
    repeat,
  }
}

async function bareNft(text: string): Promise<void> {
  const result = await runCommand('nft', ['-f', '-'], { input: text })
  if (result.code !== 0) throw new Error(result.stderr.slice(0, 1000))
}

async function timed(action: () => Promise<void>): Promise<number> {
  const start = performance.now()
  await action()
  return performance.now() - start
}

function print(result: Result, { json }: Options): void {
  if (json) {
    process.stdout.write(`${JSON.stringify(result)}\n`)
    return
  }
  const row = (what: string, ms: number, bare: number, target: number): string =>
    `${what.padEnd(28)} ${ms.toFixed(1).padStart(8)} ms   bare nft ${bare.toFixed(1).padStart(8)} ms   target ${target} ms\n`
  process.stdout.write(
    row(`${result.services} services from nothing`, result.fullMs, result.bareFullMs, TARGET_FULL_MS),
  )
  process.stdout.write(row('one endpoint changed', result.deltaMs, result.bareDeltaMs, TARGET_DELTA_MS))
}
