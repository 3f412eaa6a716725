/** The single writer of the audit log: its bounds, its failures, and events that wait in the store. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { AuditInit } from '../../../broker/store/audit-event.ts'
import { MAX_WAITING, keepEvent, waitingEvents } from '../../../broker/audit/audit-outbox.ts'
import { AuditTrail, MAX_QUEUED } from '../../../broker/audit/audit-trail.ts'
import { strangerSource } from '../../../broker/audit/refusal-rate-limiter.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import { brokerMetrics } from '../../../broker/config/broker-metrics.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { MemorySink } from './audit-lines.ts'

const never = new AbortController().signal

function act(subject: string): AuditInit {
  return { act: 'cluster.evict', result: 'ok', who: { kind: 'operator', uid: 0 }, subject }
}

function started(t: Test, { hasSink = true } = {}) {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const registry = createMetrics('broker')
  const file = join(temporaryFolder(t), 'broker.db')
  const log = openSqliteLog({ file })
  t.teardown(() => log.close())
  const sink = new MemorySink()
  const metrics = brokerMetrics(registry)
  const trail = new AuditTrail({ log, clock, logger, metrics, sink: hasSink ? sink : undefined })
  const count = async (name: string): Promise<number> => {
    const text = await registry.text()
    return Number(new RegExp(`^sealane_broker_audit_${name}\\S* (\\d+)$`, 'm').exec(text)?.[1])
  }
  return { trail, log, clock, logger, sink, count, file }
}

t.test('an act is in the log if, and only if, it is in the store', async (t) => {
  const { trail, log, sink, count } = started(t)
  await log.transact((tx) => trail.keep(tx, act('paris')))
  const refused = log.transact((tx) => {
    trail.keep(tx, act('roma'))
    throw new Error('no')
  })
  t.equal(await messageOf(refused), 'no')
  t.same(sink.short(), [], 'nobody waits for the log')
  await trail.flush(never)
  t.same(sink.short(), ['cluster.evict ok paris'])
  t.equal(log.count('audit'), 0)
  t.equal(await count('lines_total'), 1)
  await trail.flush(never)
  t.equal(sink.lines().length, 1, 'once')
})

t.test('what another process did beside it, also while there was no broker', async (t) => {
  const { trail, log, sink, file, clock } = started(t)
  const beside = openSqliteLog({ file })
  t.teardown(() => beside.close())
  for (const subject of ['a', 'b', 'c']) {
    await beside.transact((tx) => keepEvent(tx, act(subject), clock.now()))
    await clock.advance(1)
  }
  await log.refresh()
  await trail.flush(never)
  t.same(sink.short(), ['cluster.evict ok a', 'cluster.evict ok b', 'cluster.evict ok c'], 'in the order of time')
  t.equal(log.count('audit'), 0)
})

t.test('a log that cannot be written: said once, and acts wait for it', async (t) => {
  const { trail, log, sink, logger, count } = started(t)
  sink.failure = new Error('/var/log/audit.log: ENOSPC')
  await log.transact((tx) => trail.keep(tx, act('paris')))
  trail.report(act('roma'))
  for (let i = 0; i < 3; i += 1) await t.rejects(trail.flush(never), { message: '/var/log/audit.log: ENOSPC' })
  t.match(logger.lines, [
    { level: 'error', fields: { reason: 'AuditLogUnwritable', why: '/var/log/audit.log: ENOSPC' } },
  ])
  t.equal(logger.lines.length, 1)
  t.equal(await count('waiting_lines'), 2)
  sink.failure = undefined
  await trail.flush(never)
  t.same(sink.short().sort(), ['cluster.evict ok paris', 'cluster.evict ok roma'])
  t.equal(logger.lines.at(-1)?.message, 'the audit log can be written again')
  t.equal(await count('lost_lines_total'), 0)
  t.equal(await count('waiting_lines'), 0)
})

t.test(
  'more than can wait: the number of lines that are lost is told, in the log, as a metric, and here',
  async (t) => {
    const { trail, log, sink, logger, clock, count } = started(t)
    sink.failure = new Error('full')
    for (let i = 0; i < MAX_QUEUED + 5; i += 1) trail.report(act(`refused-${i}`))
    t.match(logger.lines, [{ level: 'error', fields: { reason: 'AuditLinesLost' } }])
    t.equal(logger.lines.length, 1, 'not for each of them')
    await log.transact((tx) => {
      for (let i = 0; i < MAX_WAITING; i += 1) trail.keep(tx, act(`kept-${i}`))
    })
    await clock.advance(1)
    await log.transact((tx) => {
      for (let i = 0; i < 3; i += 1) trail.keep(tx, act(`late-${i}`))
    })
    t.equal(log.count('audit'), MAX_WAITING)
    sink.failure = undefined
    await trail.flush(never)
    const lines = sink.lines()
    const lost = lines
      .filter(({ what }) => what.act === 'audit.lost')
      .map(({ what }) => Number(what.details?.['lines']))
    t.equal(
      lost.reduce((sum, one) => sum + one),
      8,
    )
    t.equal(lines.length - lost.length, MAX_QUEUED + MAX_WAITING)
    t.equal(sink.short().filter((line) => line.includes('late-')).length, 3, 'the latest are there')
    t.equal(await count('lost_lines_total'), 8)
    t.equal(new Set(lines.map(({ id }) => id)).size, lines.length, 'none is there twice')
  },
)

t.test('a log that does not answer holds up nobody, and no second writer begins', async (t) => {
  const { trail, log, sink, clock } = started(t)
  const stop = new AbortController()
  const running = trail.run(stop.signal)
  sink.hold()
  trail.report(act('a'))
  await eventually(async () => {
    await clock.advance(10)
    return sink.release !== undefined
  })
  for (let i = 0; i < 5; i += 1) {
    trail.report(act(`more-${i}`))
    await log.transact((tx) => trail.keep(tx, act(`kept-${i}`)))
    await clock.advance(100)
  }
  t.equal(sink.text, '')
  stop.abort()
  const ended = running.then(() => true)
  await eventually(async () => {
    await clock.advance(500)
    return Promise.race([ended, Promise.resolve(false)])
  })
  t.ok(sink.closed, 'and the broker is stopping')
  t.equal(waitingEvents(log).length, 5, 'acts wait in the store for its next start')
})

t.test('the loop: lines come by themselves, and what is left comes at the end', async (t) => {
  const { trail, log, sink, clock } = started(t)
  const stop = new AbortController()
  const running = trail.run(stop.signal)
  await log.transact((tx) => trail.keep(tx, act('a')))
  await eventually(async () => {
    await clock.advance(10)
    return sink.lines().length === 1
  })
  trail.reopen()
  await eventually(async () => {
    await clock.advance(10)
    return sink.reopened === 1
  })
  sink.failure = new Error('full')
  trail.report(act('b'))
  await clock.advance(100)
  sink.failure = undefined
  await eventually(
    async () => {
      await clock.advance(100)
      return sink.lines().length === 2
    },
    { say: 'it is tried again' },
  )
  trail.report(act('c'))
  stop.abort()
  await running
  t.same(sink.short(), ['cluster.evict ok a', 'cluster.evict ok b', 'cluster.evict ok c'])
  t.ok(sink.closed)
})

t.test('suppressed refusals are reported by number, every five minutes', async (t) => {
  const { trail, sink, clock, count } = started(t)
  const refusal: AuditInit = { ...act('x'), act: 'join', result: 'refused', reason: 'TokenUnknown' }
  for (let i = 0; i < 500; i += 1) if (trail.allows(strangerSource('192.0.2.7'))) trail.report(refusal)
  await trail.flush(never)
  t.equal(sink.lines().length, 10)
  await clock.advance(300_000)
  await trail.flush(never)
  t.match(sink.lines().slice(10), [
    { who: { kind: 'broker' }, what: { act: 'audit.suppressed', details: { lines: 490, sources: 1 } } },
  ])
  t.same(sink.lines().at(-1)?.what.details?.['most'], ['192.0.2.7: 490'])
  t.equal(await count('suppressed_lines_total'), 490)
  for (let i = 0; i < 5; i += 1) if (trail.allows(strangerSource('192.0.2.7'))) trail.report(refusal)
  await trail.run(AbortSignal.abort())
  t.same(sink.lines().at(-1)?.what.details?.['most'], ['192.0.2.7: 4'], 'and when the broker is stopping')
})

t.test('without an audit log nothing is kept, and what commands put there goes', async (t) => {
  const { trail, log, clock } = started(t, { hasSink: false })
  await log.transact((tx) => trail.keep(tx, act('a')))
  t.equal(log.count('audit'), 0)
  await log.transact((tx) => keepEvent(tx, act('b'), clock.now()))
  t.notOk(trail.allows(strangerSource('192.0.2.7')))
  await trail.flush(never)
  t.equal(log.count('audit'), 0)
})

t.test('a write that does not end is told once, and what waits meanwhile is counted', async (t) => {
  const { trail, log, sink, clock, logger, count } = started(t)
  sink.hold()
  trail.report(act('a'))
  const flushed = trail.flush(never)
  await clock.advance(9_999)
  t.same(logger.lines, [])
  await clock.advance(1)
  t.match(logger.lines, [
    { level: 'error', fields: { reason: 'AuditLogUnwritable', why: /^no line could be written for 10 s/ } },
  ])
  trail.report(act('b'))
  await log.transact((tx) => trail.keep(tx, act('c')))
  t.equal(await count('waiting_lines'), 3)
  await clock.advance(60_000)
  t.equal(logger.lines.length, 1)
  sink.letGo()
  await flushed
  t.equal(logger.lines.at(-1)?.message, 'the audit log can be written again')
  t.equal(await count('waiting_lines'), 0)
  await clock.advance(60_000)
  t.equal(logger.lines.length, 2, 'and not after it has ended')
})

t.test('what is lost is counted when it is, and once', async (t) => {
  const { trail, log, sink, clock, logger, count, file } = started(t)
  sink.failure = new Error('full')
  const keep = async (names: number): Promise<void> => {
    await clock.advance(1)
    await log.transact((tx) => {
      for (let i = 0; i < names; i += 1) trail.keep(tx, act(`x-${i}`))
    })
  }
  await keep(MAX_WAITING)
  t.equal(await count('lost_lines_total'), 0)
  for (const want of [3, 6, 9]) {
    await keep(3)
    t.equal(await count('lost_lines_total'), want)
  }
  const said = logger.lines.filter(({ fields }) => fields.reason === 'AuditLinesLost')
  t.equal(said.length, 1, 'before the log is written again')
  const beside = openSqliteLog({ file })
  t.teardown(() => beside.close())
  const registry = createMetrics('broker')
  const deps = { log: beside, clock, logger, metrics: brokerMetrics(registry), sink: new MemorySink() }
  t.ok(new AuditTrail(deps))
  t.match(await registry.text(), /^sealane_broker_audit_lost_lines_total\S* 9$/m, 'a broker that starts finds them')
  sink.failure = undefined
  await trail.flush(never)
  t.equal(await count('lost_lines_total'), 9)
  await keep(5)
  t.equal(await count('lost_lines_total'), 9, 'there is room again')
})

t.test('an act that takes the place of one whose line is on its way loses none', async (t) => {
  const { trail, log, sink, clock } = started(t)
  await log.transact((tx) => {
    for (let i = 0; i < MAX_WAITING; i += 1) trail.keep(tx, act(`early-${i}`))
  })
  sink.hold()
  const flushed = trail.flush(never)
  await clock.advance(1)
  for (let i = 0; i < 3; i += 1) await log.transact((tx) => trail.keep(tx, act(`late-${i}`)))
  sink.letGo()
  await flushed
  const acts = sink.lines().map(({ what }) => what.act)
  t.equal(acts.filter((one) => one === 'cluster.evict').length, MAX_WAITING + 3)
  t.notOk(acts.includes('audit.lost'))
})

const bad: readonly (readonly [say: string, change: object])[] = [
  ['a detail that is null', { details: { a: null } }],
  ['nobody', { who: null }],
  ['a subject that is a number', { subject: 7, details: { a: {} } }],
]
for (const [say, change] of bad) {
  t.test(`a row with ${say} stops no other`, async (t) => {
    const { trail, log, sink, count, logger } = started(t)
    await log.transact((tx) => {
      trail.keep(tx, act('before'))
      trail.keep(tx, { ...act('bad'), ...change })
      trail.keep(tx, act('after'))
    })
    const id = waitingEvents(log)[1]?.row.event.id
    await trail.flush(never)
    t.same(sink.short(), ['cluster.evict ok before', 'audit.lost failed', 'cluster.evict ok after'])
    t.match(sink.lines()[1], { id, what: { details: { lines: 1, id } } })
    t.equal(log.count('audit'), 0)
    t.equal(await count('lost_lines_total'), 1)
    t.match(logger.lines, [{ fields: { reason: 'AuditLinesLost', ids: id } }])
  })
}
