/** A log that lives as long as the process. Tests use it, and it is the model for the SQLite driver. */
import { randomUUID } from 'node:crypto'
import { GroupedLog, type GroupedLogInit, type Journal, type JournalContent } from './grouped-log.ts'

export function openMemoryLog(init: Partial<GroupedLogInit> = {}): GroupedLog {
  return new GroupedLog(new MemoryJournal(), { keepRemoved: 10_000, ...init })
}

class MemoryJournal implements Journal {
  readonly #epoch = randomUUID()
  load(): JournalContent {
    return { epoch: this.#epoch, revision: 0, compactedRevision: 0, changes: [] }
  }
  begin(): undefined {
    return undefined
  }
  write(): void {
    // The log itself holds the rows.
  }
  compact(): void {
    // See write().
  }
  commit(): void {
    // See write().
  }
  rollback(): void {
    // See write().
  }
  close(): void {
    // See write().
  }
}
