/** Reads one file of the user, and decides whether it is complete yet. */
import { createHash } from 'node:crypto'
import { type Stats, readFileSync, readdirSync, statSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { WriteQueue } from '../../../reconcile/reconcile.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { errorCode, isMissing, writeFileAtomic } from '../atomic-write.ts'
import type { FileProblem } from '../problem-board.ts'
import { MAX_FILE_BYTES, type ParseResult, type ParsedFile, parseObjects } from './parse-objects.ts'

export type Reading =
  | { readonly is: 'missing' }
  | { readonly is: 'unreadable'; readonly problem: FileProblem }
  | { readonly is: 'text'; readonly text: string; readonly sha256: string; readonly stamp: string }

/** `title` is the path as the user writes it. */
export function readUserFile(path: string, title: string): Reading {
  try {
    const stats = statSync(path)
    if (!stats.isFile()) return { is: 'unreadable', problem: { ...atStart(title), reason: 'not a regular file' } }
    if (stats.size > MAX_FILE_BYTES) {
      const reason = `${inMiB(stats.size)} MiB: expected at most ${inMiB(MAX_FILE_BYTES)} MiB; split the file`
      return { is: 'unreadable', problem: { ...atStart(title), reason } }
    }
    const bytes = readFileSync(path)
    const sha256 = createHash('sha256').update(bytes).digest('hex')
    return { is: 'text', text: decode(bytes), sha256, stamp: stampOf(stats) }
  } catch (error) {
    if (isMissing(error)) return { is: 'missing' }
    const reason = messageOf(error)
    return { is: 'unreadable', problem: { ...atStart(title), reason } }
  }
}

export function parseUserFile(title: string, text: string): ParseResult {
  return parseObjects(title, text)
}

/** Changes whenever the file changes. */
export function stampOf(stats: Stats): string {
  return `${stats.ino}:${stats.size}:${stats.mtimeMs}:${stats.ctimeMs}`
}

export function stampAt(path: string): string | undefined {
  try {
    return stampOf(statSync(path))
  } catch {
    return undefined
  }
}

/**
 * Whether a file that was written in place looks incomplete: it lost objects that it had, or ends in the middle of a
 * line. (JSON that parses has its last bracket, whatever follows.) Such a version is accepted only after the file has
 * not changed for a while.
 */
export function looksUnfinished(text: string, parsed: ParsedFile, before: ParsedFile | undefined): boolean {
  if (text !== '' && !text.endsWith('\n') && !/^\s*[{[]/.test(text)) return true
  const ids = new Set(parsed.objects.map(({ kind, key }) => `${kind} ${key}`))
  return (before?.objects ?? []).some(({ kind, key }) => !ids.has(`${kind} ${key}`))
}

function atStart(file: string): { file: string; line: number; column: number } {
  return { file, line: 1, column: 1 }
}

function decode(bytes: Buffer): string {
  // Editors on other systems write a byte order mark.
  return bytes.toString('utf8').replace(/^\uFEFF/, '')
}

/** Rounded up, so that a size above the limit is never shown as the limit. */
function inMiB(bytes: number): number {
  return Math.ceil((bytes / (1024 * 1024)) * 10) / 10
}

export interface GoodFile {
  /** Path below the user's folder. */
  readonly file: string
  /** Hash of the text that was parsed. */
  readonly sha256: string
  readonly parsed: ParsedFile
}

/** Incremented when the parser or the schemas change: stored versions of another format are not used. */
const FORMAT = 1
const MAX_WRITES = 4

/**
 * The last good version of each user file, kept in the state folder. A file that becomes invalid keeps it, even across
 * restarts, and an unchanged file need not be parsed again.
 */
export class LastGood {
  readonly #folder: string
  readonly #onError: (path: string, error: unknown) => void
  /** One write at a time for each file, so that the newest version remains. */
  readonly #writes = new WriteQueue(MAX_WRITES)

  constructor(folder: string, onError: (path: string, error: unknown) => void) {
    this.#folder = folder
    this.#onError = onError
  }

  /** Undefined if there is none, or none that can be read. */
  read(file: string): GoodFile | undefined {
    return this.#load(this.#path(file))
  }

  /** Returns every file that has a good version. */
  files(): string[] {
    try {
      const names = readdirSync(this.#folder).filter((name) => !name.startsWith('.'))
      return names.flatMap((name) => this.#load(join(this.#folder, name))?.file ?? []).sort()
    } catch (error) {
      if (!isMissing(error)) this.#onError(this.#folder, error)
      return []
    }
  }

  /** Writes in the background: no caller waits for it, and a lost version only costs a parse. */
  write(good: GoodFile): void {
    const path = this.#path(good.file)
    void this.#writes.run(path, async () => {
      try {
        if (this.#load(path)?.sha256 !== good.sha256)
          await writeFileAtomic(path, JSON.stringify({ format: FORMAT, ...good }))
      } catch (error) {
        this.#onError(path, error)
      }
    })
  }

  forget(file: string): void {
    const path = this.#path(file)
    try {
      unlinkSync(path)
    } catch (error) {
      if (!isMissing(error)) this.#onError(path, error)
    }
  }

  async settled(): Promise<void> {
    await this.#writes.settled()
  }

  #path(file: string): string {
    return join(this.#folder, `${createHash('sha256').update(file).digest('hex').slice(0, 32)}.json`)
  }

  #load(path: string): GoodFile | undefined {
    try {
      const value = JSON.parse(readFileSync(path, 'utf8')) as GoodFile & { readonly format?: number }
      if (value.format === FORMAT && typeof value.file === 'string' && Array.isArray(value.parsed.objects)) return value
    } catch (error) {
      if (isMissing(error)) return undefined
      // Damaged: it is written again after the next good parse.
      if (errorCode(error) !== undefined) this.#onError(path, error)
    }
    return undefined
  }
}
