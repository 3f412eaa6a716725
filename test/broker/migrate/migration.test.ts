/** A store that is moved there and back is the same, wherever the move fails, and no two copies of it are served. */
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { auditedCommand } from '../../../broker/audit/audited-command.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { type LogView, contentOfLog } from '../../../broker/store/record-log.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import { checkNotMoved } from '../../../broker/store/open-store.ts'
import { cancelMigration, migrateStore } from '../../../broker/recovery/migration.ts'
import { verifyStore } from '../../../broker/recovery/verify-store.ts'
import { MIGRATION_KEY, SCOPES } from '../../../broker/store/rows.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { failure, messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { RICH_STEPS, brokerSteps, makeState } from '../support/broker-states.ts'
import { MemoryPlace } from './memory-place.ts'

const deps = { clock: new FakeClock(), who: { kind: 'operator' } as const, signal: new AbortController().signal }

/** Returns all rows except the rows about moves, which differ. */
function rowsOf(log: LogView | undefined): string {
  const scopes = SCOPES.filter((scope) => scope !== 'migration')
  const all = scopes.map((scope) => [scope, log?.list(scope)] as const)
  const rows = all.map(([scope, list]) => [scope, list?.filter(({ value }) => !isOfMove(value))])
  return JSON.stringify(rows)
}

function isOfMove(value: unknown): boolean {
  return (value as { event?: { act?: string } }).event?.act === 'broker.migrate'
}

/** Returns the names of the locations that a broker would serve. */
function served(...places: readonly MemoryPlace[]): string[] {
  return places.flatMap(({ name, log }) => {
    if (log === undefined || log.count('settings') === 0) return []
    try {
      checkNotMoved(log, name)
      return [name]
    } catch {
      return []
    }
  })
}

t.test('there and back it is the same, of new epochs', async (t) => {
  await fc.assert(
    fc.asyncProperty(brokerSteps, async (steps) => {
      const log = openMemoryLog()
      await makeState(log, steps)
      const [a, b] = [new MemoryPlace('sqlite:/a', log), new MemoryPlace('etcd://b/x')]
      const before = rowsOf(log)
      const there = await migrateStore(deps, { from: a, to: b, force: false })
      if (rowsOf(b.log) !== before) throw new Error('not the same there')
      if (served(a, b).join() !== 'etcd://b/x') throw new Error(`served: ${served(a, b).join()}`)
      const back = await migrateStore(deps, { from: b, to: a, force: false })
      if (rowsOf(a.log) !== before) throw new Error('not the same back')
      if (served(a, b).join() !== 'sqlite:/a') throw new Error(`served: ${served(a, b).join()}`)
      if (new Set([log.epoch, there.epoch, back.epoch]).size !== 3) throw new Error('an epoch came twice')
      if (a.log !== undefined && verifyStore(contentOfLog(a.log), { nowMs: 0 }).found > 0) throw new Error('faults')
    }),
    { numRuns: 60 },
  )
  t.pass()
})

t.test('wherever it breaks off, it is done again, and nobody could serve two', async (t) => {
  const writes = await (async () => {
    const { a, b } = await places()
    b.writesLeft = 1000
    await migrateStore(deps, { from: a, to: b, force: false })
    return 1000 - b.writesLeft
  })()
  t.ok(writes > 5, `${writes} writes to the target`)
  for (const broken of ['from', 'to'] as const) {
    for (let after = 0; after < writes; after += 1) {
      const { a, b, before } = await places()
      const place = broken === 'from' ? a : b
      place.writesLeft = after
      const error = await migrateStore(deps, { from: a, to: b, force: false }).catch((thrown: unknown) => thrown)
      t.ok(served(a, b).length <= 1, `${broken} ${after}: ${served(a, b).join()}`)
      t.notOk(a.locked || b.locked, 'both are free again')
      place.writesLeft = Infinity
      const done = await migrateStore(deps, { from: a, to: b, force: false })
      t.equal(done.repeated, !(error instanceof Error))
      t.strictSame(served(a, b), [b.name])
      t.equal(rowsOf(b.log), before)
      t.equal(b.files?.['ca.crt'], 'certificate', 'and its authority')
      t.equal((await migrateStore(deps, { from: a, to: b, force: false })).repeated, true, 'and once more')
    }
  }
})

