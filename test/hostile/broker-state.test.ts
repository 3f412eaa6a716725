/** A broker's state that was set back to an older copy, or was lost, while its key stayed. */
import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { backupBroker } from '../../broker/recovery/backup.ts'
import { stageRestore } from '../../broker/recovery/restore.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { eventually } from '../support/eventually.ts'
import { failure, messageOf } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'
import { brokerHere } from './support/broker-here.ts'
import { openChannel } from './support/raw-channel.ts'
import { rawJoin } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'

/** Two members join the broker; `before` is a full copy of its state, taken between the two joins. */
async function usedState(t: Test) {
  const before = join(temporaryFolder(t), 'before')
  const first = await brokerHere(t)
  const { state } = first
  await rawJoin(first, 'milano')
  await first.stop()
  cpSync(state, before, { recursive: true })
  const second = await brokerHere(t, { state })
  const paris = await rawJoin(second, 'paris')
  await second.stop()
  return { state, before, paris }
}

function dropDatabase(state: string): void {
  for (const suffix of ['', '-wal', '-shm']) rmSync(join(state, `broker.db${suffix}`), { force: true })
}

await attack('broker-state-lost', async (t) => {
  const { state } = await usedState(t)
  dropDatabase(state)
  t.match(await failure(brokerHere(t, { state })), {
    code: 'Stale',
    message: /it is missing, although ca\.crt exists.*--accept-empty/,
  })
  await (await brokerHere(t, { state, acceptEmptyAtMs: Date.now() })).stop()
})

await attack('broker-state-older', async (t) => {
  const { state, before } = await usedState(t)
  dropDatabase(state)
  cpSync(join(before, 'broker.db'), join(state, 'broker.db'))
  t.match(await failure(brokerHere(t, { state })), { code: 'Stale', message: /it is older: it has revision \d+/ })
})

await attack('broker-state-older-with-mark', async (t) => {
  const { before, paris } = await usedState(t)
  const broker = await brokerHere(t, { state: before })
  const channel = openChannel(broker, paris)
  t.teardown(() => channel.close())
  const { code } = await new RawPublish(channel).ended()
  t.equal(code, 7, 'PERMISSION_DENIED')
  const reported = await eventually(() =>
    broker.logger.lines.find(({ message }) => message === 'a member uses a certificate that this broker does not know'),
  )
  t.match(reported, {
    level: 'error',
    fields: { cluster: 'paris', reason: 'CertificateUnknown', why: /restore the latest backup/ },
  })
})

await attack('restored-broker-lied-to', async (t) => {
  const first = await brokerHere(t)
  const { state } = first
  const milano = await rawJoin(first, 'milano')
  await rawJoin(first, 'paris')
  const backup = join(temporaryFolder(t), 'backup')
  await backupBroker(new SystemClock(), state, backup, { who: { kind: 'operator' } })
  await first.stop()
  await stageRestore(new SystemClock(), state, backup, { who: { kind: 'operator' }, force: true })
  const broker = await brokerHere(t, { state })
  const rows = async (): Promise<string> => {
    const log = openSqliteLog({ file: join(state, 'broker.db'), create: false })
    const members = log.list('member').map(({ key, value }) => [key, value.index, value.blocks, value.facts])
    const text = JSON.stringify([members, log.list('serviceIp'), log.list('address')])
    t.ok(log.count('awaited') <= 1000, `${log.count('awaited')} are awaited`)
    await log.close()
    return text
  }
  const before = await rows()
  const channel = openChannel(broker, milano)
  t.teardown(() => channel.close())
  const stream = new RawPublish(channel)
  const digest = { setHash: Buffer.alloc(32), count: 1, tellsStatus: true, takesQuota: false, givesHeld: true }
  stream.send({ $case: 'declare', value: digest })
  await stream.has('sendDigest')
  const cluster = (id: string, index: number, globalCidrs: string[]) => {
    const value = { id, index, podCidrs: ['10.42.0.0/16'], serviceCidrs: [], globalCidrs, labels: [] }
    const body = { body: { $case: 'cluster' as const, value } }
    return { cluster: id, namespace: '', name: id, revision: 1, createdAtMs: 1, body }
  }
  const held = (records: ReturnType<typeof cluster>[], last: boolean): void => {
    stream.send({ $case: 'held', value: { records, last } })
  }
  for (let part = 0; part < 3; part += 1) {
    const some = Array.from({ length: 1000 }, (_, i) =>
      cluster(`no${part}-${i}`, 1000 * part + i + 1, ['244.0.0.0/16']),
    )
    held(some, false)
  }
  held([cluster('paris', 1, ['244.7.0.0/16']), cluster('milano', 2, ['244.0.0.0/8'])], true)
  // The member sends one more set, although the broker has not asked for it.
  held([cluster('late', 3, [])], true)
  stream.send({ $case: 'digest', value: { entries: [], last: true } })
  await stream.has('need')
  t.equal(await rows(), before)
  const log = openSqliteLog({ file: join(state, 'broker.db'), create: false })
  t.equal(log.get('awaited', 'late'), undefined)
  await log.close()
  // Paris has not reported, so a join under an unknown id has to wait.
  t.match(
    await messageOf(rawJoin(broker, 'bergen')),
    /restored from a backup of .*; these members have not reported yet .*: paris/,
  )
})
