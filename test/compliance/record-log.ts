/** The suite for every driver of the broker's log. It runs on memory-log, sqlite-log and etcd-log. */
import fc from 'fast-check'
import type { Test } from 'tap'
import { TOPOLOGY_KEY, setTopology, topologyInForce, topologyRecord } from '../../broker/records/topology-record.ts'
import type { LogView, RecordLog, Transaction } from '../../broker/store/record-log.ts'
import type { RecordRow } from '../../broker/store/rows.ts'
import type { Topology } from '../../model/records.ts'

export interface LogFactory {
  /** Returns a new, empty log that remembers at most `keepRemoved` removals. */
  open(init: { keepRemoved: number }): RecordLog | Promise<RecordLog>
  /** The number of rounds of the property test. It is lower when opening a log takes long. */
  readonly runs?: number
}

export function row(ip: string): RecordRow {
  return { createdAtMs: 1, body: { kind: 'ClusterSetIP', ips: [ip] } }
}

export function recordLogCompliance(t: Test, factory: LogFactory): void {
  const open = async (test: Test, keepRemoved = 100): Promise<RecordLog> => {
    const log = await factory.open({ keepRemoved })
    test.teardown(() => log.close())
    return log
  }

  t.test('a new log is empty', async (t) => {
    const log = await open(t)
    t.equal(log.revision, 0)
    t.equal(log.compactedRevision, 0)
    t.match(log.epoch, /^[0-9a-f-]{36}$/)
    t.same(log.recordsAfter(0, 10), [])
    t.equal(log.get('record', 'a/K/n/x'), undefined)
  })

  t.test('writes get revisions in order, in every scope', async (t) => {
    const log = await open(t)
    await log.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
    await log.transact((tx) => {
      tx.put('address', '245.0.0.1', { service: 'n/x' })
      tx.put('record', 'a/K/n/y', row('2'))
    })
    t.equal(log.revision, 3)
    t.equal(log.row('record', 'a/K/n/x')?.revision, 1)
    t.equal(log.row('address', '245.0.0.1')?.revision, 2)
    t.equal(log.row('record', 'a/K/n/y')?.revision, 3)
    t.same(
      log.recordsAfter(0, 10).map((change) => [change.revision, change.key]),
      [
        [1, 'a/K/n/x'],
        [3, 'a/K/n/y'],
      ],
    )
  })

  t.test('a transaction sees its own writes and those of earlier ones in the same group', async (t) => {
    const log = await open(t)
    const first = log.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
    const second = log.transact((tx) => {
      tx.put('record', 'a/K/n/y', row('2'))
      const seen = [tx.get('record', 'a/K/n/x'), tx.get('record', 'a/K/n/y')]
      tx.remove('record', 'a/K/n/x')
      return { seen, count: tx.count('record', 'a'), keys: tx.list('record', 'a').map((one) => one.key) }
    })
    await first
    t.same(await second, { seen: [row('1'), row('2')], count: 1, keys: ['a/K/n/y'] })
    t.equal(log.get('record', 'a/K/n/x'), undefined)
  })

  t.test('a transaction that throws leaves nothing, and does not harm its group', async (t) => {
    const log = await open(t)
    const before = log.transact((tx) => tx.put('record', 'a/K/n/1', row('1')))
    const bad = log.transact((tx) => {
      tx.put('record', 'a/K/n/2', row('2'))
      throw new Error('refused')
    })
    const after = log.transact((tx) => tx.put('record', 'a/K/n/3', row('3')))
    await t.rejects(bad, { message: 'refused' })
    await Promise.all([before, after])
    t.same(
      log.list('record').map((one) => one.key),
      ['a/K/n/1', 'a/K/n/3'],
    )
    t.equal(log.revision, 2)
  })

  t.test('of each record only the latest state is given, removals included', async (t) => {
    const log = await open(t)
    for (const ip of ['1', '2', '3']) await log.transact((tx) => tx.put('record', 'a/K/n/x', row(ip)))
    await log.transact((tx) => tx.put('record', 'a/K/n/y', row('9')))
    await log.transact((tx) => tx.remove('record', 'a/K/n/y'))
    t.same(
      log.recordsAfter(0, 10).map((change) => [change.key, change.revision, change.value?.body]),
      [
        ['a/K/n/x', 3, row('3').body],
        ['a/K/n/y', 5, undefined],
      ],
    )
    t.same(log.recordsAfter(3, 10).length, 1)
    t.same(log.recordsAfter(5, 10), [])
    t.same(log.recordsAfter(0, 1).length, 1)
  })

  t.test('a topology is numbered, and an older one never undoes a newer one', async (t) => {
    const log = await open(t)
    const hub: Topology = { mode: 'hub-and-spoke', hubs: ['milano'] }
    const set = (topology: Topology, basedOn: number) => log.transact((tx) => setTopology(tx, { topology, basedOn }, 7))
    t.same(topologyInForce(log), { number: 0, topology: { mode: 'full' } })
    const both = await Promise.allSettled([set(hub, 0), set({ mode: 'hub-and-spoke', hubs: ['paris'] }, 0)])
    t.same(
      both.map(({ status }) => status),
      ['fulfilled', 'rejected'],
      'of two that are based on the same one, the first counts',
    )
    t.match(topologyRecord(log), { number: 1, topology: hub, setAtMs: 7 })
    const at = log.row('record', TOPOLOGY_KEY)?.revision
    t.same(await set(hub, 0), { changed: false, number: 1 })
    t.equal(log.row('record', TOPOLOGY_KEY)?.revision, at, 'the same again is no write')
    t.same(await set({ mode: 'full' }, 1), { changed: true, number: 2 })
    await t.rejects(set(hub, 1), { message: /^basedOn 1: expected 2/ })
    t.same(
      log.recordsAfter(0, 10).map(({ key }) => key),
      [TOPOLOGY_KEY],
    )
  })

  t.test('removing what is not there is no write', async (t) => {
    const log = await open(t)
    await log.transact((tx) => tx.remove('record', 'a/K/n/x'))
    await log.transact((tx) => {
      tx.put('record', 'a/K/n/x', row('1'))
      tx.remove('record', 'a/K/n/x')
    })
    t.equal(log.revision, 0)
  })

  t.test('groups and counts', async (t) => {
    const log = await open(t)
    await log.transact((tx) => {
      for (const key of ['a/K/n/x', 'a/K/n/y', 'ab/K/n/z']) tx.put('record', key, row(key))
    })
    t.equal(log.count('record'), 3)
    t.equal(log.count('record', 'a'), 2)
    t.same(
      log.list('record', 'a').map((one) => one.key),
      ['a/K/n/x', 'a/K/n/y'],
    )
    const seen = await log.transact((tx) => {
      tx.remove('record', 'ab/K/n/z')
      tx.put('record', '/K/n/own', row('1'))
      tx.put('record', '/K/n/own', row('2'))
      return [tx.count('record'), tx.count('record', ''), tx.count('record', 'a'), tx.count('record', 'ab')]
    })
    t.same(seen, [3, 1, 2, 0])
    t.same([log.count('record'), log.count('record', ''), log.count('record', 'ab')], [3, 1, 0])
  })

  t.test('records of one kind are counted', async (t) => {
    const log = await open(t)
    await log.transact((tx) => {
      for (const key of ['a/Endpoint//x', 'a/Endpoint//y', 'a/ServiceExport/n/x', 'ab/Endpoint//x'])
        tx.put('record', key, row(key))
    })
    const counts = (view: LogView): number[] => ['a', 'ab', 'c'].map((group) => view.recordCount(group, 'Endpoint'))
    t.same(counts(log), [2, 1, 0])
    const seen = await log.transact((tx) => {
      tx.remove('record', 'ab/Endpoint//x')
      tx.put('record', 'a/Endpoint//x', row('other'))
      tx.put('record', 'c/Endpoint//x', row('1'))
      return counts(tx)
    })
    t.same(seen, [2, 0, 1])
    t.same(counts(log), seen)
  })

  t.test('compaction forgets the oldest removals and says up to where', async (t) => {
    const log = await open(t, 4)
    for (let i = 0; i < 5; i += 1) {
      await log.transact((tx) => tx.put('record', `a/K/n/${i}`, row('1')))
      await log.transact((tx) => tx.remove('record', `a/K/n/${i}`))
    }
    t.equal(log.compactedRevision, 0)
    await log.transact((tx) => tx.put('record', 'a/K/n/kept', row('1')))
    t.ok(log.compactedRevision > 0)
    t.equal(log.recordsAfter(0, 100).filter((change) => change.value === undefined).length, 2)
    t.ok(log.get('record', 'a/K/n/kept'))
  })

  t.test('a reader that follows at any pace ends with what the log has', async (t) => {
    const step = fc.oneof(
      fc.record({ t: fc.constant('put' as const), key: fc.integer({ min: 0, max: 8 }), value: fc.nat(9) }),
      fc.record({ t: fc.constant('remove' as const), key: fc.integer({ min: 0, max: 8 }) }),
      fc.record({ t: fc.constant('fail' as const), key: fc.integer({ min: 0, max: 8 }) }),
      fc.record({ t: fc.constant('read' as const), limit: fc.integer({ min: 1, max: 3 }) }),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const log = await factory.open({ keepRemoved: 3 })
        const reader = new Reader(log)
        for (const one of steps) {
          if (one.t === 'read') reader.read(one.limit)
          else await log.transact((tx) => write(tx, one)).catch(() => undefined)
        }
        while (reader.read(2));
        const want = log.list('record').map(({ key, value }) => [key, value])
        await log.close()
        return JSON.stringify([...reader.copy].sort()) === JSON.stringify(want)
      }),
      { numRuns: factory.runs ?? 100 },
    )
    t.pass('whatever was written, removed, refused and forgotten meanwhile')
  })

  t.test('commits are told once each, after they are durable', async (t) => {
    const log = await open(t)
    const reported: number[] = []
    const stop = log.onCommit((changes) => reported.push(...changes.map((change) => change.revision)))
    await log.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
    await log.transact((tx) => tx.get('record', 'a/K/n/x'))
    stop()
    await log.transact((tx) => tx.put('record', 'a/K/n/x', row('2')))
    t.same(reported, [1])
  })

  t.test('a closed log refuses', async (t) => {
    const log = await open(t)
    const last = log.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
    await log.close()
    await last
    await t.rejects(
      log.transact(() => 1),
      { message: 'the log is closed' },
    )
  })
}

type Step =
  | { readonly t: 'put'; readonly key: number; readonly value: number }
  | { readonly t: 'remove' | 'fail'; readonly key: number }

function write(tx: Transaction, step: Step): void {
  const key = `a/K/n/${step.key}`
  if (step.t === 'put') tx.put('record', key, row(String(step.value)))
  else tx.remove('record', key)
  if (step.t === 'fail') throw new Error('refused')
}

/** A minimal watcher. */
class Reader {
  readonly copy = new Map<string, RecordRow>()
  readonly #log: RecordLog
  #revision = 0
  #floor = 0
  constructor(log: RecordLog) {
    this.#log = log
  }
  /** Reads the next changes. Returns false when there are none. */
  read(limit: number): boolean {
    if (this.#log.compactedRevision > Math.max(this.#revision, this.#floor)) {
      this.copy.clear()
      this.#revision = 0
      this.#floor = this.#log.revision
    }
    const changes = this.#log.recordsAfter(this.#revision, limit)
    for (const { key, value, revision } of changes) {
      if (value === undefined) this.copy.delete(key)
      else this.copy.set(key, value)
      this.#revision = revision
    }
    return changes.length > 0
  }
}
