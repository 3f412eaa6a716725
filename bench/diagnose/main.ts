/**
 * How long an operator waits for `sealane status`, `sealane diagnose` and `sealane explain` as processes of their own. The member has
 * 1,000 services exported and imported and 20 other members; its API server is that of the tests, in this process. The
 * program is what a release has: the compiled product without its sources, built from this checkout first.
 *
 *   node bench/diagnose/main.ts [--json] [--services 1000] [--members 20] [--repeat 5]
 */
import { type ExecException, execFile } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { compileProduct } from '../../scripts/compile-product.ts'
import { clusterWith, podsThatLooked } from '../../test/cli/status/cluster-with.ts'
import { healthyObjects } from '../../test/support/objects/member-facts.ts'
import { median, progress, round } from '../figures.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const TARGET = { statusMs: 1000, diagnoseMs: 15_000, explainMs: 2000 }
/** The exit code of an explained call whose far side was not asked. */
const UNDETERMINED = 3

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    services: { type: 'string', default: '1000' },
    members: { type: 'string', default: '20' },
    repeat: { type: 'string', default: '5' },
  },
})
const [services, members, repeat] = [values.services, values.members, values.repeat].map(Number) as [
  number,
  number,
  number,
]

const ends: (() => unknown)[] = []
try {
  await measure()
} finally {
  for (const end of ends.reverse()) await end()
}

async function measure(): Promise<void> {
  const loadBefore = round(loadavg()[0] ?? 0, 1)
  const program = installed()
  const others = Array.from({ length: members }, (_, i) => `member-${i}`)
  const teardown = (end: () => unknown): void => void ends.push(end)
  // The date is in the future, so that nothing becomes stale during the measurement.
  const heard = new Date(Date.now() + 3600_000)
  const objects = healthyObjects({ others, services })
  const server = await clusterWith({ teardown }, objects, heard)
  const slices = objects.EndpointSlice as readonly { readonly metadata: { readonly name: string } }[]
  const ofPods = podsThatLooked()
  server.fault = (request) => {
    // An API server selects by label; that of the tests gives all.
    if (!/service-name=web0$/.test(request.query.get('labelSelector') ?? '')) return ofPods(request)
    const items = slices.filter(({ metadata }) => metadata.name.startsWith('web0-'))
    return { status: 200, body: { kind: 'List', metadata: { resourceVersion: '1' }, items } }
  }
  const target = ['--kubeconfig', server.kubeconfig, '-o', 'json']
  const [statusMs, diagnoseMs, explainMs] = [
    await time(program, ['status', ...target]),
    await time(program, ['diagnose', ...target]),
    await time(program, ['explain', 'w0', 'web0.shop', ...target], UNDETERMINED),
  ]
  const result = { statusMs, diagnoseMs, explainMs, services, members, repeat, ran: 'compiled', loadBefore }
  progress(
    result,
    `status ${statusMs} ms (at most ${TARGET.statusMs}), diagnose ${diagnoseMs} ms (at most ${TARGET.diagnoseMs}), ` +
      `explain ${explainMs} ms (at most ${TARGET.explainMs}): ` +
      `medians of ${repeat}, ${services} services, ${members} other members; the compiled product, load average ` +
      `${loadBefore} before`,
  )
}

/**
 * The path of a `sealane` without sources beside it: in a checkout it would compare times first, or run the sources.
 */
function installed(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-bench-'))
  ends.push(() => rmSync(folder, { recursive: true, force: true }))
  if (!compileProduct(join(folder, 'dist'))) throw new Error('the product does not compile')
  mkdirSync(join(folder, 'bin'))
  const program = join(folder, 'bin', 'sealane')
  copyFileSync(join(ROOT, 'bin', 'sealane'), program)
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  return program
}

/** A first run, in which files are read from the disk, does not count. */
async function time(program: string, args: readonly string[], code = 0): Promise<number> {
  const samples: number[] = []
  for (let i = 0; i <= repeat; i += 1) {
    const began = performance.now()
    await run(program, args, code)
    if (i > 0) samples.push(performance.now() - began)
  }
  return round(median(samples), 0)
}

/** Throws unless the command ends as it does for a healthy member, because otherwise it measured something else. */
async function run(program: string, args: readonly string[], code: number): Promise<void> {
  const { stdout, error } = await new Promise<{ stdout: string; error: ExecException | null }>((resolve) => {
    execFile(program, args, { maxBuffer: 64 << 20 }, (failed, said) => resolve({ stdout: said, error: failed }))
  })
  if ((error?.code ?? 0) !== code)
    throw new Error(`sealane ${args.join(' ')}: ${stdout.slice(0, 500)}`, { cause: error })
}
