/** Files of a published Go module that no test compiles, such as the CRDs that a project ships. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

export interface GoDownload {
  /** With its version: `example.org/name@v1.2.3`. */
  readonly module: string
  /** Of its zip, as go.sum has it: `h1:…`. */
  readonly sum: string
}

const DEADLINE_MS = 300_000

/** The folder that it is in. Throws with Go's own words, and where what came is not what was pinned. */
export async function goDownload({ module, sum }: GoDownload): Promise<string> {
  // The sum is pinned here, so no other place has to know it.
  const env = { ...process.env, GONOSUMDB: module.split('@')[0] ?? '', GOFLAGS: '-mod=mod' }
  const options = { env, cwd: '/', timeout: DEADLINE_MS, maxBuffer: 1 << 20 }
  const { stdout } = await promisify(execFile)('go', ['mod', 'download', '-json', module], options)
  const found = JSON.parse(stdout) as { readonly Dir?: string; readonly Sum?: string; readonly Error?: string }
  if (found.Dir === undefined) throw new Error(`${module}: ${found.Error ?? 'no folder'}`)
  if (found.Sum !== sum) throw new Error(`${module}: expected ${sum}, got ${found.Sum ?? 'none'}`)
  return found.Dir
}
