/**
 * `npm run bench:faults -- [--json] [--rounds N] [--seed N]`: three brokers on an etcd of three members, in network
 * namespaces, with six clusters that join, publish, leave and are evicted all the time; in each round one to three
 * random faults occur. All answers to clients are compared with the final content of the store, and with what all
 * watchers received. The same seed plans the same faults and the same calls; their relative timing depends on the
 * machine.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { requirePackages } from '../../scripts/install-system-packages.ts'
import { runRounds } from '../../test/etcd/rounds/run-rounds.ts'
import { netnsMissing } from '../../test/support/netns.ts'
import { percentile, progress } from '../figures.ts'

const INSIDE = 'SEALANE_BENCH_FAULTS_INSIDE'

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      rounds: { type: 'string', default: '100' },
      seed: { type: 'string', default: '1' },
    },
  })
  const [rounds, seed] = [whole('--rounds', values.rounds), whole('--seed', values.seed)]
  if (process.env[INSIDE] !== '1') {
    startInside()
    return
  }
  const folder = mkdtempSync(join(tmpdir(), 'sealane-faults-'))
  try {
    const say = (text: string): void => void process.stderr.write(`${text}\n`)
    const { recoveryMs, ...rest } = await runRounds({ rounds, seed, folder, say })
    const recovery = { recoveryP50Ms: percentile(recoveryMs, 0.5), recoveryMaxMs: Math.max(...recoveryMs) }
    const figures = { seed, ...rest, ...recovery }
    progress(figures, JSON.stringify(figures, undefined, 2))
    if (rest.violations.length > 0) process.exitCode = 1
  } finally {
    rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
  }
}

/** Runs the same program in namespaces that disappear with it. */
function startInside(): void {
  requirePackages('etcd')
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(missing)
  const init = 'mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up && "$@"; exit $?'
  // The inner program always ends with this one.
  const args = [
    ...['--pdeathsig', 'KILL', 'unshare', '--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'],
    ...['sh', '-c', init, 'sh'],
  ]
  const { status } = spawnSync('setpriv', [...args, process.execPath, ...process.argv.slice(1)], {
    env: { ...process.env, [INSIDE]: '1' },
    stdio: 'inherit',
  })
  process.exitCode = status ?? 1
}

function whole(option: string, text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new Error(`${option} ${JSON.stringify(text)}: expected a whole number above 0`)
}

await main()
