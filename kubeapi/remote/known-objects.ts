/**
 * What a node last knew of its site, on its own disk: one file for each kind. A process that starts while no hub can be
 * reached continues from it. It is written after a complete list only, and never read again once the hub has answered.
 */
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Kind, KubeObject } from '../../model/model.ts'
import { SPEC_SHAPES, STATUS_SHAPES, complaintOf } from '../../model/schemas/schemas.ts'
import { type Clock, SerialQueue } from '../../reconcile/reconcile.ts'
import { messageOf, replaceFile } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

/** Heartbeats change objects every few seconds; a start needs no more than roughly the last state. */
const SAVE_MS = 15_000
const FIRST_SAVE_MS = 500

export class KnownObjects {
  readonly #deps: { readonly clock: Clock; readonly logger: Logger }
  readonly #folder: string
  readonly #pending = new Map<Kind, () => readonly KubeObject[]>()
  readonly #writes = new SerialQueue()
  #cancel: (() => void) | undefined
  #isClosed = false

  constructor(deps: { readonly clock: Clock; readonly logger: Logger }, init: { readonly folder: string }) {
    this.#deps = deps
    this.#folder = init.folder
  }

  /** Undefined if nothing usable is stored. Objects that a disk error has damaged are left out. */
  async load(kind: Kind): Promise<readonly KubeObject[] | undefined> {
    try {
      const value: unknown = JSON.parse(await readFile(this.#path(kind), 'utf8'))
      if (!Array.isArray(value)) return undefined
      return value.filter((one): one is KubeObject => isUsable(kind, one))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#complain(kind, error)
      return undefined
    }
  }

  /** Stores what `list` gives, a little later. */
  save(kind: Kind, list: () => readonly KubeObject[]): void {
    if (this.#isClosed) return
    const isFirst = this.#pending.size === 0 && this.#cancel === undefined
    this.#pending.set(kind, list)
    if (isFirst) this.#cancel = this.#deps.clock.setTimer(FIRST_SAVE_MS, () => this.#flush())
  }

  /** Writes what is pending. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancel?.()
    this.#flush()
    await this.#writes.settled()
  }

  #flush(): void {
    for (const [kind, list] of this.#pending) {
      void this.#writes.run(async () => {
        try {
          await mkdir(this.#folder, { recursive: true, mode: 0o700 })
          await replaceFile(this.#path(kind), JSON.stringify(list()))
        } catch (error) {
          this.#complain(kind, error)
        }
      })
    }
    this.#pending.clear()
    this.#cancel = undefined
    if (this.#isClosed) return
    this.#cancel = this.#deps.clock.setTimer(SAVE_MS, () => {
      this.#cancel = undefined
      if (this.#pending.size > 0) this.#flush()
    })
  }

  #path(kind: Kind): string {
    return join(this.#folder, `${kind}.json`)
  }

  #complain(kind: Kind, error: unknown): void {
    const fields = { reason: 'StateFolderUnusable', path: this.#path(kind), why: messageOf(error) } as const
    this.#deps.logger.warn('cannot use what this node knew of its site', fields)
  }
}

function isUsable(kind: Kind, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { kind: named, metadata, status } = value as Partial<KubeObject> & { readonly status?: unknown }
  if (named !== kind || typeof metadata !== 'object' || typeof metadata.name !== 'string') return false
  const [spec, shape] = [SPEC_SHAPES[kind], STATUS_SHAPES[kind]]
  if (spec !== undefined && complaintOf(spec, value) !== undefined) return false
  if (shape === undefined || status === undefined) return true
  return typeof status === 'object' && status !== null && complaintOf(shape, status) === undefined
}
