/** Texts that are kept in files; SEALANE_UPDATE_GOLDEN=1 writes them again, for review in the diff. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'

/** The folder of the golden files. */
export const GOLDEN = join(import.meta.dirname, '..', 'golden')

/** Compares the text with `file`, a path below test/golden. */
export function equalsGolden(t: Test, text: string, file: string): void {
  equalsFile(t, text, { path: join(GOLDEN, file), file })
}

/** Compares the text with `file`, a path below the root of the project: a document that only a test can write. */
export function equalsDocument(t: Test, text: string, file: string): void {
  equalsFile(t, text, { path: join(GOLDEN, '..', '..', file), file })
}

function equalsFile(t: Test, text: string, { path, file }: { readonly path: string; readonly file: string }): void {
  if (process.env['SEALANE_UPDATE_GOLDEN'] === '1') {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  t.equal(text, readFileSync(path, 'utf8'), file)
}
