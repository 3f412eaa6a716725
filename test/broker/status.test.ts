/**
 * The reports of members about themselves: who may send them, which parts the broker accepts, and how it delivers them.
 */
import t from 'tap'
import { DEFAULT_MEMBER_QUOTA } from '../../model/member-quota.ts'
import type { MemberReport, MemberStatus, NotImported } from '../../model/member-status.ts'
import { memberSummaries } from '../../broker/members/member-list.ts'
import { Publisher, Watcher, anExport, declaration, digest, join_, startBroker } from './support/harness.ts'

const SHOP: NotImported = { reason: 'NamespaceMissing', namespace: 'shop', name: '', cluster: '' }
const STATUS: MemberStatus = { notImported: [SHOP], leftOut: 0 }

t.test('a status is handed to every member, under the id of the certificate', async (t) => {
  const harness = await startBroker(t)
  const [milano, paris, tokyo] = [
    await join_(harness, 'milano'),
    await join_(harness, 'paris'),
    await join_(harness, 'tokyo'),
  ]
  const watchers = [milano, paris, tokyo].map(({ peer }) => new Watcher(harness, peer))
  const stream = new Publisher(harness, paris.peer)
  await stream.publish([anExport('web')])
  await stream.status(STATUS)
  await stream.acknowledged()
  t.same(stream.refusals(), [])
  for (const watcher of watchers) await watcher.line(/put paris\/MemberStatus\/\/paris/)
  t.match(harness.log.get('record', 'paris/MemberStatus//paris')?.body, { kind: 'MemberStatus', ...STATUS })

  const revision = harness.log.revision
  await stream.status(STATUS)
  await stream.acknowledged()
  t.equal(harness.log.revision, revision, 'the same again writes nothing')

  await stream.status({ notImported: [], leftOut: 0 })
  await stream.acknowledged()
  t.match(harness.log.get('record', 'paris/MemberStatus//paris')?.body, { notImported: [] })

  await harness.broker.leave(paris.peer)
  t.equal(harness.log.get('record', 'paris/MemberStatus//paris'), undefined, 'it goes with its member')
  for (const watcher of watchers) await watcher.stop()
})

t.test('it is no part of the set that the member declares', async (t) => {
  const harness = await startBroker(t, {
    config: {
      limits: { membersPerClusterset: 9, quota: { ...DEFAULT_MEMBER_QUOTA, bytes: 2000, records: 2 } },
    },
  })
  const { peer } = await join_(harness, 'milano')
  const records = [anExport('web', { type: 'Headless' }), anExport('db', { type: 'Headless' })]
  const first = new Publisher(harness, peer)
  await first.publish(records.slice(0, 1))
  await first.status(STATUS)
  await first.acknowledged()
  await first.put(records[1]!)
  await first.acknowledged()
  t.same(first.refusals(), [], 'nor of the quota')
  first.end()

  const again = new Publisher(harness, peer)
  await again.send(declaration(records))
  t.same(again.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
  again.end()
  const other = new Publisher(harness, peer)
  await other.send(declaration([]))
  await other.send(digest([]))
  t.ok(harness.log.get('record', 'milano/MemberStatus//milano'), 'a smaller set does not take it away')
  other.end()

  const older = new Publisher(harness, peer)
  await older.send(declaration([], false))
  t.equal(older.replies.length, 1)
  t.equal(
    harness.log.get('record', 'milano/MemberStatus//milano'),
    undefined,
    'an agent that was put back to an earlier release tells none: what the later one told goes',
  )
})

t.test('what is refused', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  await stream.status(STATUS)
  await stream.acknowledged()
  const kept = harness.log.get('record', 'milano/MemberStatus//milano')
  const one = (change: Partial<Record<keyof NotImported, string>>): MemberStatus => ({
    notImported: [SHOP, { ...SHOP, ...change } as NotImported],
    leftOut: 0,
  })
  const many = Array.from({ length: 10_000 }, (_, i): NotImported => ({ ...SHOP, namespace: `n${i}` }))
  const rows: [name: string, status: MemberStatus, want: RegExp][] = [
    ['10,000 findings', { notImported: many, leftOut: 0 }, /^status\.notImported: /],
    ['a namespace that is a path', one({ namespace: '../kube-system' }), /^status\.notImported\[1\]\.namespace: /],
    ['a namespace with a line break', one({ namespace: 'a\nb' }), /^status\.notImported\[1\]\.namespace: /],
    ['a namespace of 300 characters', one({ namespace: 'n'.repeat(300) }), /^status\.notImported\[1\]\.namespace: /],
    ['a name that is none', one({ name: '<b>' }), /^status\.notImported\[1\]\.name: /],
    ['a cluster that is none', one({ cluster: 'a b' }), /^status\.notImported\[1\]\.cluster: /],
    ['a name without a namespace', one({ namespace: '', name: 'web' }), /^status\.notImported\[1\]\.namespace: /],
    ['everything there is', one({ namespace: '' }), /^status\.notImported\[1\]\.namespace: /],
    [
      'a reason that nobody knows',
      one({ reason: 'Because' }),
      /^status\.notImported\[1\]\.reason: "Because": expected/,
    ],
    ['less than nothing', { notImported: [], leftOut: -1 }, /^status\.leftOut: /],
    ...badReports(),
    ...[-1, 1.5, 2 ** 31, 2 ** 32 - 1, NaN, '12' as unknown as number].map((count): (typeof rows)[number] => [
      `${count} open connections`,
      { notImported: [], leftOut: 0, openConnections: { count, atLeast: false } },
      /^status\.openConnections: count .*: expected a whole number from 0 to 2147483647/,
    ]),
  ]
  for (const [name, status, want] of rows) {
    const before = stream.refusals().length
    await stream.status(status)
    await stream.acknowledged()
    t.match(stream.refusals().slice(before), [want], name)
    t.same(harness.log.get('record', 'milano/MemberStatus//milano'), kept, `${name}: what was told before stays`)
  }
})

