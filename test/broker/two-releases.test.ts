/**
 * Replicas of two releases on one store. The earlier one copies what it does not know of a member's row, but writes
 * whole Cluster records once a minute, and the whole settings when it starts, from what it does know. What an operator
 * has said since to a replica of this release stays (design rule 13).
 */
import t, { type Test } from 'tap'
import { Broker } from '../../broker/broker.ts'
import { clusterRecordKey, clusterSpec } from '../../broker/addresses/addresses.ts'
import { DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { brokerMetrics } from '../../broker/config/broker-metrics.ts'
import { CertificateAuthority } from '../../broker/identity/certificate-authority.ts'
import { drainMember } from '../../broker/members/member-list.ts'
import { fixSettings } from '../../broker/store/open-store.ts'
import type { RecordLog, Transaction } from '../../broker/store/record-log.ts'
import { type MemberRow, SETTINGS_KEY, isLive } from '../../broker/store/rows.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import type { Peer } from '../../protocol/broker-api.ts'
import { canonicalJson } from '../../protocol/codec/content-hash.ts'
import { decodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../support/eventually.ts'
import { type Harness, Watcher, facts, join_, startBroker } from './support/harness.ts'

/** What a release knows of a drain. */
type Knows = 'that a cluster is drained' | 'nothing'

/** The writes of a replica of an earlier release, as its code makes them. */
class EarlierReplica {
  readonly #log: RecordLog
  readonly #knows: Knows

  constructor(log: RecordLog, knows: Knows) {
    this.#log = log
    this.#knows = knows
  }

  /** `sealane cluster drain` and `undrain` of a release without `--now`. */
  async drain(id: string, drained: boolean): Promise<void> {
    await this.#log.transact((tx) => {
      const row = tx.get('member', id)
      if (!isLive(row) || (row.drained === true) === drained) return
      const { drained: _before, ...rest } = row
      tx.put('member', id, drained ? { ...rest, drained } : rest)
      this.#writeRecords(tx)
    })
  }

  /** What it does once a minute, and after each change of a member. */
  async round(): Promise<void> {
    await this.#log.transact((tx) => this.#writeRecords(tx))
  }

  async start(): Promise<void> {
    await this.#log.transact((tx) => {
      const stored = tx.get('settings', SETTINGS_KEY)
      if (stored === undefined) return
      const { accessDefault: _unknown, offers: _later, ...known } = stored
      tx.put('settings', SETTINGS_KEY, known)
    })
  }

  #writeRecords(tx: Transaction): void {
    for (const { key: id, value: row } of tx.list('member')) {
      const key = clusterRecordKey(id)
      const record = tx.get('record', key)
      if (!isLive(row) || record?.body.kind !== 'Cluster') continue
      const body = { kind: 'Cluster' as const, spec: this.#specOf(row, record.body.spec) }
      if (canonicalJson(body) !== canonicalJson(record.body)) tx.put('record', key, { ...record, body })
    }
  }

  #specOf(row: MemberRow, { drained: _before, drainedNow: _unknown, ...spec }: ClusterSpec): ClusterSpec {
    return this.#knows !== 'nothing' && row.drained === true ? { ...spec, drained: true } : spec
  }
}

/** Two replicas of this release on one log. */
async function replicas(t: Test): Promise<{ readonly one: Harness; readonly other: Harness }> {
  const one = await startBroker(t)
  const { log, clock, stateDir, logger } = one
  const authority = await CertificateAuthority.open(
    { clock, log },
    { stateDir, clusterset: 'demo', hosts: ['127.0.0.1'], memberMs: DEFAULT_BROKER_CONFIG.memberCertificateMs },
  )
  const metrics = brokerMetrics(createMetrics('broker'))
  const broker = new Broker(
    { log, authority, clock, logger, metrics },
    { ...DEFAULT_BROKER_CONFIG, clusterset: 'demo' },
  )
  t.teardown(() => broker.close())
  return { one, other: { ...one, broker } }
}

