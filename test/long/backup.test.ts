/** A backup beside a running broker that writes, a restore, and the state of members and tokens afterwards. */
import {
  chmodSync,
  copyFileSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { backupBroker } from '../../broker/recovery/backup.ts'
import { readBackup } from '../../broker/store/sqlite/sqlite-backup.ts'
import { lockDirectory } from '../../broker/store/sqlite/sqlite-file.ts'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { finishRestore, stageRestore } from '../../broker/recovery/restore.ts'
import { verifyState } from '../../broker/recovery/verify-store.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { aSlice, anExport } from '../broker/support/harness.ts'
import { TlsMember } from '../broker/support/tls-member.ts'

t.setTimeout(120_000)

const clock = new SystemClock()
const WHO = { kind: 'operator' } as const
const FORCE = { who: WHO, force: true }
const GENTLY = { who: WHO, force: false }

/** Restores a stopped broker in the same steps as `sealane broker restore`. */
async function restore(stateDir: string, file: string, init = GENTLY) {
  const unlock = lockDirectory(stateDir)
  try {
    await stageRestore(clock, stateDir, file, init)
    return await finishRestore(clock, stateDir, { kind: 'operator' })
  } finally {
    unlock()
  }
}

async function backup(t: Test, { state }: LoopbackBroker): Promise<string> {
  const file = join(temporaryFolder(t), 'backup')
  await backupBroker(clock, state, file, { who: { kind: 'operator' } })
  return file
}

/** Tries to renew; the first try may fail, because it may still use the connection to the stopped broker. */
function renewed(member: TlsMember): () => Promise<boolean> {
  return () =>
    member.renew().then(
      () => true,
      () => false,
    )
}

t.test('members go on after a restore, also with certificates that the backup does not know', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await TlsMember.join(t, broker.state, 'milano')
  const paris = await TlsMember.join(t, broker.state, 'paris')
  milano.publish(anExport('web'), aSlice('web', '10.42.1.7'))
  await eventually(paris.has('milano/EndpointSlice/shop/web-1'))
  const before = paris.replica.records.get('milano/Cluster//milano')?.body
  const unused = await broker.token({ cluster: 'oslo' })

  const file = await backup(t, broker)
  t.equal(statSync(file).mode & 0o777, 0o600)
  // The restore loses an export, a renewal and a member, all made after the backup.
  milano.publish(anExport('web'), aSlice('web', '10.42.1.7'), anExport('db'))
  await eventually(paris.has('milano/ServiceExport/shop/db'))
  await milano.renew()
  const roma = await TlsMember.join(t, broker.state, 'roma')
  await eventually(paris.has('roma/Cluster//roma'))
  const romaBefore = paris.replica.records.get('roma/Cluster//roma')?.body
  await broker.stop()

  const restored = await restore(broker.state, file, FORCE)
  t.match(restored, { members: ['milano', 'paris'], before: /before-restore-/ })
  t.strictSame(
    readdirSync(broker.state).filter((name) => !name.startsWith('before-restore-')),
    ['broker.db', 'broker.lock', 'ca.crt', 'ca.key', 'last-backup.json', 'server.key', 'state.mark'],
    'nothing of the work is left over',
  )
  for (const name of ['broker.db', 'ca.key', 'ca.crt']) t.equal(statSync(join(broker.state, name)).mode & 0o777, 0o600)
  await broker.start()
  const members = () => broker.tokens((store) => store.members())
  const ids = async (): Promise<string[]> => (await members()).map(({ id }) => id)
  await eventually(async () => {
    const rows = (await members()).map(({ id, records }) => `${id} ${records}`)
    return rows.includes('milano 3') && rows.includes('paris 0')
  })
  t.match(paris.replica.records.get('milano/Cluster//milano')?.body, before, 'its addresses are the same')
  t.ok(paris.has('milano/ServiceExport/shop/db')(), 'what was published since is not taken as gone')
  milano.publish(anExport('web'), aSlice('web', '10.42.1.7'), anExport('db'), anExport('mail'))
  await eventually(paris.has('milano/ServiceExport/shop/mail'))
  await eventually(renewed(milano), { deadlineMs: 60_000 })
  milano.publish(anExport('web'))
  await eventually(() => !paris.has('milano/ServiceExport/shop/mail')(), { deadlineMs: 20_000 })
  // Roma joined after the backup and reports what it holds. The other members confirm its number, so it is a member
  // again.
  await eventually(async () => (await ids()).includes('roma'), { deadlineMs: 30_000 })
  roma.publish(anExport('late'))
  await eventually(paris.has('roma/ServiceExport/shop/late'), { deadlineMs: 20_000 })
  t.match(paris.replica.records.get('roma/Cluster//roma')?.body, romaBefore, 'with its number and addresses')
  await eventually(renewed(roma), { deadlineMs: 60_000 })
  t.match(await broker.tokens((store) => store.list()), [{ state: 'revoked' }, {}, {}], 'no token of that time is good')
  t.ok(unused.startsWith('sealane1.'))
  const bergen = await TlsMember.join(t, broker.state, 'bergen')
  await eventually(bergen.has('bergen/Cluster//bergen'))
  t.match(bergen.replica.records.get('bergen/Cluster//bergen')?.body, { spec: { index: 4 } }, 'and nobody else gets it')
  await eventually(async () => (await verifyState(broker.state, clock.now())).found === 0)
})