async function places() {
  const log = openMemoryLog()
  await makeState(log, RICH_STEPS)
  const [a, b] = [new MemoryPlace('sqlite:/a', log), new MemoryPlace('sqlite:/b')]
  a.files = { 'ca.crt': 'certificate', 'ca.key': 'key' }
  return { a, b, before: rowsOf(log) }
}

t.test('what is refused, and leaves both as they were', async (t) => {
  const { a, b } = await places()
  const refused = async (from: MemoryPlace, to: MemoryPlace): Promise<string> => {
    const before = [rowsOf(from.log), rowsOf(to.log)]
    const error = await failure(migrateStore(deps, { from, to, force: false }))
    t.strictSame([rowsOf(from.log), rowsOf(to.log)], before)
    const { code, message } = error as Error & { code: string }
    return `${code}: ${message}`
  }
  t.match(await refused(a, a), /NotEmpty: sqlite:\/a is both source and target: expected two different stores/)
  t.match(await refused(b, a), /Absent: no broker state in sqlite:\/b/)
  t.match(await refused(new MemoryPlace('sqlite:/c', openMemoryLog()), b), /Absent: sqlite:\/c is empty/)
  a.locked = true
  t.match(await refused(a, b), /Locked: sqlite:\/a is served: stop it/)
  a.locked = false
  const other = new MemoryPlace('sqlite:/other', openMemoryLog())
  if (other.log !== undefined) await makeState(other.log, RICH_STEPS)
  t.match(await refused(a, other), /NotEmpty: sqlite:\/other contains clusterset "demo": expected an empty store/)
  b.files = { 'ca.crt': 'another' }
  t.match(
    await refused(a, b),
    /NotEmpty: sqlite:\/b has a different certificate authority: after the move, the broker would reject the members of that store/,
  )
  b.files = undefined
  await a.log?.transact((tx) => tx.put('address', '245.0.0.99', { service: 'shop/none' }))
  t.match(
    await refused(a, b),
    /Inconsistent: .*the state has 1 inconsistency, the first: address 245\.0\.0\.99: .*--force/,
  )
  t.strictSame(served(a, b), [a.name])
  t.equal((await migrateStore(deps, { from: a, to: b, force: true })).members, 3, 'with force as it is')
})

t.test('a store that was moved goes nowhere else, and comes back from there alone', async (t) => {
  const { a, b } = await places()
  const c = new MemoryPlace('sqlite:/c')
  await migrateStore(deps, { from: a, to: b, force: false })
  const to = (from: MemoryPlace, place: MemoryPlace) => messageOf(migrateStore(deps, { from, to: place, force: false }))
  t.match(await to(a, c), /sqlite:\/a was moved to sqlite:\/b: later changes are only in that store/)
  await migrateStore(deps, { from: b, to: c, force: false })
  t.match(await to(c, a), /sqlite:\/a contains clusterset "demo"/, 'not into a store from which another one was moved')
  t.strictSame(served(a, b, c), [c.name])
  b.log = undefined
  t.match(await to(a, b), /was moved to sqlite:\/b/, 'nor anew where the other one is lost')
  t.match(
    await messageOf(() => a.log !== undefined && checkNotMoved(a.log, 'broker.db')),
    /broker\.db was moved to sqlite:\/b at /,
  )
})

t.test('a move is taken back, at any of its steps', async (t) => {
  for (const after of [0, 1, 2, 3, 4, 5, 6, Infinity]) {
    const { a, b, before } = await places()
    b.writesLeft = after
    await migrateStore(deps, { from: a, to: b, force: false }).catch(() => undefined)
    b.writesLeft = Infinity
    await cancelMigration(deps, { from: a, to: b, force: false })
    t.strictSame(served(a, b), [a.name], `after ${after}`)
    t.equal(rowsOf(a.log), before)
    t.equal(a.served, a.log?.epoch)
    t.match(await messageOf(cancelMigration(deps, { from: a, to: b, force: false })), /nothing to cancel/)
    await migrateStore(deps, { from: a, to: b, force: false })
    t.strictSame(served(a, b), [b.name], 'and begun anew')
  }
})

