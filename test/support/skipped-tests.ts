/** Reads from a TAP record which tests chose not to run. */

export interface SkippedTest {
  /** Path of the test file. */
  readonly file: string
  /** Name of the test, with the names of those around it before it: `a > b`. */
  readonly name: string
  readonly reason: string
}

/**
 * Takes TAP as recordOf() of run-files.ts writes it: every file is a subtest, and a subtest is announced with
 * `# Subtest: name` at its parent's indentation. A record that breaks off gives what it has.
 */
export function skippedTests(record: string): SkippedTest[] {
  const around: string[] = []
  const found: SkippedTest[] = []
  for (const line of record.split('\n')) {
    const [, indent = '', rest = ''] = /^( *)(.*)$/.exec(line) ?? []
    const depth = indent.length / 4
    const subtest = /^# Subtest: (.*)$/.exec(rest)
    const skipped = /^ok \d+(?: - (.*?))? # SKIP ?(.*)$/i.exec(rest)
    if (subtest !== null) around.splice(depth, Infinity, subtest[1] ?? '')
    if (skipped === null) continue
    const [name = '', reason = ''] = skipped.slice(1)
    const path = [...around.slice(0, depth), name === '' ? 'a test without a name' : name]
    found.push({
      file: path[0] ?? '',
      name: path.slice(1).join(' > ') || 'all of it',
      reason: reason.trim() === '' ? 'without a reason' : reason.trim(),
    })
  }
  return found
}
