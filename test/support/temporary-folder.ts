import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { atExit } from './at-exit.ts'

/** A folder of its own for one test, removed with all in it when the test ends or is interrupted. */
export function temporaryFolder(t: Pick<Test, 'teardown'>): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'sealane-test-')))
  const remove = (): void => rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
  t.teardown(remove)
  // Interrupted, tap ends the test while its programs still run, and may write anew.
  atExit('folders', remove)
  return folder
}