function drainIn(spec: Partial<ClusterSpec> | undefined): string {
  if (spec?.drained !== true) return spec?.drainedNow === true ? 'now alone' : 'serves'
  return spec.drainedNow === true ? 'drained now' : 'drained'
}

/** What a member has heard of the drain of a cluster, each change of it. */
function heard({ batches }: Watcher, cluster: string): string[] {
  const words = batches.flatMap((bytes) => {
    const event = decodeRecordEvent(bytes)
    if (event?.t !== 'put' || event.record.body.kind !== 'Cluster' || event.record.body.spec.id !== cluster) return []
    return [drainIn(event.record.body.spec)]
  })
  return words.filter((word, i) => word !== words[i - 1])
}

for (const knows of ['that a cluster is drained', 'nothing'] as const) {
  t.test(`a drain that an earlier release does not know, beside one that knows ${knows}`, async (t) => {
    const { one, other } = await replicas(t)
    const { log, clock } = one
    const { peer: milano } = await join_(one, 'milano')
    const { peer: oslo } = await join_(one, 'oslo', { facts: facts(['10.50.0.0/16']) })
    await join_(one, 'paris', { facts: facts(['10.60.0.0/16']) })
    const earlier = new EarlierReplica(log, knows)
    const watchers = [new Watcher(one, milano), new Watcher(other, oslo)]
    await Promise.all(watchers.map((watcher) => watcher.line(/^synced/)))
    const stored = (): string => drainIn(clusterSpec(log, 'paris'))
    const drain = (drained: boolean, now = false): Promise<boolean> =>
      log.transact((tx) => drainMember(tx, { cluster: 'paris', drained, now }))
    const all = async (want: string[], say: string): Promise<void> => {
      const known = (): string => JSON.stringify(watchers.map((watcher) => heard(watcher, 'paris')))
      await eventually(() => known() === JSON.stringify([want, want]), { say: `${say}: ${known()}` })
    }
    await drain(true, true)
    await all(['serves', 'drained now'], 'drained')

    let writes = 0
    const stop = log.onCommit((changes) => {
      writes += changes.filter(({ scope, key }) => scope === 'record' && key === clusterRecordKey('paris')).length
    })
    const rounds = 5
    for (let i = 0; i < rounds; i += 1) {
      for (const { broker } of [one, other]) {
        await clock.advance(60_000)
        await earlier.round()
        await eventually(() => stored() === 'drained now', { say: `round ${i}: written back without waiting` })
        await broker.reviewAddresses()
        t.equal(stored(), 'drained now', `round ${i}: a round of this release`)
      }
    }
    stop()
    t.equal(writes, 2 * 2 * rounds, 'a write of the earlier release is answered once, by one of the others')
    await join_(one, 'roma', { facts: facts(['10.70.0.0/16']) })
    await Promise.all(watchers.map((watcher) => watcher.line(/roma/)))
    await all(['serves', 'drained now'], 'no member has heard anything else')

    await clock.advance(60_000)
    await drain(false)
    await earlier.round()
    await all(['serves', 'drained now', 'serves'], 'an operator ends the drain')
    t.match(log.get('member', 'paris'), { drained: undefined, drainedNow: undefined })
    for (const watcher of watchers) await watcher.stop()
  })
}

t.test('an earlier release ends a drain --now and begins another one: open connections go on', async (t) => {
  const { one, other } = await replicas(t)
  const { log, clock } = one
  const { peer } = await join_(one, 'milano')
  await join_(one, 'paris', { facts: facts(['10.60.0.0/16']) })
  const watcher = new Watcher(other, peer)
  await watcher.line(/^synced/)
  const earlier = new EarlierReplica(log, 'that a cluster is drained')
  for (let i = 0; i < 3; i += 1) {
    await clock.advance(5000)
    await log.transact((tx) => drainMember(tx, { cluster: 'paris', drained: true, now: true }))
    await earlier.drain('paris', false)
    await eventually(() => log.get('member', 'paris')?.drainedNow === undefined, { say: 'no rest of it is left' })
    await earlier.drain('paris', true)
    await one.broker.reviewAddresses()
    t.equal(drainIn(clusterSpec(log, 'paris')), 'drained', `time ${i}`)
    await earlier.drain('paris', false)
  }
  await join_(one, 'roma', { facts: facts(['10.70.0.0/16']) })
  await watcher.line(/roma/)
  const turns = heard(watcher, 'paris')
  t.notOk(turns.includes('now alone'), turns.join())
  t.equal(turns.at(-1), 'serves')
  await watcher.stop()
})

