/** Shares the latest result of each loop with the other loops, and calls them when it changes. */
import { isDeepStrictEqual } from 'node:util'
import type { NotImportedReason, ServiceKey } from '../../model/model.ts'
import type { NeededRange } from '../../model/addresses/addresses.ts'
import type { ConflictFinding } from '../../model/services/services.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import type { ExportPlan, Importers } from '../export/export.ts'
import type { ImportPlan } from '../import/import.ts'

/** The results of the mirror loop. */
export interface ImportFindings {
  readonly plan: ImportPlan
  /** Namespaces that exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  /** Why services of existing namespaces are not imported. The map is changed in place. */
  readonly problems: ReadonlyMap<ServiceKey, NotImportedReason>
}

/** The results of the report loop: which members import what this cluster exports. */
export interface ImporterFindings {
  readonly importers: Importers
  /**
   * Exports that the broker has stored for so long that every member had time to report a problem, with the monotonic
   * time since when it stores them.
   */
  readonly settled: ReadonlyMap<ServiceKey, number>
}

export class SharedFindings {
  /** From the publish loop: what this cluster exports. Undefined until the caches are synced. */
  exportPlan: ExportPlan | undefined
  /** From the mirror loop: conflicts that this cluster's exports take part in. */
  ownFindings: ReadonlyMap<ServiceKey, ConflictFinding> = new Map()
  /** From the contact loop: clusters that are treated as dead. Undefined until its first round. */
  expired: ReadonlySet<string> | undefined
  /** From the mirror loop. Undefined until a whole snapshot of the broker has been mirrored. */
  imports: ImportFindings | undefined
  /** From the needs loop: ranges that no other cluster's pods may have here. Empty until its first round. */
  needed: readonly NeededRange[] = []
  /** Undefined until the report loop's first round. */
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
    // Plans give the same objects while nothing has changed.
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

  /** Called with the services whose published records have changed. The first call may have none. */
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
