/**
 * A broker was restored from an older backup. It learns from the members what was given out since, and gives nothing
 * out twice, whatever happened before and after the backup, and in whatever order the members call.
 */
import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { type RecordLog, contentOfLog } from '../../../broker/store/record-log.ts'
import { stateFacts } from '../../../broker/members/changed-facts.ts'
import { changeFacts, completeness, joinMember, markComplete } from '../../../broker/members/membership.ts'
import { type WriteContext, memberRecords, putRecord } from '../../../broker/records/record-writes.ts'
import { noteAwaited } from '../../../broker/addresses/address-claims.ts'
import { ReturnsLater, returnMember } from '../../../broker/members/returning-members.ts'
import {
  asksHeld,
  beginSettling,
  checkSettled,
  noteAnswered,
  pruneRestore,
  takeHeld,
} from '../../../broker/members/settling.ts'
import { RESTORE_KEY, isLive, storedRecord } from '../../../broker/store/rows.ts'
import { verifyStore } from '../../../broker/recovery/verify-store.ts'
import type { ClusterId } from '../../../model/ids.ts'
import { DEFAULT_MEMBER_QUOTA } from '../../../model/member-quota.ts'
import type { MemberRecord, StoredRecord } from '../../../model/records.ts'
import { messageOf } from '../../support/failure.ts'
import { type BrokerStep, SETTINGS, brokerSteps, makeState } from '../support/broker-states.ts'
import { facts } from '../support/harness.ts'

const TAKEN_MS = Date.UTC(2026, 5, 1)
const RESTORED_MS = TAKEN_MS + 7_200_000
const NOW_MS = RESTORED_MS + 1000
/**
 * A range with few addresses, so that services collide. Each service gets the address that its name gives, or the next
 * free one.
 */
const NARROW = { ...SETTINGS, clustersetIpRange: '245.0.0.0/29' }
const RULES = { ...NARROW, allowedNamespaces: [], quota: DEFAULT_MEMBER_QUOTA }

function contextOf(cluster: string, nowMs = NOW_MS): WriteContext {
  return { cluster: cluster as ClusterId, rules: RULES, nowMs }
}

/** Returns a log in the state in which restore.ts leaves it. */
async function restoredAfter(steps: readonly BrokerStep[]): Promise<RecordLog> {
  const log = openMemoryLog()
  await makeState(log, steps, NARROW)
  await log.transact((tx) => {
    const live = tx.list('member').filter(({ value }) => isLive(value))
    const restored = { takenAtMs: TAKEN_MS, atMs: RESTORED_MS }
    for (const { key, value } of live) tx.put('member', key, { ...value, complete: false, restored })
    tx.put('restore', RESTORE_KEY, { ...restored, waiting: live.map(({ key }) => key) })
    beginSettling(tx, NOW_MS)
  })
  return log
}

/**
 * Returns the records that are missing from the restored broker and that a member with contact until the end still has
 * in its replica.
 */
function displaced(lost: RecordLog, log: RecordLog): StoredRecord[] {
  return lost.list('record').flatMap(({ key, value }) => {
    const { kind } = value.body
    if (kind !== 'Cluster' && kind !== 'ClusterSetIP') return []
    const same = JSON.stringify(log.get('record', key)?.body) === JSON.stringify(value.body)
    return same ? [] : [storedRecord(key, 1, value)]
  })
}

function peer(cluster: string, issuedAtMs = TAKEN_MS + 60_000) {
  return { cluster: cluster as ClusterId, address: '192.0.2.1', serial: `5${cluster.length}`, issuedAtMs }
}

/**
 * Lets the member call: it reports the addresses that it holds, states its facts, and publishes its records. Returns
 * false when the broker does not accept it as a member yet.
 */
async function call(log: RecordLog, lost: RecordLog, cluster: string, nowMs = NOW_MS): Promise<boolean> {
  const context = contextOf(cluster, nowMs)
  const returned = log.transact(
    (tx) => isLive(tx.get('member', cluster)) || returnMember(tx, peer(cluster), context)?.t,
  )
  const state = await returned.catch((error: unknown) => {
    if (!(error instanceof ReturnsLater)) throw error
  })
  if (state !== true && state !== 'returned') return false
  const held = displaced(lost, log)
  await log.transact((tx) => {
    if (!asksHeld(tx, cluster, nowMs)) return
    takeHeld(tx, held, context)
    noteAnswered(tx, cluster)
  })
  const row = lost.get('member', cluster)
  await log.transact((tx) => {
    if (row !== undefined) changeFacts(tx, row.facts, context)
    for (const { key, row: record } of memberRecords(lost, context.cluster)) {
      const { namespace, name } = key
      const wrong = putRecord(tx, { namespace, name, body: record.body } as MemberRecord, context)
      if (wrong !== undefined) throw new Error(`${wrong.field}: ${wrong.message}`)
    }
  })
  return true
}

