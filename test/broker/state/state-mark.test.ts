import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { backupBroker } from '../../../broker/recovery/backup.ts'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import { runBroker } from '../../../broker/main.ts'
import { finishRestore, stageRestore } from '../../../broker/recovery/restore.ts'
import { MARK_FILE, type Mark, markProblem } from '../../../broker/recovery/state-mark.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { eventually } from '../../support/eventually.ts'
import { messageOf } from '../../support/failure.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Harness, join_, startBroker } from '../support/harness.ts'
import { TlsMember } from '../support/tls-member.ts'

const clock = new SystemClock()

interface Running {
  readonly logger: CapturingLogger
  stop(): Promise<void>
}

async function start(t: Test, stateDir: string, change: Partial<BrokerConfig> = {}): Promise<Running> {
  const at = `127.0.0.1:${await freePort()}`
  const config = { ...DEFAULT_BROKER_CONFIG, stateDir, listen: at, advertise: [at], clusterset: 'demo', ...change }
  const stop = new AbortController()
  const logger = new CapturingLogger()
  let onListening: () => void = () => undefined
  const listening = new Promise<void>((resolve) => (onListening = resolve))
  const deps = { clock, logger, status: new StatusBoard(), metrics: createMetrics('broker'), onListening }
  const done = runBroker(deps, config, stop.signal)
  await Promise.race([listening, done])
  const end = async (): Promise<void> => {
    stop.abort()
    await done
  }
  t.teardown(end)
  return { logger, stop: end }
}

/**
 * Returns the state directory of a stopped broker with two members. `young` is a copy from before the second one
 * joined.
 */
async function used(t: Test): Promise<{ readonly state: string; readonly young: string }> {
  const state = join(temporaryFolder(t), 'state')
  const young = join(temporaryFolder(t), 'young')
  let broker = await start(t, state)
  await (await TlsMember.join(t, state, 'milano')).stop()
  await broker.stop()
  cpSync(state, young, { recursive: true })
  broker = await start(t, state)
  await (await TlsMember.join(t, state, 'paris')).stop()
  await broker.stop()
  return { state, young }
}

function epochOf({ logger }: Running): unknown {
  return logger.lines.find(({ message }) => message === 'listening')?.fields['epoch']
}

function dropDatabase(state: string): void {
  for (const suffix of ['', '-wal', '-shm']) rmSync(join(state, `broker.db${suffix}`), { force: true })
}

t.test('a first start, and the next ones', async (t) => {
  const state = join(temporaryFolder(t), 'state')
  for (let round = 1; round <= 3; round += 1) await (await start(t, state)).stop()
  t.pass('a broker without members has nothing to lose')
})

t.test('the mark is there as soon as the first member is', async (t) => {
  const state = join(temporaryFolder(t), 'state')
  await start(t, state)
  const member = await TlsMember.join(t, state, 'milano')
  const mark = await eventually(() => JSON.parse(readFileSync(join(state, MARK_FILE), 'utf8')) as Mark)
  t.equal(mark.members, 1)
  await member.stop()
})

