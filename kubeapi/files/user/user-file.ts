/** Reading one user file, and deciding whether it is complete yet. */
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

/** `title` is the path as the user knows it. */
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

/** Changes whenever the file does. */
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
 * Whether a file that was written in place looks as if more were to come: it lost objects that it had, or ends
 * in the middle of a line (JSON that could be read whole has its last bracket, whatever follows it). Such a reading is
 * believed only after the file has not changed for a while.
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
  // Editors on other systems put a byte order mark in front.
  return bytes.toString('utf8').replace(/^\uFEFF/, '')
}

/** Rounded up, so that what is too large never reads as the limit. */
function inMiB(bytes: number): number {
  return Math.ceil((bytes / (1024 * 1024)) * 10) / 10
}

export interface GoodFile {
  /** Path below the user's folder. */
  readonly file: string
  /** Of the text that was parsed. */
  readonly sha256: string
  readonly parsed: ParsedFile
}

/** Raised when the parser or the schemas change: older readings are then not trusted as parses. */
const FORMAT = 1
const MAX_WRITES = 4

/**
 * The last good reading of each user file, kept in the state folder: a file that breaks keeps it, also across
 * restarts, and an unchanged file need not be parsed again.
 */
export class LastGood {
  readonly #folder: string
  readonly #onError: (path: string, error: unknown) => void
  /** One write at a time for each file, so that the newest reading is the one that stays. */
  readonly #writes = new WriteQueue(MAX_WRITES)

  constructor(folder: string, onError: (path: string, error: unknown) => void) {
    this.#folder = folder
    this.#onError = onError
  }

  /** Undefined where there is none, or none that can be read. */
  read(file: string): GoodFile | undefined {
    return this.#load(this.#path(file))
  }

  /** Every file that has a reading. */
  files(): string[] {
    try {
      const names = readdirSync(this.#folder).filter((name) => !name.startsWith('.'))
      return names.flatMap((name) => this.#load(join(this.#folder, name))?.file ?? []).sort()
    } catch (error) {
      if (!isMissing(error)) this.#onError(this.#folder, error)
      return []
    }
  }

  /** In the background: nobody waits for it, and losing one only costs a parse. */
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
      // Damaged: it will be written again after the next good parse.
      if (errorCode(error) !== undefined) this.#onError(path, error)
    }
    return undefined
  }
}
