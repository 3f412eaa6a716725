/**
 * The audit log of a whole broker, with TLS, the broker's process script, commands beside it, and a log file that is
 * moved away.
 */
import { X509Certificate } from 'node:crypto'
import { readFileSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { AUDIT_ACTS } from '../../../broker/store/audit-event.ts'
import { backupBroker } from '../../../broker/recovery/backup.ts'
import { stageRestore } from '../../../broker/recovery/restore.ts'
import { BrokerService } from '../../../protocol/gen/broker.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { fingerprint } from '../../../protocol/identity/certificates.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { LoopbackBroker } from '../../cli/loopback-broker.ts'
import { callUnary, openChannel, outcomeOf } from '../../hostile/support/raw-channel.ts'
import { joinWith } from '../../hostile/support/raw-join.ts'
import { RawPublish } from '../../hostile/support/raw-publish.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { TlsMember } from '../support/tls-member.ts'
import { type AuditLine, readLines, shortLine } from './audit-lines.ts'

t.setTimeout(60_000)

interface Started {
  readonly broker: LoopbackBroker
  readonly file: string
  /** Waits for a line, and returns it. */
  readonly line: (want: string) => Promise<AuditLine>
  readonly all: () => AuditLine[]
}

async function started(t: Test): Promise<Started> {
  const file = join(temporaryFolder(t), 'audit.log')
  const broker = await LoopbackBroker.start(t, { audit: { log: file, maxBytes: 1_000_000, keep: 2 } })
  const all = (): AuditLine[] => readLines(readFileSync(file, 'utf8'))
  const line = (want: string): Promise<AuditLine> =>
    eventually(() => all().find((one) => shortLine(one) === want), { say: `the line ${want}`, deadlineMs: 15_000 })
  return { broker, file, line, all }
}

const secretOf = (token: string): string => parseJoinToken(token, Date.now()).secret()

t.test('what happens to a broker in its life', async (t) => {
  const { broker, file, line, all } = await started(t)
  const raw = { address: broker.address, state: broker.state }
  t.match(await line('broker.start ok demo'), {
    who: { kind: 'broker' },
    what: { details: { clustersetIpRange: '245.0.0.0/16' } },
  })
  t.equal(statSync(file).mode & 0o777, 0o600)

  const token = await broker.tokens((store) => store.create({}))
  t.match(await line(`token.create ok ${token.id}`), { who: { kind: 'operator', uid: process.getuid?.() } })
  const joined = await joinWith(raw, secretOf(token.text), 'paris')
  const shown = fingerprint(new X509Certificate(joined.identity.cert).raw)
  t.match(await line('join ok paris'), { who: { token: token.id, address: '127.0.0.1', fingerprint: shown } })

  t.match(await outcomeOf(joinWith(raw, secretOf(token.text), 'roma')), /was already used/)
  t.match(await line('join refused TokenUsed roma'), { who: { kind: 'joining', token: token.id } })
  await outcomeOf(joinWith(raw, 'x'.repeat(43), 'roma'))
  t.notOk('token' in (await line('join refused TokenUnknown roma')).who)

  const milano = await TlsMember.join(t, broker.state, 'milano')
  await line('join ok milano')
  await milano.renew()
  t.match(await line('renew ok milano'), { who: { kind: 'member', cluster: 'milano', fingerprint: /^[0-9a-f]{64}$/ } })

  await broker.tokens((store) => store.evict({ cluster: 'paris', force: true }))
  await line('cluster.evict ok paris')
  await outcomeOf(new RawPublish(openChannel(raw, joined.identity)).open())
  t.match(await line('publish refused MemberEvicted paris'), { who: { kind: 'member', fingerprint: shown } })
  await outcomeOf(new RawPublish(openChannel(raw)).open())
  t.match(await line('publish refused CertificateMissing'), { who: { kind: 'stranger', address: '127.0.0.1' } })

  const unused = await broker.tokens((store) => store.create({}))
  await broker.tokens((store) => store.revoke(unused.id))
  await line(`token.revoke ok ${unused.id}`)

  // logrotate moves the file like this when it sends no signal; the broker writes the next line to a new file.
  renameSync(file, `${file}.moved`)
  const last = await broker.tokens((store) => store.create({}))
  await line(`token.create ok ${last.id}`)
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.ok(readLines(readFileSync(`${file}.moved`, 'utf8')).length >= 10)

  await milano.stop()
  await broker.stop()
  t.equal(all().at(-1)?.what.act, 'broker.stop')
  // No broker runs, so the event waits in the store until the next start.
  await broker.tokens((store) => store.evict({ cluster: 'milano', force: true }))
  t.notOk(all().some((one) => shortLine(one) === 'cluster.evict ok milano'))
  await broker.start({ audit: { log: file, maxBytes: 1_000_000, keep: 2 } })
  await line('cluster.evict ok milano')
  t.equal(all().filter((one) => shortLine(one) === 'cluster.evict ok milano').length, 1)

  const everything = readFileSync(file, 'utf8') + readFileSync(`${file}.moved`, 'utf8')
  for (const { text } of [token, unused, last]) t.notOk(everything.includes(secretOf(text)), 'no secret is in it')
  const ids = readLines(everything).map(({ id }) => id)
  t.equal(new Set(ids).size, ids.length)
  for (const { what } of readLines(everything))
    t.ok(
      AUDIT_ACTS.some((act) => act === what.act),
      what.act,
    )
})

t.test('a member that leaves', async (t) => {
  const { broker, line } = await started(t)
  const raw = { address: broker.address, state: broker.state }
  const { identity } = await joinWith(raw, secretOf(await broker.token()), 'paris')
  const channel = openChannel(raw, identity)
  await callUnary(channel, BrokerService.leave.path, Buffer.alloc(0))
  channel.close()
  t.match(await line('leave ok paris'), { who: { kind: 'member', cluster: 'paris', address: '127.0.0.1' } })
})

t.test('a broker whose audit log cannot be written starts and serves, and says so', async (t) => {
  const folder = temporaryFolder(t)
  const log = join(folder, 'not-there', 'audit.log')
  const broker = await LoopbackBroker.start(t, { audit: { log, maxBytes: 0, keep: 1 } })
  await TlsMember.join(t, broker.state, 'paris')
  await eventually(() => broker.logger.lines.find(({ fields }) => fields.reason === 'AuditLogUnwritable'))
  await TlsMember.join(t, broker.state, 'roma')
  const said = broker.logger.lines.filter(({ fields }) => fields.reason === 'AuditLogUnwritable')
  t.equal(said.length, 1)
  t.match(said[0]?.fields['why'], `${log}: ENOENT`)
})

t.test(
  'a restore: what waited in the state before is not lost, and what the backup had waiting is not repeated',
  async (t) => {
    const { broker, file, line, all } = await started(t)
    const clock = new SystemClock()
    const backup = join(temporaryFolder(t), 'a.backup')
    await TlsMember.join(t, broker.state, 'paris')
    await line('join ok paris')
    await broker.stop()
    const waiting = await broker.tokens((store) => store.create({}))
    await backupBroker(clock, broker.state, backup, { who: { kind: 'operator' } })
    await broker.start({ audit: { log: file, maxBytes: 0, keep: 1 } })
    await line(`broker.backup ok ${backup}`)
    await broker.stop()
    await broker.tokens((store) => store.evict({ cluster: 'paris', force: true }))
    await t.rejects(
      stageRestore(clock, broker.state, join(broker.state, 'ca.crt'), { who: { kind: 'operator' }, force: true }),
    )
    await stageRestore(clock, broker.state, backup, { who: { kind: 'operator' }, force: true })
    await broker.start({ audit: { log: file, maxBytes: 0, keep: 1 } })
    await line('broker.start ok demo')
    const done = await eventually(() =>
      all().find(({ what }) => what.act === 'broker.restore' && what.details?.['step'] === 'done'),
    )
    t.match(done, { result: 'ok', who: { kind: 'broker' }, what: { details: { members: 1 } } })
    await line('cluster.evict ok paris')
    const staged = all().filter(({ what }) => what.details?.['step'] === 'staged')
    t.same(
      staged.map(({ result }) => result),
      ['failed', 'ok'],
    )
    t.match(staged, [{ who: { kind: 'operator' } }, { who: { kind: 'operator' } }])
    t.equal(all().filter((one) => shortLine(one) === `token.create ok ${waiting.id}`).length, 1)
  },
)