t.test('nobody publishes one as a record of its own', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  await join_(harness, 'paris')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  for (const name of ['milano', 'paris']) {
    const body = { kind: 'MemberStatus', ...STATUS }
    await stream.put({ namespace: '', name, body } as never)
    await stream.acknowledged()
    t.equal(harness.log.get('record', `milano/MemberStatus//${name}`), undefined, name)
  }
  t.match(stream.refusals(), [/the broker's/, /the broker's/])
})

const REPORT: MemberReport = {
  versions: ['0.1.0', '0.2.0-rc.1'],
  lanes: { up: 1, of: 2 },
  exports: { count: 3, failed: 1 },
  problems: [{ code: 'MoonTooFull', severity: 'degraded', count: 2 }],
}

function badReports(): [name: string, status: MemberStatus, want: RegExp][] {
  const problem = (code: string, count = 1): Partial<MemberReport> => ({
    problems: [
      { code: 'MoonTooFull', severity: 'down', count: 1 },
      { code, severity: 'down', count },
    ],
  })
  const rows: [name: string, change: Partial<MemberReport>, want: RegExp][] = [
    ['nine versions', { versions: Array.from({ length: 9 }, (_, i) => `${i}`) }, /versions: /],
    ['a version with an escape', { versions: ['0.1.0', '\u001b[2J'] }, /versions\[1\]: /],
    ['a version without an end', { versions: ['0'.repeat(64)] }, /versions\[0\]: /],
    ['33 problems', { problems: Array.from({ length: 33 }, (_, i) => problem(`C${i}`).problems![1]!) }, /problems: /],
    ['a code with a line break', problem('A\nB'), /problems\[1\]\.code: /],
    ['a code that is a sentence', problem('Call me now'), /problems\[1\]\.code: /],
    ['no code', problem(''), /problems\[1\]\.code: /],
    ['a code without an end', problem('A'.repeat(64)), /problems\[1\]\.code: /],
    ['a code twice', problem('MoonTooFull'), /problems\[1\]\.code: comes twice/],
    ['a problem of nobody', problem('A', 0), /problems\[1\]\.count: 0: expected/],
    ['a count that is none', problem('A', NaN), /problems\[1\]\.count: NaN: expected/],
    ['more lanes up than there are', { lanes: { up: 3, of: 2 } }, /lanes\.up: 3: expected a whole number from 0 to 2/],
    ['lanes beyond counting', { lanes: { up: 0, of: 2 ** 31 } }, /lanes\.of: /],
    ['more exports failed than there are', { exports: { count: 0, failed: 1 } }, /exports\.failed: 1: expected/],
    ['half an export', { exports: { count: 0.5, failed: 0 } }, /exports\.count: 0\.5: expected/],
  ]
  return rows.map(([name, change, want]) => [
    name,
    { notImported: [], leftOut: 0, report: { ...REPORT, ...change } },
    new RegExp(`^status\\.report\\.${want.source}`),
  ])
}

t.test('how a member does is seen at the broker, also by a code of a later release', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  await join_(harness, 'paris')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  const reported = () => memberSummaries(harness.log, Date.now()).map(({ id, reported }) => [id, reported])
  t.same(reported(), [
    ['milano', undefined],
    ['paris', undefined],
  ])
  await stream.status({ ...STATUS, report: REPORT })
  await stream.acknowledged()
  t.same(stream.refusals(), [])
  t.same(reported(), [
    ['milano', REPORT],
    ['paris', undefined],
  ])
})
