/** What the loops share: the latest result of each, and a call when it has changed. */
import { isDeepStrictEqual } from 'node:util'
import type { NotImportedReason, ServiceKey } from '../../model/model.ts'
import type { NeededRange } from '../../model/addresses/addresses.ts'
import type { ConflictFinding } from '../../model/services/services.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import type { ExportPlan, Importers } from '../export/export.ts'
import type { ImportPlan } from '../import/import.ts'

/** What the mirror loop has come to. */
export interface ImportFindings {
  readonly plan: ImportPlan
  /** That exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  /** Why services of namespaces that are here are not imported all the same. Changes in place. */
  readonly problems: ReadonlyMap<ServiceKey, NotImportedReason>
}

/** Who imports what this cluster exports. */
export interface ImporterFindings {
  readonly importers: Importers
  /**
   * Exports that the broker has had for so long that every member has had the time to say no, and since when it has
   * them.
   */
  readonly settled: ReadonlyMap<ServiceKey, number>
}

export class SharedFindings {
  /** From the publish loop: what this cluster offers now. Undefined until its caches are synced. */
  exportPlan: ExportPlan | undefined
  /** From the mirror loop: conflicts that own exports are part of. */
  ownFindings: ReadonlyMap<ServiceKey, ConflictFinding> = new Map()
  /** From the contact loop: clusters taken as dead. Undefined until it has looked once. */
  expired: ReadonlySet<string> | undefined
  /** From the mirror loop. Undefined until a whole snapshot of the broker was mirrored. */
  imports: ImportFindings | undefined
  /** From the needs loop: what no other cluster's pods may have here. Empty until it has looked once. */
  needed: readonly NeededRange[] = []
  /** From the report loop. Undefined until it has looked once. */
  importers: ImporterFindings | undefined
  readonly #onImports = new Listeners()
  readonly #onImporters = new Listeners()
  readonly #onNeeded = new Listeners()
  readonly #onExpired = new Listeners()
  readonly #onExports = new Listeners<[keys: ReadonlySet<ServiceKey>]>()
  readonly #onFindings = new Listeners<[keys: ReadonlySet<ServiceKey>]>()

  setExportPlan(plan: ExportPlan): void {
    const isFirst = this.exportPlan === undefined
    const changed = changedExports(this.exportPlan, plan)
    this.exportPlan = plan
    if (isFirst || changed.size > 0) this.#onExports.call(changed)
  }

  setOwnFindings(findings: ReadonlyMap<ServiceKey, ConflictFinding>): void {
    const before = this.ownFindings
    const changed = new Set<ServiceKey>()
    // Plans hand out the very same objects while nothing has changed.
    for (const [key, finding] of findings) if (before.get(key) !== finding) changed.add(key)
    for (const key of before.keys()) if (!findings.has(key)) changed.add(key)
    this.ownFindings = findings
    if (changed.size > 0) this.#onFindings.call(changed)
  }

  setExpired(expired: ReadonlySet<string>): void {
    const before = this.expired
    const changed = before?.size !== expired.size || ![...expired].every((id) => before.has(id))
    if (!changed) return
    this.expired = expired
    this.#onExpired.call()
  }

  setNeeded(needed: readonly NeededRange[]): void {
    if (isDeepStrictEqual(this.needed, needed)) return
    this.needed = needed
    this.#onNeeded.call()
  }

  setImports(imports: ImportFindings): void {
    this.imports = imports
    this.#onImports.call()
  }

  setImporters(importers: ImporterFindings): void {
    if (isDeepStrictEqual(this.importers, importers)) return
    this.importers = importers
    this.#onImporters.call()
  }

  onImports(listener: () => void): void {
    this.#onImports.add(listener)
  }

  onImporters(listener: () => void): void {
    this.#onImporters.add(listener)
  }

  /** Called with the services whose published records are not what they were; the first time also with none. */
  onExports(listener: (keys: ReadonlySet<ServiceKey>) => void): void {
    this.#onExports.add(listener)
  }

  onNeeded(listener: () => void): void {
    this.#onNeeded.add(listener)
  }

  onExpired(listener: () => void): void {
    this.#onExpired.add(listener)
  }

  onFindings(listener: (keys: ReadonlySet<ServiceKey>) => void): void {
    this.#onFindings.add(listener)
  }
}

function changedExports(before: ExportPlan | undefined, now: ExportPlan): ReadonlySet<ServiceKey> {
  const changed = new Set<ServiceKey>()
  for (const [key, { records }] of now.exports) if (before?.exports.get(key)?.records !== records) changed.add(key)
  for (const key of before?.exports.keys() ?? []) if (!now.exports.has(key)) changed.add(key)
  return changed
}
