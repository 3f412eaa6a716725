/** Writes what was collected as one file, for its owner alone. */
import { Buffer } from 'node:buffer'
import { writeFile } from 'node:fs/promises'
import { release } from 'node:os'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { sealaneVersion } from '../../runtime/version.ts'
import { writeBackupFile } from '../broker/backup-file.ts'
import { type Collected, ROOT } from './items.ts'
import { packTar } from './tar.ts'

export const BUNDLE_FORMAT = 1

export interface BundleFile {
  readonly file: string
  /** Also where there is a file of that name. */
  readonly force: boolean
  /** What was looked at. */
  readonly target: string
  readonly at: Date
}

/** Gives the size of the file. Throws UserError where it exists or cannot be written. */
export async function writeBundle(
  { files, missing }: Collected,
  { file, force, target, at }: BundleFile,
): Promise<number> {
  const about = {
    format: BUNDLE_FORMAT,
    takenAt: at.toISOString(),
    target,
    versions: { sealane: sealaneVersion(), node: process.version, kernel: release() },
    missing,
  }
  const first = { name: 'bundle.json', content: Buffer.from(`${JSON.stringify(about, undefined, 1)}\n`) }
  const named = [first, ...files].map(({ name, content }) => ({ name: ROOT + name, content }))
  const packed = await promisify(gzip)(packTar(named, at.getTime()))
  const write = (part: string): Promise<void> => writeFile(part, packed, { flag: 'wx', mode: 0o600 })
  await writeBackupFile({ file, force, write, check: () => undefined })
  return packed.length
}
