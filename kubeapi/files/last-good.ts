/**
 * The last good reading of each user file, kept in the state folder: a file that breaks keeps it, also across
 * restarts, and an unchanged file need not be parsed again.
 */
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { errorCode, isMissing, writeFileAtomic } from './atomic-write.ts'
import type { ParsedFile } from './user/parse-objects.ts'
import { WriteQueue } from '../write-queue.ts'

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