t.test('whatever was given away since the backup is where it was', async (t) => {
  let returns = 0
  await fc.assert(
    fc.asyncProperty(brokerSteps, brokerSteps, fc.integer({ min: 0, max: 3 }), async (before, since, first) => {
      const lost = openMemoryLog()
      await makeState(lost, [...before, ...since], NARROW)
      const log = await restoredAfter(before)
      const known = new Map(log.list('member').map(({ key, value }) => [key, value]))
      const members = lost.list('member').filter(({ value }) => isLive(value))
      // No member is left that could report what the others hold.
      if (!members.some(({ key }) => isLive(known.get(key)))) return
      const order = [...members.slice(first), ...members.slice(0, first)].map(({ key }) => key)
      for (let round = 0; round < 5; round += 1) {
        // A member that was evicted since the backup does not call. The broker stops waiting for it after some time.
        const nowMs = NOW_MS + (round < 3 ? 0 : 600_000)
        for (const cluster of order) await call(log, lost, cluster, nowMs)
      }
      // A member whose ranges changed since the backup may get a block that another member got since; see
      // docs/limits.md.
      const moved = members.some(({ key, value }) => {
        const old = known.get(key)
        return isLive(old) && old.facts.podCIDRs.join() !== value.facts.podCIDRs.join()
      })
      for (const { key, value } of members) {
        const now = log.get('member', key)
        if (!isLive(now)) throw new Error(`${key} has not come back`)
        if (!isLive(known.get(key))) returns += 1
        if (now.index !== value.index) throw new Error(`${key} has number ${now.index}, it had ${value.index}`)
        const cidr = value.facts.podCIDRs[0] ?? ''
        if (!moved && value.blocks[cidr] !== undefined && now.blocks[cidr] !== value.blocks[cidr])
          throw new Error(`${key} has block ${now.blocks[cidr] ?? ''}, it had ${value.blocks[cidr]}`)
      }
      for (const { key, value } of lost.list('serviceIp')) {
        if (value.exporters.length > 0 && log.get('serviceIp', key)?.ip !== value.ip)
          throw new Error(`${key} has moved`)
      }
      const { findings } = verifyStore(contentOfLog(log), { nowMs: NOW_MS })
      if (findings.length > 0) throw new Error(JSON.stringify(findings))
    }),
    { numRuns: 300 },
  )
  // Some twenty to sixty of them, by chance.
  t.ok(returns > 3, `${returns} members came back that the backup did not know`)
})

const step = (t: BrokerStep['t'], member: number, variant = 2): BrokerStep => ({ t, member, name: 0, variant })

t.test('who comes back gives others no other addresses than they had', async (t) => {
  const before = [step('join', 1, 0), step('join', 3)]
  const lost = openMemoryLog()
  // Milano had a block and left, so only paris knows that its own block is not the first one.
  await makeState(lost, [...before, step('join', 0, 0), step('leave', 0), step('join', 2, 0)], NARROW)
  const log = await restoredAfter(before)
  const had = lost.get('member', 'paris')?.blocks
  t.strictSame(had, { '10.42.0.0/16': '244.1.0.0/16' })
  t.ok(await call(log, lost, 'roma'), 'it holds oslo')
  t.notOk(await call(log, lost, 'oslo'), 'oslo would give paris a block')
  t.strictSame(log.get('member', 'paris')?.blocks, {})
  t.ok(await call(log, lost, 'paris'))
  t.ok(await call(log, lost, 'oslo'))
  t.strictSame(log.get('member', 'paris')?.blocks, had)
})

t.test('services whose names give the same address have those that they had', async (t) => {
  const before = [step('join', 0), step('join', 1)]
  // Six services share eight addresses. They are created in another order than the one in which they are published
  // again.
  const since = [5, 4, 3, 2, 1, 0].map((name): BrokerStep => ({ t: 'export', member: 0, name, variant: 0 }))
  const lost = openMemoryLog()
  await makeState(lost, [...before, ...since], NARROW)
  const log = await restoredAfter(before)
  t.ok(await call(log, lost, 'milano'))
  const addresses = (one: RecordLog) => one.list('serviceIp').map(({ key, value }) => `${key} ${value.ip}`)
  t.equal(addresses(log).length, 6)
  t.strictSame(addresses(log), addresses(lost))
})

