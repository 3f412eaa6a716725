/**
 * `npm run test:mutants`: makes small mistakes in pure and core files, and checks whether tests find them. --seed N
 * chooses other mutants, --count N sets their number, --only FILE takes those of one file, --list tries none, and
 * --root DIR takes the sources and tests of another checkout.
 */
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { ROOT } from '../support/source-tree.ts'
import { chooseMutants } from './choose-mutants.ts'
import { isEquivalent } from './equivalent.ts'
import { type Mutant, applyMutant, describeMutant, makeMutants } from './make-mutants.ts'
import { nearestTests } from './nearest-tests.ts'
import { ROOMS, filesOf } from './rooms.ts'
import { type TreeCopy, copyTree } from './tree-copy.ts'
import { type Outcome, outcomeLine, summary, tryMutant } from './try-mutant.ts'
import { typeCheck } from './type-check.ts'

/** How many test files run at once, each in a copy of its own. */
const JOBS = 2
/** How many seconds one test file may take. Unit files need a second or two, and more on a busy machine. */
const SECONDS = 120
/** How many of the test files that load a mutant's file are run at most. */
const MOST_TESTS = 20
const MUST_BE_KILLED = 0.9

interface Options {
  readonly root: string
  readonly seed: number
  readonly count: number
  readonly only: string | undefined
}

function chosenMutants({ root, seed, count, only }: Options): Mutant[] {
  const rooms = only === undefined ? ROOMS.map((room) => filesOf(room, root)) : [[only]]
  const compiles = typeCheck(root, rooms.flat())
  const text = (file: string): string => readFileSync(join(root, file), 'utf8')
  return chooseMutants(
    rooms.map((files) => files.map((file) => makeMutants(file, text(file)))),
    {
      seed,
      count,
      accept: (mutant) => !isEquivalent(mutant) && compiles(mutant.file, applyMutant(text(mutant.file), mutant)),
      ...(only === undefined ? {} : { mostOfAFile: Infinity }),
    },
  )
}

/** Tries the mutants in copies below `folder`, until `signal` is aborted. */
async function tryAll(
  mutants: readonly Mutant[],
  root: string,
  folder: string,
  signal: AbortSignal,
): Promise<Outcome[]> {
  const testsOf = nearestTests(root)
  const waiting = [...mutants]
  const outcomes: Outcome[] = []
  const clean: Parameters<typeof tryMutant>[1]['clean'] = new Map()
  const work = async (tree: TreeCopy): Promise<void> => {
    signal.addEventListener('abort', () => tree.stop())
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const outcome = await tryMutant(next, { tree, tests: testsOf(next.file), most: MOST_TESTS, clean, signal })
      process.stdout.write(`${outcomeLine(outcome)}\n`)
      outcomes.push(outcome)
    }
  }
  const trees = Array.from({ length: JOBS }, (_, i) => copyTree(root, join(folder, String(i)), SECONDS))
  await Promise.all(trees.map(work))
  return outcomes
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      count: { type: 'string', default: '60' },
      only: { type: 'string' },
      list: { type: 'boolean', default: false },
      root: { type: 'string' },
    },
  })
  // npm starts its scripts in the folder of package.json, and this variable has the folder in which the user ran it.
  const from = process.env['INIT_CWD'] ?? process.cwd()
  const root = values.root === undefined ? ROOT : realpathSync(resolve(from, values.root))
  const options = {
    root,
    seed: wholeNumber('--seed', values.seed),
    count: wholeNumber('--count', values.count),
    only: values.only === undefined ? undefined : fileBelow(root, from, values.only),
  }
  const mutants = chosenMutants(options)
  if (values.list) {
    for (const one of mutants) process.stdout.write(`${one.file}:${one.line}  ${one.kind}  ${describeMutant(one)}\n`)
    return
  }
  const folder = mkdtempSync(join(realpathSync(tmpdir()), 'sealane-mutants-'))
  const stopped = new AbortController()
  const stop = (name: NodeJS.Signals): void => stopped.abort(new Error(`stopped by ${name}`))
  process.on('SIGINT', stop).on('SIGTERM', stop).on('SIGHUP', stop)
  try {
    const { text, ok } = summary(await tryAll(mutants, root, folder, stopped.signal), MUST_BE_KILLED)
    process.stdout.write(text)
    if (!ok) process.exitCode = 1
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop).off('SIGHUP', stop)
    rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
  }
}

function wholeNumber(option: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new Error(`${option} ${text}: expected a whole number`)
  return Number(text)
}

function fileBelow(root: string, from: string, path: string): string {
  const found = [resolve(from, path), resolve(root, path)].find((one) => existsSync(one) && one.startsWith(`${root}/`))
  if (found === undefined) throw new Error(`--only ${path}: expected a source file of ${root}`)
  return relative(root, found)
}

await main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 1
})
