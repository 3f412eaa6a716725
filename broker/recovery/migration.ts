/**
 * Moves a broker's store to another place while no broker serves either. Members keep their certificates, numbers and
 * addresses. Revisions get a new epoch (decision 8), so each member takes one new snapshot.
 *
 *   source:  (served) ──► leaving ──────────────────────► moved
 *   target:  (empty)  ───────────► arriving ──all equal──────────► arrived, (served)
 *
 * From `leaving` on no broker writes to the source, and before `arrived` no broker serves the target, so that the two
 * are never served at the same time. An interrupted migration can be repeated from the same rows.
 */
import { randomUUID } from 'node:crypto'
import type { Clock } from '../../reconcile/reconcile.ts'
import { keepEvent } from '../audit/audit.ts'
import {
  type AuditActor,
  type LogView,
  MIGRATION_KEY,
  type MigrationRow,
  type RecordLog,
  SCOPES,
  SETTINGS_KEY,
  type Scope,
  type Scopes,
  StateError,
  absentState,
  clustersetRows,
  contentOfLog,
} from '../store/store.ts'
import { type EndOfMove, planMigration } from './plan-migration.ts'
import type { StorePlace } from './store-location.ts'
import { verifyStore } from './verify-store.ts'

// Copies the rows of one store to another and compares them. A repeated copy writes only what is left.

/** Limits of one transaction. Every kind of store accepts this much at once. */
const CHUNK_ROWS = 64
const CHUNK_BYTES = 512 * 1024

/** Scopes that describe the store itself and differ at the two ends. */
const OWN: ReadonlySet<Scope> = new Set(['migration'])

interface Step {
  readonly scope: Scope
  readonly key: string
  /** Undefined: the row is to be removed. */
  readonly value: Scopes[Scope] | undefined
}

/** Returns the number of rows that it wrote. Throws the errors of the signal and of the stores. */
async function copyRows(from: LogView, to: RecordLog, signal: AbortSignal): Promise<number> {
  const steps = difference(from, to)
  for (const chunk of inChunks(steps)) {
    signal.throwIfAborted()
    await to.transact((tx) => {
      for (const { scope, key, value } of chunk) {
        if (value === undefined) tx.remove(scope, key)
        else tx.put(scope, key, value)
      }
    })
  }
  return steps.length
}

/** Scope and key of a row that differs. Undefined if all rows are equal. */
function firstDifference(from: LogView, to: LogView): string | undefined {
  const [step] = difference(from, to)
  return step === undefined ? undefined : `${step.scope} ${step.key}`
}

function difference(from: LogView, to: LogView): Step[] {
  return SCOPES.filter((scope) => !OWN.has(scope)).flatMap((scope) => {
    const wanted = new Map(from.list(scope).map(({ key, value }) => [key, value]))
    const gone = to.list(scope).filter(({ key }) => !wanted.has(key))
    const changed = [...wanted].filter(([key, value]) => JSON.stringify(to.get(scope, key)) !== JSON.stringify(value))
    return [
      ...gone.map(({ key }): Step => ({ scope, key, value: undefined })),
      ...changed.map(([key, value]): Step => ({ scope, key, value })),
    ]
  })
}

function* inChunks(steps: readonly Step[]): Generator<readonly Step[]> {
  let chunk: Step[] = []
  let bytes = 0
  for (const step of steps) {
    const size = step.value === undefined ? 0 : Buffer.byteLength(JSON.stringify(step.value))
    if (chunk.length >= CHUNK_ROWS || (chunk.length > 0 && bytes + size > CHUNK_BYTES)) {
      yield chunk
      chunk = []
      bytes = 0
    }
    chunk.push(step)
    bytes += size
  }
  if (chunk.length > 0) yield chunk
}

export interface MigrationDeps {
  readonly clock: Clock
  readonly who: AuditActor
  readonly signal: AbortSignal
}

export interface MigrationInit {
  readonly from: StorePlace
  readonly to: StorePlace
  /** Migrate even if rows of the source contradict each other. */
  readonly force: boolean
}

export interface Migrated {
  readonly rows: number
  readonly members: number
  readonly epoch: string
  /** The migration had already finished. */
  readonly repeated: boolean
  /** Clustersets in the list of the migrated store, removed ones included. Each has a migration of its own. */
  readonly others: readonly string[]
}