t.test('the default of the clusterset outlasts the start of an earlier release', async (t) => {
  const { one, other } = await replicas(t)
  const { log } = one
  const { peer } = await join_(one, 'milano')
  await log.transact((tx) => {
    const settings = tx.get('settings', SETTINGS_KEY)
    if (settings !== undefined) tx.put('settings', SETTINGS_KEY, { ...settings, accessDefault: 'deny', offers: true })
  })
  const watcher = new Watcher(other, peer)
  await watcher.line(/^synced/)
  await new EarlierReplica(log, 'nothing').start()
  t.equal(await statedAtStart(one, peer), 'deny', 'what a member hears that connects in that moment')
  const settings = (): unknown => log.get('settings', SETTINGS_KEY)
  await eventually(() => (settings() as { accessDefault?: unknown }).accessDefault === 'deny', { say: 'written back' })
  t.match(settings(), { accessDefault: 'deny', offers: true })
  await log.transact((tx) => {
    const stored = tx.get('settings', SETTINGS_KEY)
    if (stored !== undefined) tx.put('settings', SETTINGS_KEY, { ...stored, accessDefault: 'allow' })
  })
  await watcher.line('access allow')
  t.same(
    watcher.lines.filter((line) => line.startsWith('access')),
    ['access allow'],
    'an operator changes it, and members have heard nothing else',
  )
  await watcher.stop()
})

/** The default in the first message of a watch. */
async function statedAtStart({ broker }: Harness, peer: Peer): Promise<unknown> {
  const stop = new AbortController()
  for await (const message of broker.watch(peer, {}, stop.signal)) {
    stop.abort()
    return message.t === 'reset' ? message.accessDefault : message.t
  }
  return 'no message'
}

t.test('what a later release has written stays: a start, a round and a change of the member keep it', async (t) => {
  const { one } = await replicas(t)
  const { log, stateDir } = one
  await join_(one, 'paris', { facts: facts(['10.60.0.0/16']) })
  const key = clusterRecordKey('paris')
  await log.transact((tx) => {
    const settings = tx.get('settings', SETTINGS_KEY)
    const record = tx.get('record', key)
    if (settings === undefined || record?.body.kind !== 'Cluster') throw new Error('nothing stored')
    tx.put('settings', SETTINGS_KEY, { ...settings, later: 'deny' } as typeof settings)
    const spec = { ...record.body.spec, later: { as: 'it is' } }
    tx.put('record', key, { ...record, body: { kind: 'Cluster', spec } })
  })
  await fixSettings(log, { ...DEFAULT_BROKER_CONFIG, stateDir, clusterset: 'demo', advertise: ['127.0.0.1:7444'] })
  await one.broker.reviewAddresses()
  await log.transact((tx) => drainMember(tx, { cluster: 'paris', drained: true, now: true }))
  t.match(log.get('settings', SETTINGS_KEY), { later: 'deny', advertise: ['127.0.0.1:7444'] })
  t.match(clusterSpec(log, 'paris'), { later: { as: 'it is' }, drained: true, drainedNow: true })
  await log.transact((tx) => {
    const row = tx.get('member', 'paris')
    if (row !== undefined) tx.put('member', 'paris', { ...row, facts: { ...row.facts, labels: { tier: 'prod' } } })
  })
  await one.broker.reviewAddresses()
  t.match(clusterSpec(log, 'paris'), { later: { as: 'it is' }, labels: { tier: 'prod' } })
})
