import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** A folder of its own for one test, removed with all in it when the test ends. */
export function temporaryFolder(t: Test): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'sealane-test-')))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}
