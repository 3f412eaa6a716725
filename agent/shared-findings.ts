/** What the two loops tell each other: each side's latest result and a call when it has changed. */
import type { ServiceKey } from '../model/ids.ts'
import type { ConflictVerdict } from '../model/service-conflicts.ts'
import type { ExportPlan } from './plan-exports.ts'

export class SharedFindings {
  /** From the publish loop: what this cluster offers now. Undefined until its caches are synced. */
  exportPlan: ExportPlan | undefined
  /** From the mirror loop: conflicts that own exports are part of. */
  ownVerdicts: ReadonlyMap<ServiceKey, ConflictVerdict> = new Map()
  readonly #onExports = new Set<() => void>()
  readonly #onVerdicts = new Set<() => void>()

  setExportPlan(plan: ExportPlan): void {
    const changed = this.exportPlan === undefined || !sameValues(this.exportPlan.records, plan.records)
    this.exportPlan = plan
    if (changed) for (const listener of this.#onExports) listener()
  }

  setOwnVerdicts(verdicts: ReadonlyMap<ServiceKey, ConflictVerdict>): void {
    const changed = !sameValues(this.ownVerdicts, verdicts)
    this.ownVerdicts = verdicts
    if (changed) for (const listener of this.#onVerdicts) listener()
  }

  onExports(listener: () => void): void {
    this.#onExports.add(listener)
  }

  onVerdicts(listener: () => void): void {
    this.#onVerdicts.add(listener)
  }
}

/** Plans hand out the very same objects while nothing has changed. */
function sameValues<K, V>(a: ReadonlyMap<K, V>, b: ReadonlyMap<K, V>): boolean {
  if (a.size !== b.size) return false
  for (const [key, value] of b) if (a.get(key) !== value) return false
  return true
}