t.test('a move is not taken back once the other store has gone on, but with force', async (t) => {
  const { a, b } = await places()
  await migrateStore(deps, { from: a, to: b, force: false })
  await b.log?.transact((tx) => tx.put('token', 'new', tx.list('token')[0]?.value ?? (undefined as never)))
  const cancel = (to: MemoryPlace | undefined, force: boolean) => cancelMigration(deps, { from: a, to, force })
  t.match(await messageOf(cancel(b, false)), /sqlite:\/b has newer changes than the move: move the state back/)
  t.match(
    await messageOf(cancel(undefined, false)),
    /a broker may have used sqlite:\/b since the move: name that store with --to, or use --force/,
  )
  t.strictSame(served(a, b), [b.name])
  await cancel(b, true)
  t.strictSame(served(a, b), [a.name])
  const lines = a.log?.list('audit').map(({ value }) => value.event) ?? []
  t.match(
    lines.filter(({ act }) => act === 'broker.migrate'),
    [{ who: { kind: 'operator' }, details: { cancelled: true, force: true } }],
  )
})

t.test('what the other store has gone on with counts whatever it is, beside the line of the move itself', async (t) => {
  const scopes = SCOPES.filter((scope) => !['audit', 'migration'].includes(scope))
  for (const scope of scopes) {
    const { a, b } = await places()
    await migrateStore(deps, { from: a, to: b, force: false })
    await b.log?.transact((tx) => tx.put(scope, 'new', {} as never))
    const cancel = cancelMigration(deps, { from: a, to: b, force: false })
    t.match(await messageOf(cancel), /has newer changes than the move/, scope)
  }
})

t.test('the move is in the audit log of the store that is served', async (t) => {
  const { a, b } = await places()
  await migrateStore(deps, { from: a, to: b, force: false })
  const lines = b.log?.list('audit').map(({ value }) => value.event) ?? []
  t.match(
    lines.filter(({ act }) => act === 'broker.migrate'),
    [{ result: 'ok', subject: 'sqlite:/b', details: { from: 'sqlite:/a', epoch: b.log?.epoch } }],
  )
  t.match(a.log?.get('migration', MIGRATION_KEY), { t: 'moved', peer: 'sqlite:/b' })
  t.equal(a.served, b.log?.epoch, 'a broker of an earlier release finds the mark of another epoch')
})

t.test('a command that has opened the store before the move changes nothing any more', async (t) => {
  const { a, b } = await places()
  const log = a.log ?? openMemoryLog()
  await migrateStore(deps, { from: a, to: b, force: false })
  const command = auditedCommand({ log, ...deps }, { act: 'token.create' }, (tx) => tx.remove('settings', 'settings'))
  t.match(await messageOf(command), /the store was moved to sqlite:\/b/)
  t.equal(log.count('settings'), 1)
})

t.test('what a broker writes that hears late of the move is missed by nobody', async (t) => {
  const file = join(temporaryFolder(t), 'broker.db')
  const log = openSqliteLog({ file })
  await makeState(log, RICH_STEPS)
  const late = openSqliteLog({ file })
  const [a, b] = [new MemoryPlace('sqlite:/a', log), new MemoryPlace('etcd://b/x')]
  const keys = a.authority.bind(a)
  // The late write happens between the copy and the comparison of both stores.
  a.authority = async () => {
    if (b.log !== undefined) await late.transact((tx) => tx.put('contact', 'milano', { lastSeenMs: 9 }))
    return keys()
  }
  t.match(
    await messageOf(migrateStore(deps, { from: a, to: b, force: true })),
    /row contact milano differs from what was written/,
  )
  t.strictSame(served(a, b), [])
  t.match(await migrateStore(deps, { from: a, to: b, force: true }), { repeated: false })
  t.equal(b.log?.get('contact', 'milano')?.lastSeenMs, 9)
  t.strictSame(served(a, b), [b.name])
  await Promise.all([late.close(), log.close()])
})
