/**
 * `node keeper.ts FOLDER json|person flat|overlapping`: runs the story and then keeps the clusters until it is ended.
 * Every program in them lives as long as this process. Output goes to the parent, which may leave once it has all of
 * it; when the parent is gone before that, this ends too.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { Writable } from 'node:stream'
import { atExit } from '../../test/support/at-exit.ts'
import { type Report, jsonReport, personReport } from '../report.ts'
import { keepText } from './keep-text.ts'
import { pidFile } from './kept-clusters.ts'
import { reportStory } from './story.ts'

/** What the parent gets. That the clusters run is the last message; without it this process ends. */
export type Word = { readonly out: string } | { readonly account: string } | { readonly kept: number }

const FOR_EVER_MS = 2 ** 31 - 1

function progress(word: Word): Promise<void> {
  return new Promise((resolve) => {
    if (process.connected) process.send?.(word, () => resolve())
    else resolve()
  })
}

function streamOf(wrap: (text: string) => Word): Writable {
  return new Writable({
    write: (chunk: Buffer | string, _encoding, done) => void progress(wrap(chunk.toString())).then(() => done()),
  })
}

async function main(directory: string, format: string, ranges: string): Promise<void> {
  atExit('folders', () => rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }))
  writeFileSync(pidFile(directory), String(process.pid))
  const abandoned = (): void => process.exit(1)
  process.once('disconnect', abandoned)
  const out = streamOf((text) => ({ out: text }))
  const account = streamOf((text) => ({ account: text }))
  const report: Report = format === 'json' ? jsonReport(out, account) : personReport(out)
  try {
    const world = await reportStory({ directory, flat: ranges === 'flat', keep: true }, report)
    const exitCode = report.finish()
    // Behind all that the report has said.
    await new Promise((resolve) => (format === 'json' ? account : out).write(keepText(world), resolve))
    process.off('disconnect', abandoned)
    await progress({ kept: exitCode })
    process.disconnect?.()
    setInterval(() => undefined, FOR_EVER_MS)
  } catch (error) {
    report.finish((error as Error).message)
    await new Promise((resolve) => out.write('', resolve))
    process.exit(1)
  }
}

const [, , directory = '', format = '', ranges = ''] = process.argv
await main(directory, format, ranges)