t.test('nobody gets a number that may be in use, until members have said', async (t) => {
  const log = await restoredAfter([step('join', 0), step('join', 1)])
  const lost = openMemoryLog()
  await makeState(lost, [step('join', 0), step('join', 1), step('join', 2)], NARROW)
  const join = (nowMs: number) =>
    log.transact((tx) => {
      const certificate = { serial: '77', expiresAtMs: nowMs + 1000 }
      const more = { entitled: false, connected: false, membersLimit: 100, renewalGraceMs: 0, keyHash: '' }
      const decision = {
        cluster: 'new' as ClusterId,
        facts: facts(['10.77.0.0/16']),
        allowedCIDRs: [],
        certificate,
        handedOut: { ...certificate, authority: '', bundle: [] },
        ...more,
      }
      return joinMember(tx, decision, { ...contextOf('new'), nowMs }).spec.index
    })
  const refused = await messageOf(join(NOW_MS))
  t.match(
    refused,
    /restored from a backup of 2026-06-01T00:00:00Z; these members have not reported .*: milano, paris\. .* or after 2026-/,
  )
  await call(log, lost, 'milano')
  t.match(await messageOf(join(NOW_MS)), /have not reported .*: paris\. /)
  await call(log, lost, 'paris')
  t.equal(log.count('awaited'), 1, 'oslo is awaited')
  await log.transact((tx) => ['milano', 'paris'].map((id) => markComplete(tx, { cluster: id as ClusterId })))
  t.strictSame(completeness(log).complete, ['milano', 'paris'], 'addresses of its services are not gone')
  t.equal(await join(NOW_MS), 4, "its number is nobody else's")
  t.ok(await call(log, lost, 'oslo'))
  t.equal(log.get('member', 'oslo')?.index, 3)
  t.equal(log.count('awaited'), 0)
  await log.transact((tx) => markComplete(tx, { cluster: 'oslo' as ClusterId }))
  await log.transact((tx) => tx.put('member', 'new', { ...(tx.get('member', 'new') ?? wrong()), complete: true }))
  t.strictSame(completeness(log).complete, ['', 'milano', 'new', 'oslo', 'paris'])
  await log.transact((tx) => pruneRestore(tx, NOW_MS))
  t.equal(log.count('restore'), 1)
  await log.transact((tx) => pruneRestore(tx, NOW_MS + 30 * 3_600_000))
  t.equal(log.count('restore'), 0)

  const late = await restoredAfter([step('join', 0)])
  t.match(await messageOf(late.transact((tx) => checkSettled(tx, NOW_MS + 599_999))), /have not reported .*: milano\. /)
  await late.transact((tx) => checkSettled(tx, NOW_MS + 600_000))
})

t.test('a certificate of another time lets nobody in', async (t) => {
  const lost = openMemoryLog()
  await makeState(lost, [step('join', 0), step('join', 2)], NARROW)
  const log = await restoredAfter([step('join', 0)])
  await call(log, lost, 'milano')
  const back = (issuedAtMs: number) =>
    log.transact((tx) => returnMember(tx, peer('oslo', issuedAtMs), contextOf('oslo'))?.t ?? 'none')
  t.equal(await back(TAKEN_MS - 1000), 'none', 'of before the backup: who was put out before it')
  t.equal(await back(RESTORED_MS + 1000), 'none')
  t.equal(
    await log.transact((tx) => returnMember(tx, peer('roma'), contextOf('roma'))?.t ?? 'none'),
    'none',
    'nobody knows it',
  )
  t.equal(await back(TAKEN_MS), 'returned')
})

t.test('what one member says of another counts as one word', async (t) => {
  const log = await restoredAfter([step('join', 0), step('join', 1), step('join', 3)])
  const spec = (index: number, podCIDR: string) => ({
    ...{ id: 'oslo', index, podCIDRs: [podCIDR], serviceCIDRs: ['10.102.0.0/16'], globalCIDRs: [], labels: {} },
  })
  const say = (by: string, index: number, podCIDR = '10.52.0.0/16') =>
    log.transact((tx) => noteAwaited(tx, by, spec(index, podCIDR), NOW_MS))
  const back = () => log.transact((tx) => returnMember(tx, peer('oslo'), contextOf('oslo')))
  await say('roma', 9)
  await say('milano', 4)
  await say('paris', 4)
  for (let n = 0; n < 10; n += 1) await say('roma', 9)
  t.match(await back(), { t: 'returned', index: 4 }, 'most of them')
  t.notOk(await say('roma', 0), 'a number that cannot be')
  t.notOk(await say('roma', 5, 'everything'), 'an address that is none')

  await log.transact((tx) => tx.remove('member', 'oslo'))
  await say('roma', 9, '198.51.100.0/24')
  t.match(await back(), { t: 'refused' }, 'addresses that no member may have')
  await log.transact((tx) => tx.remove('awaited', 'oslo'))
  await say('roma', 9, '8.8.0.0/16')
  t.match(await back(), { t: 'refused', why: 'only one member reports that this member may use 8.8.0.0/16' })
  await say('paris', 9, '8.8.0.0/16')
  t.match(await back(), { t: 'returned', index: 9 })
})

