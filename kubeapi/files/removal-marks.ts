/**
 * Marks for removed files of a site with several hubs: `<state>/removed/<SHA-256 of the path>`. Whoever means to remove a
 * file marks it first. So the acting hub tells such a removal from a file that its disk has lost, which other hubs keep.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** No hub that runs needs longer to notice a removal. */
const STALE_MS = 86_400_000

export class RemovalMarks {
  readonly #folder: string

  /** `state` is the state folder of the site. */
  constructor(state: string) {
    this.#folder = join(state, 'removed')
  }

  /**
   * For a file that is about to be removed; `path` is relative to the state folder. Best effort: without its mark, a file
   * may come back from another hub, and its writer removes it again. A full disk must not keep files from being removed.
   */
  add(path: string): void {
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
      writeFileSync(this.#place(path), '')
    } catch {
      // See above.
    }
  }

  has(path: string): boolean {
    return statSync(this.#place(path), { throwIfNoEntry: false }) !== undefined
  }

  /** For a file that is written again, or whose removal other hubs hear of. */
  drop(path: string): void {
    rmSync(this.#place(path), { force: true })
  }

  /** Drops marks that nobody has needed for a day. Never throws. */
  async dropStale(nowMs: number): Promise<void> {
    for (const name of await readdir(this.#folder).catch(() => [])) {
      const place = join(this.#folder, name)
      const madeMs = await stat(place).then(
        ({ mtimeMs }) => mtimeMs,
        () => Infinity,
      )
      if (nowMs - madeMs > STALE_MS) await rm(place, { force: true }).catch(() => undefined)
    }
  }

  #place(path: string): string {
    return join(this.#folder, createHash('sha256').update(path).digest('hex'))
  }
}
