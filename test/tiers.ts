/** The tiers of tests: what each needs and how it is run. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { run } from './run-tiers.ts'

export interface Tier {
  readonly name: string
  readonly folders: readonly string[]
  /** Why it cannot run here; undefined when it can. */
  skip(): Promise<string | undefined>
  run(files: readonly string[]): Promise<{ code: number; output: string }>
}

const TAP = join(import.meta.dirname, '..', 'node_modules/.bin/tap')

function tap(jobs: number, seconds: number): Tier['run'] {
  return (files) => run(TAP, ['run', '--reporter=terse', `--jobs=${jobs}`, `--timeout=${seconds}`, ...files])
}

const always = (): Promise<undefined> => Promise.resolve(undefined)

/** Network namespaces can be made: tried, not guessed. */
function netnsProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to make network namespaces')
  const tried = spawnSync('unshare', ['--net', 'true'])
  return Promise.resolve(tried.status === 0 ? undefined : 'this machine does not allow network namespaces')
}

function kernelProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to share the root folder with the guest')
  const found = ['/usr/bin/qemu-system-x86_64'].some((path) => existsSync(path))
  return Promise.resolve(found ? undefined : 'needs the package qemu-system-x86')
}

export const TIERS: readonly Tier[] = [
  {
    name: 'unit',
    folders: [
      'model',
      'reconcile',
      'runtime',
      'kernel',
      'protocol',
      'cluster',
      'broker',
      'agent',
      'gateway',
      'routeagent',
      'dns',
      'cli',
      'demo',
    ].map((name) => `test/${name}`),
    skip: always,
    run: tap(2, 120),
  },
  { name: 'story', folders: ['test/story'], skip: always, run: tap(2, 120) },
  { name: 'conventions', folders: ['test/conventions'], skip: always, run: tap(2, 60) },
  { name: 'netns', folders: ['test/netns'], skip: netnsProblem, run: tap(1, 180) },
  { name: 'kernel', folders: ['test/guest'], skip: kernelProblem, run: tap(1, 900) },
]