t.test('labels of a member that returns are accepted facts, on the word of two', async (t) => {
  const tier = { tier: 'prod' }
  type Labels = Readonly<Record<string, string>>
  type Case = readonly [say: string, words: Readonly<Record<string, Labels>>, labels: Labels, approve?: true]
  const rows: readonly Case[] = [
    ['none', { roma: {} }, {}],
    ['one word', { roma: tier }, {}, true],
    ['two words that differ', { roma: tier, paris: {} }, {}, true],
    ['two words', { roma: { ...tier, a: 'b' }, paris: { a: 'b', ...tier } }, { ...tier, a: 'b' }, true],
  ]
  for (const [say, words, labels, approve] of rows) {
    const log = await restoredAfter([step('join', 0), step('join', 1), step('join', 3)])
    const spec = { id: 'oslo', index: 9, podCIDRs: ['10.52.0.0/16'], serviceCIDRs: [], globalCIDRs: [] }
    for (const [by, said] of Object.entries(words))
      await log.transact((tx) => noteAwaited(tx, by, { ...spec, labels: said }, NOW_MS))
    t.match(await log.transact((tx) => returnMember(tx, peer('oslo'), contextOf('oslo'))), { t: 'returned' }, say)
    const row = log.get('member', 'oslo')
    t.strictSame([row?.facts.labels, row?.tokenLabels, row?.approve], [labels, undefined, approve], say)
    const stated = await log.transact((tx) =>
      stateFacts(tx, { ...facts(['10.52.0.0/16'], { serviceCIDRs: [] }), labels: { tier: 'own' } }, contextOf('oslo')),
    )
    t.equal(stated.refused?.reason, approve && 'RangesAwaitApproval', `${say}: its own word waits`)
    const counts = approve === undefined ? { tier: 'own' } : labels
    t.strictSame(log.get('member', 'oslo')?.facts.labels, counts, say)
  }
})

t.test('what is held and known otherwise here changes nothing', async (t) => {
  const log = await restoredAfter([step('join', 0), step('join', 1), step('export', 0)])
  const before = JSON.stringify([log.list('member'), log.list('serviceIp'), log.list('address')])
  const record = (key: string, body: object) => storedRecord(key, 1, { createdAtMs: 1, body } as never)
  const cluster = (id: string, change: object) => {
    const spec = {
      id,
      index: 7,
      podCIDRs: ['10.50.0.0/16'],
      serviceCIDRs: [],
      globalCIDRs: ['244.3.0.0/16'],
      labels: {},
    }
    return record(`${id}/Cluster//${id}`, { kind: 'Cluster', spec: { ...spec, ...change } })
  }
  const taken = await log.transact((tx) =>
    takeHeld(
      tx,
      [
        record('/ClusterSetIP/shop/web0', { kind: 'ClusterSetIP', ips: ['245.0.0.6'] }),
        record('/ClusterSetIP/shop/other', { kind: 'ClusterSetIP', ips: [log.list('address')[0]?.key] }),
        record('/ClusterSetIP/shop/other', { kind: 'ClusterSetIP', ips: ['10.0.0.1'] }),
        record('/ClusterSetIP/shop/other', { kind: 'ClusterSetIP', ips: ['no'] }),
        record('/ClusterSetIP/Sh op/other', { kind: 'ClusterSetIP', ips: ['245.0.0.6'] }),
        cluster('paris', {}),
        cluster('milano', { globalCIDRs: ['9.9.0.0/16'] }),
        cluster('milano', { globalCIDRs: ['244.3.0.0/24'] }),
        cluster('milano', { podCIDRs: ['10.99.0.0/16'] }),
        record('paris/MemberStatus//paris', { kind: 'MemberStatus', notImported: [], leftOut: 0 }),
      ],
      contextOf('milano'),
    ),
  )
  t.strictSame(taken, { services: 0, members: [], left: 10 })
  t.equal(JSON.stringify([log.list('member'), log.list('serviceIp'), log.list('address')]), before)
})

function wrong(): never {
  throw new Error('it is no member')
}
