/** Finds out whether the tests notice a mutant. */
import { type Mutant, applyMutant, describeMutant } from './make-mutants.ts'
import type { Ended, TreeCopy } from './tree-copy.ts'

export interface Outcome {
  readonly mutant: Mutant
  readonly fate: 'killed' | 'timed out' | 'survived'
  /** The test file that killed it. */
  readonly by: string | undefined
  /** How many test files ran; `reaching` is how many load the file. */
  readonly ran: number
  readonly reaching: number
  readonly seconds: number
  /** Test files that failed, and also fail without the mutant. */
  readonly broken: readonly string[]
}

export interface TryInit {
  readonly tree: TreeCopy
  /** The test files that load the file, the nearest first. */
  readonly tests: readonly string[]
  /** How many of them may run. */
  readonly most: number
  /** How test files ended without a mutant, as far as that is known. */
  readonly clean: Map<string, Promise<Ended>>
  /** Ends the run when it is aborted; tryMutant() then throws its reason. */
  readonly signal: AbortSignal
}

/** Runs the nearest tests until one fails that passes without the mutant. */
export async function tryMutant(mutant: Mutant, init: TryInit): Promise<Outcome> {
  const { tree, tests, most, clean, signal } = init
  const started = performance.now()
  const text = tree.read(mutant.file)
  const broken: string[] = []
  const outcome = (fate: Outcome['fate'], by: string | undefined, ran: number): Outcome => {
    const seconds = (performance.now() - started) / 1000
    return { mutant, fate, by, ran, reaching: tests.length, seconds, broken }
  }
  for (const [i, test] of tests.slice(0, most).entries()) {
    tree.write(mutant.file, applyMutant(text, mutant))
    const ended = await tree.run(test).finally(() => tree.write(mutant.file, text))
    signal.throwIfAborted()
    if (ended === 'passed') continue
    // A test that fails without the mutant proves nothing, whether it is broken or too slow for this machine.
    if (!clean.has(test)) clean.set(test, tree.run(test))
    const alone = await clean.get(test)
    signal.throwIfAborted()
    if (alone === 'passed') return outcome(ended === 'failed' ? 'killed' : 'timed out', test, i + 1)
    broken.push(test)
  }
  return outcome('survived', undefined, Math.min(most, tests.length))
}

export function outcomeLine({ mutant, fate, by, ran, reaching, seconds }: Outcome): string {
  const cut = ran < reaching ? ` (the nearest of ${reaching})` : ''
  const how = {
    killed: `killed by ${by}`,
    'timed out': `timed out in ${by}`,
    survived: `survived ${ran} test files${cut}`,
  }[fate]
  return `${how}  ${seconds.toFixed(1)} s  ${mutant.file}:${mutant.line}  ${describeMutant(mutant)}`
}

/** The closing lines of the report, and whether enough mutants were killed. */
export function summary(outcomes: readonly Outcome[], share: number): { readonly text: string; readonly ok: boolean } {
  const count = (fate: Outcome['fate']): number => outcomes.filter((one) => one.fate === fate).length
  const killed = outcomes.length - count('survived')
  const cut = outcomes.filter((one) => one.fate === 'survived' && one.ran < one.reaching).length
  const broken = [...new Set(outcomes.flatMap((one) => one.broken))].sort()
  const ok = outcomes.length > 0 && killed >= share * outcomes.length
  const percent = outcomes.length === 0 ? 0 : (100 * killed) / outcomes.length
  const lines = [
    ...broken.map((test) => `${test} fails or is too slow without a mutant, too: it killed none`),
    ...(cut > 0 ? [`${cut} survived the nearest test files; others that load the file did not run`] : []),
    ...(count('timed out') > 0 ? [`${count('timed out')} of the killed ended no test in time`] : []),
    `${killed} killed, ${outcomes.length - killed} survived of ${outcomes.length}: ${percent.toFixed(1)} %` +
      (ok ? '' : `, at least ${100 * share} % must be killed`),
  ]
  return { text: `${lines.join('\n')}\n`, ok }
}
