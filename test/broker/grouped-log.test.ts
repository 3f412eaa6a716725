/** The shared part of the logs keeps its state consistent when the store fails in the middle of a write. */
import t from 'tap'
import { GroupedLog, type Journal } from '../../broker/store/grouped-log.ts'
import type { Change } from '../../broker/store/record-log.ts'

const SERVICE = { service: 'shop/web' }
const FOREIGN: Change = { scope: 'address', key: '245.0.0.9', revision: 1, value: SERVICE }

/** A journal that fails when the test says so, and that reports one write of another process. */
class FailingJournal implements Journal {
  failAt: 'begin' | 'write' | undefined
  isOpen = false
  #foreign: readonly Change[] = [FOREIGN]

  load(): ReturnType<Journal['load']> {
    return { epoch: 'e', revision: 0, compactedRevision: 0, changes: [] }
  }
  begin(): ReturnType<Journal['begin']> {
    if (this.isOpen) throw new Error('a transaction is open already')
    this.isOpen = true
    if (this.failAt === 'begin') throw new Error('disk error')
    const changes = this.#foreign
    this.#foreign = []
    return changes.length === 0 ? undefined : { ...this.load(), revision: 1, changes, whole: false }
  }
  write(): void {
    if (this.failAt === 'write') throw new Error('disk full')
  }
  compact(): void {
    // This journal keeps no removed rows.
  }
  commit(): void {
    this.isOpen = false
  }
  rollback(): void {
    this.isOpen = false
  }
  close(): void {
    // This journal holds no resource.
  }
}

for (const failAt of ['begin', 'write'] as const) {
  t.test(`a group fails at ${failAt}: the next one works, and nobody misses what others wrote`, async (t) => {
    const journal = new FailingJournal()
    const log = new GroupedLog(journal, { keepRemoved: 10 })
    const seen: string[] = []
    log.onCommit((changes) => seen.push(...changes.map(({ key, revision }) => `${key}@${revision}`)))
    const write = (): Promise<void> => log.transact((tx) => tx.put('address', '245.0.0.1', SERVICE))
    journal.failAt = failAt
    await t.rejects(write())
    t.equal(journal.isOpen, false, 'the failed transaction is closed')
    journal.failAt = undefined
    await write()
    t.same(seen, ['245.0.0.9@1', '245.0.0.1@2'])
    t.equal(log.revision, 2)
  })
}
