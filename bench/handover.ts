/**
 * `npm run bench:handover -- [--json]`: how many calls two other clusters, which call a hundred times a second, lose
 * while gateway nodes of a third are drained, restarted and, for comparison, lost without warning. It runs the story of
 * test/kube/several-gateways.test.ts on three real control planes and reads its output.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { progress } from './figures.ts'

const STORY = join(import.meta.dirname, '../test/kube/several-gateways.test.ts')
const LINE = /# (drained|restarted|lost), from \w+: (\d+) of (\d+) had no answer, longest gap ([\d.]+) ms/g

interface Loss {
  /** The lost calls, of a hundred a second, of the caller that lost most. */
  readonly mostLost: number
  readonly longestGapMs: number
}

async function main(): Promise<void> {
  // The child must not get the test runner's settings.
  const env = { ...process.env, NODE_OPTIONS: '', SEALANE_CALLS_PER_SECOND: '100' }
  const { stdout } = await promisify(execFile)(process.execPath, [STORY], { env, maxBuffer: 64 * 1024 * 1024 })
  const rows = [...stdout.matchAll(LINE)]
  const of = (what: string): Loss => {
    const mine = rows.filter((row) => row[1] === what)
    if (mine.length === 0) throw new Error(`the story says nothing of calls while gateways are ${what}:\n${stdout}`)
    return {
      mostLost: Math.max(...mine.map((row) => Number(row[2]))),
      longestGapMs: Math.max(...mine.map((row) => Number(row[4]))),
    }
  }
  const result = { drained: of('drained'), restarted: of('restarted'), lostWithoutAWord: of('lost') }
  const lines = Object.entries(result).map(([what, { mostLost, longestGapMs }]) => {
    return `${what}: ${mostLost} calls lost, longest gap ${longestGapMs} ms`
  })
  progress(result, lines.join('\n'))
}

await main()
