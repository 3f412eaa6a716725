/** Reads the TAP that a test file printed: its cases, and the result of each. */

export interface Case {
  /** The name, after those of the tests around it: `a > b`. A file without a test in it is named `all of it`. */
  readonly name: string
  readonly state: 'passed' | 'failed' | 'skipped'
  /** Why it was skipped; '' otherwise. */
  readonly reason: string
}

export interface TapRecord {
  /**
   * A case is a test that contains no other test. A test around others also counts if it failed and none of them did,
   * because then an assertion of its own failed.
   */
  readonly cases: readonly Case[]
  readonly assertions: { readonly passed: number; readonly failed: number }
}

interface TapTest {
  readonly name: string
  /** A test that has begun counts as failed until its end says otherwise. */
  state: Case['state']
  reason: string
  readonly tests: TapTest[]
  readonly assertions: { passed: number; failed: number }
}

/** For TAP that breaks off, the result has what came before. */
export function readTap(text: string): TapRecord {
  const file = newTest('')
  const open = [file]
  for (const { depth, rest } of linesOf(text)) {
    const around = open[depth]
    if (around === undefined) continue
    const begins = /^# Subtest: (.*)$/.exec(rest)?.[1]
    const point = /^(not )?ok \d+(?: - (.*?))?(?: # (?:time=\S+|SKIP ?(.*)))?(?: \{)?$/i.exec(rest)
    if (begins !== undefined) {
      const test = newTest(begins)
      around.tests.push(test)
      open.splice(depth + 1, Infinity, test)
    } else if (point !== null) {
      const [, not, name = '', skip] = point
      const state = skip !== undefined ? 'skipped' : not === undefined ? 'passed' : 'failed'
      const test = open[depth + 1]
      if (test !== undefined) {
        test.state = state
        test.reason = skip ?? ''
        open.length = depth + 1
      } else if (state === 'skipped') {
        // TAP has no Subtest line for a skipped test.
        around.tests.push({ ...newTest(name === '' ? 'a test without a name' : name), state, reason: skip ?? '' })
      } else around.assertions[state] += 1
    }
  }
  return { cases: casesOfFile(file, text), assertions: assertionsIn(file) }
}

export interface BatchPart {
  /** The output of this file, as if it had run alone. */
  readonly output: string
  readonly ms: number
  /** The result at its end; undefined if the process broke off in the middle. */
  readonly isOk: boolean | undefined
}

/** The output of each file of a batch (run-batch.ts), in which every file is a test at the outermost level. */
export function partsOfBatch(text: string): ReadonlyMap<string, BatchPart> {
  const parts = new Map<string, BatchPart>()
  let open: { readonly file: string; readonly lines: string[] } | undefined
  const close = (ms: number, isOk?: boolean): void => {
    if (open !== undefined) parts.set(open.file, { output: open.lines.join('\n'), ms, isOk })
    open = undefined
  }
  for (const line of text.split('\n')) {
    const begins = /^# Subtest: (.*)$/.exec(line)?.[1]
    const end = /^(not )?ok \d+ - .*?(?: # time=([\d.]+)ms)?$/.exec(line)
    if (begins !== undefined) open = { file: begins, lines: [] }
    else if (end !== null) close(Number(end[2] ?? 0), end[1] === undefined)
    else open?.lines.push(line.replace(/^ {4}/, ''))
  }
  close(0)
  return parts
}

function newTest(name: string): TapTest {
  return { name, state: 'failed', reason: '', tests: [], assertions: { passed: 0, failed: 0 } }
}

/** The lines with their depth in tests, without diagnostics: the YAML after a test point may contain anything. */
function* linesOf(text: string): Generator<{ depth: number; rest: string }> {
  let endOfYaml: string | undefined
  for (const line of text.split('\n')) {
    if (endOfYaml !== undefined) {
      if (line === endOfYaml) endOfYaml = undefined
      continue
    }
    const indent = /^ */.exec(line)?.[0].length ?? 0
    if (indent % 4 === 2 && line.trim() === '---') endOfYaml = `${' '.repeat(indent)}...`
    else if (indent % 4 === 0) yield { depth: indent / 4, rest: line.slice(indent) }
  }
}

function casesOfFile(file: TapTest, text: string): readonly Case[] {
  const { passed, failed } = file.assertions
  const alone = { name: 'all of it', reason: '' } as const
  const skip = /^1\.\.0(?: # ?(?:SKIP\b ?)?(.*))?$/im.exec(text)
  if (file.tests.length > 0 || passed + failed > 0) {
    const own: Case[] = failed > 0 ? [{ ...alone, state: 'failed' }] : []
    const only: Case[] = file.tests.length === 0 && failed === 0 ? [{ ...alone, state: 'passed' }] : []
    return [...own, ...only, ...file.tests.flatMap((test) => casesOf(test, []))]
  }
  return skip === null ? [] : [{ ...alone, state: 'skipped', reason: reasonOf(skip[1] ?? '') }]
}

function casesOf(test: TapTest, around: readonly string[]): readonly Case[] {
  const names = [...around, test.name]
  const within = test.tests.flatMap((one) => casesOf(one, names))
  const isOwn = test.state === 'failed' && !within.some(({ state }) => state === 'failed')
  const reason = test.state === 'skipped' ? reasonOf(test.reason) : ''
  const own: Case = { name: names.join(' > '), state: test.state, reason }
  return within.length === 0 || isOwn ? [...within, own] : within
}

function reasonOf(text: string): string {
  return text.trim() === '' ? 'without a reason' : text.trim()
}

function assertionsIn({ assertions, tests }: TapTest): { passed: number; failed: number } {
  return tests
    .map(assertionsIn)
    .reduce((sum, one) => ({ passed: sum.passed + one.passed, failed: sum.failed + one.failed }), assertions)
}
