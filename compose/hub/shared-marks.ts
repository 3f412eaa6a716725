/**
 * Marks for removals that each hub of a site must hear of, also one that is away for months: `<state>/hub/removed/<SHA-256 of
 * the path>.json`. Hubs exchange them as the other files of the state, so what is missing without a mark was lost by a disk.
 * A mark stays until the file is written again. There is one for each part of the identity and each node; those of
 * invitations go when the invitation would have ended.
 */
import { createHash } from 'node:crypto'
import { rmSync, statSync } from 'node:fs'
import { mkdir, readFile, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { replaceFile, syncPath } from '../../runtime/runtime.ts'

/** A day longer than an invitation may be valid. */
const INVITATION_MS = 8 * 86_400_000

export class SharedMarks {
  readonly #folder: string

  /** `state` is the state folder of the site. */
  constructor(state: string) {
    this.#folder = join(state, 'hub', 'removed')
  }

  /**
   * For a file that is about to be removed; `path` is relative to the state folder, with `/`. Throws what the disk says:
   * without its mark the file would come back from another hub.
   */
  async add(path: string): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    // An empty file would count for no other hub.
    await replaceFile(this.#place(path), `${JSON.stringify({ path })}\n`)
    await syncPath(this.#folder)
  }

  has(path: string): boolean {
    return this.madeMs(path) !== undefined
  }

  /** When this machine got the mark, by its file system. Undefined if there is none. */
  madeMs(path: string): number | undefined {
    return statSync(this.#place(path), { throwIfNoEntry: false })?.mtimeMs
  }

  /** For a file that is written again. */
  drop(path: string): void {
    rmSync(this.#place(path), { force: true })
  }

  /** Drops marks of invitations that have ended since: there is one for each. Never throws. */
  async dropStale(nowMs: number): Promise<void> {
    for (const name of await readdir(this.#folder).catch(() => [])) {
      const place = join(this.#folder, name)
      try {
        if (nowMs - (await stat(place)).mtimeMs < INVITATION_MS) continue
        const { path } = JSON.parse(await readFile(place, 'utf8')) as { readonly path?: unknown }
        if (typeof path === 'string' && path.startsWith('hub/invitations/')) await rm(place, { force: true })
      } catch {
        // The next call tries again.
      }
    }
  }

  #place(path: string): string {
    return join(this.#folder, `${createHash('sha256').update(path).digest('hex')}.json`)
  }
}
