/**
 * Runs test files one after the other in this process, so that the modules that most of them load are loaded once. Each
 * file is a test of its own in the printed TAP. run-files.ts starts this program, with a Batch as JSON in
 * SEALANE_TEST_BATCH, and gives it the next file on request, so that no process has files left while others are idle.
 */
import { flushCompileCache, registerHooks } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import tap from 'tap'
import { readFilesInto } from './batch-tap.ts'
import { type Batch, NEXT, type NextFile } from './run-files.ts'

const ROOT = join(import.meta.dirname, '..')
const HERE = new URL('.', import.meta.url).href
const FILE_TAP = import.meta.resolve('./batch-tap.ts')
/** How long this process may live after its last test, for servers that close and processes that end. */
const GRACE_MS = 3000

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'tap' && isTest(context.parentURL) ? { url: FILE_TAP, shortCircuit: true } : next(specifier, context),
})

/** tap's own modules, and the two of this program, import the real tap. */
function isTest(url: string | undefined): boolean {
  return url !== undefined && url !== FILE_TAP && url !== import.meta.url && url.startsWith(HERE)
}

const { files, seconds } = JSON.parse(process.env['SEALANE_TEST_BATCH'] ?? '{}') as Batch
delete process.env['SEALANE_TEST_BATCH']
tap.setTimeout(seconds * files * 1000)

async function nextFile(): Promise<string | undefined> {
  // tap has unreferenced the channel, so that it no longer keeps the process alive.
  process.channel?.ref()
  const answer = new Promise<NextFile>((resolve) => process.once('message', (next: NextFile) => resolve(next)))
  process.send?.(NEXT)
  const { file } = await answer
  process.channel?.unref()
  return file
}

for (let file = await nextFile(); file !== undefined; file = await nextFile()) {
  const path = join(ROOT, file)
  await tap.test(file, { timeout: seconds * 1000 }, async (test) => {
    readFilesInto(test)
    await import(pathToFileURL(path).href)
  })
  // Other processes load the same modules meanwhile, and Node would write the cache only at the end.
  flushCompileCache()
}
process.disconnect?.()
// This comes last, because tap ends a test with a teardown as soon as it has nothing to do.
tap.teardown(() => {
  const late = setTimeout(() => {
    process.stderr.write(`still open after all tests: ${process.getActiveResourcesInfo().join(', ')}\n`)
    process.exit()
  }, GRACE_MS)
  late.unref()
})
tap.end()