/** Throws StateError. Then either the source serves as before, or the same call continues the migration. */
export async function migrateStore(deps: MigrationDeps, { from, to, force }: MigrationInit): Promise<Migrated> {
  if (from.name === to.name)
    throw new StateError('NotEmpty', to.name, `${to.name} is both source and target: expected two different stores`)
  await using stack = new AsyncDisposableStack()
  // The source is locked first: if a broker serves it, the error names that one.
  for (const place of [from, to]) stack.defer(await place.lock())
  const source = await from.open()
  if (source === undefined) throw absentState(from.name)
  stack.defer(() => source.close())
  const before = await to.open()
  if (before !== undefined) stack.defer(() => before.close())
  const plan = planMigration(endOf(from, source), endOf(to, before), randomUUID())
  if (plan.t === 'done') return finished(before ?? source, 0, true)
  if (plan.t === 'refused') throw new StateError(plan.code, plan.end === 'from' ? from.name : to.name, plan.text)
  checkSource(source, from, { force, nowMs: deps.clock.now() })
  await checkAuthorities(from, to)
  const move = { from, to, id: plan.id, source }
  await mark(source, { t: sourceMark(source), id: plan.id, peer: to.name, atMs: deps.clock.now() })
  const target = await openTarget(move, before, plan.renews, deps)
  stack.defer(() => target.close())
  await mark(target, { t: 'arriving', id: plan.id, peer: from.name, atMs: deps.clock.now() })
  return await fill(move, target, deps)
}

interface Move {
  readonly from: StorePlace
  readonly to: StorePlace
  readonly id: string
  readonly source: RecordLog
}

/** A source that was marked `moved` before an interruption stays so: its target may be about to serve. */
function sourceMark(source: RecordLog): 'leaving' | 'moved' {
  return source.get('migration', MIGRATION_KEY)?.t === 'moved' ? 'moved' : 'leaving'
}

async function openTarget(
  { to, source }: Move,
  before: RecordLog | undefined,
  renews: boolean,
  { clock }: MigrationDeps,
): Promise<RecordLog> {
  const clusterset = source.get('settings', SETTINGS_KEY)?.clusterset ?? ''
  if (renews) await before?.close()
  return before === undefined || renews ? to.renew(clusterset, clock.now()) : before
}

async function fill(move: Move, target: RecordLog, { clock, who, signal }: MigrationDeps): Promise<Migrated> {
  const { from, to, id, source } = move
  const startedMs = clock.monotonic()
  const rows = await copyRows(source, target, signal)
  const authority = await from.authority()
  if (authority !== undefined) await to.putAuthority(authority)
  await target.refresh()
  // A broker that was cut off when the migration began may have reconnected, and may have written before it saw the
  // mark.
  await source.refresh()
  const other = firstDifference(source, target)
  if (other !== undefined) {
    const text = `${to.name}: row ${other} differs from what was written; no broker uses this store yet: run the same command again`
    throw new StateError('Failed', to.name, text)
  }
  // These marks come last. If the migration stops between them, neither store is served.
  await mark(source, { t: 'moved', id, peer: to.name, atMs: clock.now() })
  await from.settled(target, clock.now(), false)
  await to.settled(target, clock.now(), true)
  const details = { from: from.name, to: to.name, rows: source.count('record'), epoch: target.epoch }
  await target.transact((tx) => {
    tx.put('migration', MIGRATION_KEY, { t: 'arrived', id, peer: from.name, atMs: clock.now() })
    const tookMs = clock.monotonic() - startedMs
    keepEvent(tx, { act: 'broker.migrate', result: 'ok', who, subject: to.name, details, tookMs }, clock.now())
  })
  return finished(target, rows, false)
}

function finished(target: RecordLog, rows: number, repeated: boolean): Migrated {
  const members = target.list('member').filter(({ value }) => value.departedAtMs === undefined).length
  const others = clustersetRows(target).map(({ name }) => name)
  return { rows, members, epoch: target.epoch, repeated, others }
}

export interface CancelInit {
  readonly from: StorePlace
  /** Undefined if the target no longer exists and cannot be read. */
  readonly to: StorePlace | undefined
  /** Cancel even if the target may have served since. Its later changes are lost. */
  readonly force: boolean
}