t.test('a backup is one moment of a broker that writes all the time', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await TlsMember.join(t, broker.state, 'milano')
  const writing = new AbortController()
  let rounds = 0
  // Each round changes two records at once, so a backup must hold both changes of a round or neither.
  const load = (async () => {
    while (!writing.signal.aborted) {
      rounds += 1
      const store = await broker.tokens((one) =>
        one.create({ uses: (rounds % 999) + 1 }).then(({ id }) => one.revoke(id)),
      )
      t.equal(store.state, 'revoked')
      milano.publish(anExport('web'), anExport(`round-${rounds % 7}`))
    }
  })()
  for (let n = 0; n < 3; n += 1) {
    const seen = rounds
    const file = await backup(t, broker)
    const { files, settings } = readBackup(file)
    t.strictSame(Object.keys(files).sort(), ['ca.crt', 'ca.key'])
    t.equal(settings?.clusterset, 'demo')
    const folder = temporaryFolder(t)
    t.match(await restore(folder, file), { members: ['milano'], before: undefined })
    const log = openSqliteLog({ file: join(folder, 'broker.db'), create: false })
    t.ok(log.count('token') >= seen, `what was acknowledged before is in it: ${log.count('token')} of ${seen}`)
    await log.close()
    await eventually(() => rounds > seen + 2)
  }
  writing.abort()
  await load
})

t.test('what is refused, and leaves everything as it was', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await TlsMember.join(t, broker.state, 'milano')
  const file = await backup(t, broker)
  const { state } = broker
  t.match(await messageOf(restore(state, file)), /is in use by another broker: stop it/)
  await broker.stop()
  const names = (): string[] => readdirSync(state).filter((name) => !/-(wal|shm)$/.test(name))
  const there = names()
  t.equal(
    await messageOf(restore(state, file)),
    'the broker has members: milano; to replace its state anyway, use --force',
  )
  const expected = 'expected a file that "sealane broker backup" has written'
  t.equal(await messageOf(restore(state, join(state, 'broker.db'), FORCE)), `${state}/broker.db: ${expected}`)
  const cut = join(temporaryFolder(t), 'cut')
  writeFileSync(cut, readFileSync(file).subarray(0, 9000))
  t.match(await messageOf(restore(state, cut, FORCE)), /cut is damaged /)
  writeFileSync(cut, 'nothing')
  t.match(await messageOf(restore(state, cut, FORCE)), /cut/)
  t.match(await messageOf(restore(state, `${cut}.none`, FORCE)), /cut\.none/)
  const other = await LoopbackBroker.start(t, { clusterset: 'other' })
  await other.stop()
  t.equal(
    await messageOf(restore(other.state, file)),
    'clusterset: the backup has "demo", but the broker has "other": start the broker with the value of the backup',
  )
  t.strictSame(names(), there)
  t.match(await messageOf(backupBroker(clock, temporaryFolder(t), `${cut}.new`, { who: WHO })), /no broker state in /)
  t.match(
    await messageOf(backupBroker(clock, state, file, { who: { kind: 'operator' } })),
    /backup/,
    'a file that is there is not written over',
  )
})

t.test('what is staged is for its owner alone, whoever may read the backup', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const file = await backup(t, broker)
  for (const mode of [0o644, 0o400, 0o600]) {
    chmodSync(file, mode)
    const folder = temporaryFolder(t)
    await stageRestore(clock, folder, file, GENTLY)
    t.equal(statSync(join(folder, 'restore.db')).mode & 0o777, 0o600, mode.toString(8))
  }
})

t.test('a restore that broke off is finished by the next start', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await TlsMember.join(t, broker.state, 'milano')
  const file = await backup(t, broker)
  const fresh = await LoopbackBroker.start(t)
  // The running broker has no members, so staging a restore beside it needs no force.
  await stageRestore(clock, fresh.state, file, GENTLY)
  t.strictSame(await fresh.tokens((store) => store.members()), [], 'the one that runs is not disturbed')
  await fresh.stop()
  // A power cut in the middle of the restore leaves half of the old state moved away.
  copyFileSync(join(fresh.state, 'restore.db'), join(fresh.state, 'broker.db.restored'))
  chmodSync(join(fresh.state, 'broker.db.restored'), 0o600)
  await broker.stop()
  await fresh.start()
  const members = await fresh.tokens((store) => store.members())
  t.match(members, [{ id: 'milano', state: 'silent' }])
  t.equal(readFileSync(join(fresh.state, 'ca.crt'), 'utf8'), readFileSync(join(broker.state, 'ca.crt'), 'utf8'))
  await fresh.stop()
  await fresh.start()
  t.match(await fresh.tokens((store) => store.members()), [{ id: 'milano' }], 'and once only')
  t.equal(readdirSync(fresh.state).filter((name) => name.startsWith('before-restore-')).length, 1)
  await milano.stop()
})

t.test('a restore that broke off when the old state was away keeps what waits for the audit log', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const file = await backup(t, broker)
  const { state } = broker
  await broker.stop()
  const { id } = await broker.tokens((store) => store.create({}))
  await stageRestore(clock, state, file, FORCE)
  const staged = readFileSync(join(state, 'restore.db'))
  await finishRestore(clock, state, { kind: 'operator' })
  // This is the state before the last step of the restore.
  renameSync(join(state, 'broker.db'), join(state, 'broker.db.restored'))
  for (const suffix of ['-wal', '-shm']) rmSync(join(state, `broker.db${suffix}`), { force: true })
  writeFileSync(join(state, 'restore.db'), staged)
  await finishRestore(clock, state, { kind: 'operator' })
  const log = openSqliteLog({ file: join(state, 'broker.db'), create: false })
  t.teardown(() => log.close())
  const waiting = log.list('audit').map(({ value: { event } }) => `${event.act} ${event.subject ?? ''}`.trim())
  t.ok(waiting.includes(`token.create ${id}`), waiting.join())
  t.equal(waiting.filter((one) => one === 'broker.restore').length, 1)
})
