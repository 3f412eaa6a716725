import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { atExit } from './at-exit.ts'

/** A folder for one test, removed with its content when the test ends or is interrupted. */
export function temporaryFolder(t: Pick<Test, 'teardown'>): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'sealane-test-')))
  const remove = (): void => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
  t.teardown(remove)
  // If it is interrupted, tap ends the test while its programs still run, and they may write into the folder again.
  atExit('folders', remove)
  return folder
}