/**
 * Makes the source serve again. Throws StateError if there is nothing to cancel, or if the target has changed since and
 * `force` is false.
 */
export async function cancelMigration(deps: MigrationDeps, { from, to, force }: CancelInit): Promise<void> {
  await using stack = new AsyncDisposableStack()
  stack.defer(await from.lock())
  const source = await from.open()
  if (source === undefined) throw absentState(from.name)
  stack.defer(() => source.close())
  const row = source.get('migration', MIGRATION_KEY)
  if (row?.t !== 'leaving' && row?.t !== 'moved') {
    throw new StateError('Failed', from.name, `${from.name} is not being moved to another store: nothing to cancel`)
  }
  if (to !== undefined) {
    stack.defer(await to.lock())
    const target = await to.open()
    if (target !== undefined) {
      stack.defer(() => target.close())
      await withdraw({ from, to, id: row.id, source }, target, { force, nowMs: deps.clock.now() })
    }
  } else if (row.t === 'moved' && !force) {
    throw new StateError(
      'Moved',
      from.name,
      `a broker may have used ${row.peer} since the move: name that store with --to, or use --force`,
    )
  }
  const { clock, who } = deps
  await source.transact((tx) => {
    tx.remove('migration', MIGRATION_KEY)
    const details = { from: from.name, to: row.peer, cancelled: true, force }
    keepEvent(tx, { act: 'broker.migrate', result: 'ok', who, subject: from.name, details }, clock.now())
  })
  await from.settled(source, clock.now(), true)
}

/** Marks the target first: if the cancellation is interrupted, neither store is served. */
async function withdraw(
  { from, to, id, source }: Move,
  target: RecordLog,
  { force, nowMs }: { readonly force: boolean; readonly nowMs: number },
): Promise<void> {
  const row = target.get('migration', MIGRATION_KEY)
  if (row?.id !== id || row.t === 'arriving' || row.t === 'moved') return
  if (!force && isServedSince(source, target)) {
    const text = `${to.name} has newer changes than the move: move the state back with "sealane broker migrate", or discard those changes with --force`
    throw new StateError('Moved', to.name, text)
  }
  await mark(target, { t: 'moved', id, peer: from.name, atMs: nowMs })
}

/** Rows that wait for the audit log do not count, since the migration itself wrote one. */
function isServedSince(source: RecordLog, target: RecordLog): boolean {
  return difference(source, target).some(({ scope }) => scope !== 'audit')
}

async function mark(log: RecordLog, row: MigrationRow): Promise<void> {
  await log.transact((tx) => tx.put('migration', MIGRATION_KEY, row))
}

function endOf({ name }: StorePlace, log: RecordLog | undefined): EndOfMove {
  if (log === undefined) return { name, mark: undefined, clusterset: undefined, rows: 0 }
  const rows = SCOPES.filter((scope) => scope !== 'migration').reduce((sum, scope) => sum + log.count(scope), 0)
  const clusterset = log.get('settings', SETTINGS_KEY)?.clusterset
  return { name, mark: log.get('migration', MIGRATION_KEY), clusterset, rows }
}

function checkSource(
  source: RecordLog,
  { name }: StorePlace,
  { force, nowMs }: { readonly force: boolean; readonly nowMs: number },
): void {
  if (force) return
  const { findings, found } = verifyStore(contentOfLog(source), { nowMs })
  const [first] = findings
  if (first === undefined) return
  const text =
    `${name}: the state has ${found} ${found === 1 ? 'inconsistency' : 'inconsistencies'}, the first: ${first.subject}: ${first.text} (${first.reason}): ` +
    'list them with "sealane broker verify"; to move the state anyway, use --force'
  throw new StateError('Inconsistent', name, text)
}

/** Members trust one authority. With another one at the target, it would reject all members. */
async function checkAuthorities(from: StorePlace, to: StorePlace): Promise<void> {
  const [own, other] = [await from.authority(), await to.authority()]
  if (own === undefined || other === undefined || own['ca.crt'] === other['ca.crt']) return
  throw new StateError(
    'NotEmpty',
    to.name,
    `${to.name} has a different certificate authority: after the move, the broker would reject the members of that store`,
  )
}
