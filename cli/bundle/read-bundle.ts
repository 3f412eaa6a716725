/**
 * Reads a bundle of `sealane gather` in place of a cluster. The file may come from anyone, so all sizes are limited.
 */
import { open } from 'node:fs/promises'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { printable } from '../../model/model.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import { FACTS_FILE, MAX_FACTS, ROOT } from './items.ts'
import { unpackTar } from './tar.ts'

const MAX_FILE = 64 << 20
const MAX_UNPACKED = 128 << 20
const MAX_FILES = 5000
/** The maximum number of facts: one for each list of objects, part and question. */
const MAX_FACT_COUNT = 10_000
const MAX_OBJECTS = 200_000

/**
 * The facts in the bundle, for diagnoseMember(), which validates each of them. Throws UserError, which says what is
 * wrong with the file.
 */
export async function readBundle(file: string): Promise<unknown> {
  try {
    return factsOf(await unpacked(await contentOf(file)))
  } catch (error) {
    throw new UserError(`--bundle ${file}: ${printable(messageOf(error)).slice(0, 300)}`, {
      hint: 'expected a file written by "sealane gather"',
      cause: error,
    })
  }
}

async function contentOf(file: string): Promise<Buffer> {
  const handle = await open(file, 'r')
  try {
    const { size } = await regular(handle)
    const buffer = Buffer.alloc(size)
    let filled = 0
    while (filled < size) {
      const { bytesRead } = await handle.read(buffer, filled, size - filled, filled)
      if (bytesRead === 0) break
      filled += bytesRead
    }
    return buffer.subarray(0, filled)
  } finally {
    await handle.close()
  }
}

async function regular(handle: Awaited<ReturnType<typeof open>>): Promise<{ readonly size: number }> {
  const found = await handle.stat()
  if (!found.isFile()) throw new Error('it is not a regular file')
  if (found.size > MAX_FILE) throw new Error(`it is larger than ${MAX_FILE >> 20} MiB`)
  return found
}

async function unpacked(content: Buffer): Promise<ReadonlyMap<string, Buffer>> {
  let archive: Buffer
  try {
    archive = await promisify(gunzip)(content, { maxOutputLength: MAX_UNPACKED })
  } catch (error) {
    const isTooLarge = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE'
    const why = isTooLarge
      ? `unpacked it is larger than ${MAX_UNPACKED >> 20} MiB`
      : 'it is not compressed with gzip, or it is damaged'
    throw new Error(why, { cause: error })
  }
  return unpackTar(archive, MAX_FILES)
}

function factsOf(files: ReadonlyMap<string, Buffer>): unknown {
  const content = files.get(ROOT + FACTS_FILE)
  if (content === undefined) throw new Error(`there is no ${FACTS_FILE} in it`)
  if (content.length > MAX_FACTS) throw new Error(`${FACTS_FILE} is larger than ${MAX_FACTS >> 20} MiB`)
  let value: unknown
  try {
    value = JSON.parse(content.toString())
  } catch (error) {
    throw new Error(`${FACTS_FILE} is not JSON`, { cause: error })
  }
  checkFacts(value)
  return value
}

/** Checks only the number of facts and objects. Their content is validated where facts are read. */
function checkFacts(value: unknown): void {
  const { format, facts } = (typeof value === 'object' && value !== null ? value : {}) as Readonly<
    Record<string, unknown>
  >
  if (format !== 1) throw new Error(`${FACTS_FILE}: format: expected 1: another release wrote it`)
  if (!Array.isArray(facts)) throw new Error(`${FACTS_FILE}: facts: expected a list`)
  if (facts.length > MAX_FACT_COUNT) throw new Error(`${FACTS_FILE}: more than ${MAX_FACT_COUNT} facts`)
  let objects = 0
  for (const fact of facts as readonly unknown[]) {
    const items = typeof fact === 'object' && fact !== null ? (fact as { items?: unknown }).items : undefined
    if (Array.isArray(items)) objects += items.length
  }
  if (objects > MAX_OBJECTS) throw new Error(`${FACTS_FILE}: more than ${MAX_OBJECTS} objects`)
}
