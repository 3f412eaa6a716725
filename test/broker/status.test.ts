/** What members report about themselves: whose it is, what of it is taken, and how it goes. */
import t from 'tap'
import { DEFAULT_MEMBER_QUOTA } from '../../model/quota/member-quota.ts'
import type { MemberStatus, NotImported } from '../../model/member-status.ts'
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
  t.same(again.replies, [{ t: 'inSync', takesStatus: true }])
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