t.test('its key, and no database', async (t) => {
  const { state } = await used(t)
  dropDatabase(state)
  const said = await messageOf(start(t, state))
  t.match(said, /broker\.db is older than the state that members have: it is missing, although ca\.crt exists\. /)
  t.match(said, /Restore the latest backup \(no backup of this broker is recorded\) with "sealane broker restore FILE/)
  const past = Date.now() - 3_600_000
  t.match(
    await messageOf(start(t, state, { acceptEmptyAtMs: past })),
    /is older than the state that members have/,
    'accepted before it was so',
  )
  const accepted = Date.now()
  const broker = await start(t, state, { acceptEmptyAtMs: accepted })
  await broker.stop()
  await (await start(t, state)).stop()
  t.pass('once accepted it is the state')
  dropDatabase(state)
  t.match(
    await messageOf(start(t, state, { acceptEmptyAtMs: accepted })),
    /is older than the state that members have/,
    'a flag that stays counts once',
  )
})

t.test('its key, a database that is empty, and the name of the backup', async (t) => {
  const { state } = await used(t)
  const file = join(temporaryFolder(t), 'yesterday.backup')
  await backupBroker(clock, state, file, { who: { kind: 'operator' } })
  const empty = join(temporaryFolder(t), 'empty')
  await (await start(t, empty)).stop()
  dropDatabase(state)
  cpSync(join(empty, 'broker.db'), join(state, 'broker.db'))
  const said = await messageOf(start(t, state))
  t.match(said, /it has no members, but had 2 members at \S+Z\. /)
  t.match(said, new RegExp(`Restore the backup of \\S+Z \\(${file}\\) with`))
  t.match(said, /start the broker with --accept-empty/)
  await stageRestore(clock, state, file, { who: { kind: 'operator' }, force: false })
  const broker = await start(t, state)
  t.match(broker.logger.lines[0], { message: 'restored from a backup', fields: { members: 2 } })
  await broker.stop()
  await (await start(t, state)).stop()
})

t.test('an older copy of the database', async (t) => {
  const { state, young } = await used(t)
  const before = JSON.parse(readFileSync(join(state, MARK_FILE), 'utf8')) as Mark
  dropDatabase(state)
  cpSync(join(young, 'broker.db'), join(state, 'broker.db'))
  t.match(
    await messageOf(start(t, state)),
    /it is older: it has revision \d+, but had reached revision \d+ with 2 members/,
  )
  const broker = await start(t, state, { acceptEmptyAtMs: Date.now() })
  t.match(broker.logger.lines[0], {
    level: 'warn',
    message: /older than the state that members have; it was accepted by --accept-empty/,
  })
  t.not(epochOf(broker), before.epoch, 'its revisions are given out a second time, for other changes')
  await broker.stop()
  const again = await start(t, state)
  t.equal(epochOf(again), epochOf(broker), 'once')
  await again.stop()
  const log = openSqliteLog({ file: join(state, 'broker.db') })
  for (const { value } of log.list('member')) t.match(value, { complete: false, restored: {} })
  t.ok(log.list('token').every(({ value }) => value.usesLeft === 0 || value.revokedAtMs !== undefined))
  await log.close()
})

t.test('a state of the last release has no mark, and starts', async (t) => {
  const { state } = await used(t)
  rmSync(join(state, MARK_FILE))
  const broker = await start(t, state)
  await broker.stop()
  t.equal((JSON.parse(readFileSync(join(state, MARK_FILE), 'utf8')) as Mark).members, 2, 'and has one now')
})

t.test('a restore by a release without marks', async (t) => {
  const { state } = await used(t)
  const file = join(temporaryFolder(t), 'a.backup')
  await backupBroker(clock, state, file, { who: { kind: 'operator' } })
  const mark = readFileSync(join(state, MARK_FILE))
  await stageRestore(clock, state, file, { who: { kind: 'operator' }, force: true })
  await finishRestore(clock, state, { kind: 'operator' })
  writeFileSync(join(state, MARK_FILE), mark)
  await (await start(t, state)).stop()
  t.pass('its rows say that they were restored')
})

t.test('a mark that is damaged is not believed either way', async (t) => {
  const { state } = await used(t)
  writeFileSync(join(state, MARK_FILE), 'x')
  t.match(await messageOf(start(t, state)), /state\.mark is damaged: remove it if you are sure/)
})

t.test('what a mark says of a log', (t) => {
  const member = { key: 'milano', value: {} }
  const log = (epoch: string, revision: number, members: readonly object[]) =>
    ({ epoch, revision, list: () => members }) as unknown as Parameters<typeof markProblem>[1]
  const mark: Mark = { epoch: 'a', revision: 10, members: 1, atMs: 1000 }
  const restored = (atMs: number): object => ({ key: 'x', value: { restored: { atMs, takenAtMs: 0 } } })
  for (const [what, said, view] of [
    ['the same', undefined, log('a', 10, [member])],
    ['later', undefined, log('a', 11, [member])],
    ['older', /^it is older: it has revision 9/, log('a', 9, [member])],
    ['empty', /^it has no members/, log('b', 0, [])],
    ['another', /^it is not the same database/, log('b', 99, [member])],
    ['restored since', undefined, log('b', 1, [restored(1001)])],
    ['restored before', /^it is not the same database/, log('b', 99, [restored(999)])],
  ] as const) {
    const problem = markProblem(mark, view)
    if (said === undefined) t.equal(problem, undefined, what)
    else t.match(problem, said, what)
  }
  t.equal(markProblem({ ...mark, members: 0 }, log('b', 0, [])), undefined, 'nobody was there')
  t.end()
})

t.test('a certificate that the database does not know', async (t) => {
  const harness: Harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const reported = (): number =>
    harness.logger.lines.filter(
      ({ message }) => message === 'a member uses a certificate that this broker does not know',
    ).length
  const open = (change: Partial<typeof peer>): void => {
    t.throws(() =>
      harness.broker.openPublish(
        { ...peer, ...change },
        () => undefined,
        () => undefined,
      ),
    )
  }
  const nowMs = harness.clock.now()
  open({ serial: 'ab', issuedAtMs: nowMs - 60_000 })
  t.equal(reported(), 0, 'one that was replaced')
  open({ serial: 'cd', issuedAtMs: nowMs + 60_000 })
  open({ serial: 'cd', issuedAtMs: nowMs + 60_000 })
  t.equal(reported(), 1, 'one of later than all that is known, told once')
  open({ cluster: 'oslo' as typeof peer.cluster, serial: 'ef', issuedAtMs: nowMs })
  t.equal(reported(), 2, 'a member that nobody knows')
})
