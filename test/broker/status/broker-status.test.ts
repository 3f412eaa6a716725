/** The facts about a broker, and whether they mean healthy, degraded or down. */
import t from 'tap'
import { missingMembers, planStatus } from '../../../broker/admin/broker-status.ts'
import type { BrokerFacts, LogFacts, StoreMemberFacts } from '../../../protocol/admin/admin-api.ts'

const NOW = Date.parse('2026-06-01T00:00:00Z')
const LOG: LogFacts = {
  clusterset: 'demo',
  epoch: 'e1',
  revision: 7,
  records: 3,
  members: [
    { id: 'c1', state: 'in contact' },
    { id: 'c2', state: 'in contact' },
    { id: 'c3', state: 'in contact' },
  ],
  waiting: 0,
  authority: { phase: 'steady', until: '2036-01-01T00:00:00.000Z', waitsFor: 0 },
}
const SQLITE: BrokerFacts = {
  kind: 'sqlite',
  where: '/var/lib/sealane/broker/broker.db',
  log: LOG,
  replicas: [{ id: 'process 7' }],
  storeMembers: [],
}
const well = (name: string): StoreMemberFacts => ({ endpoint: `${name}:2379`, version: '3.5.21', hasLeader: true })
const ETCD: BrokerFacts = {
  ...SQLITE,
  kind: 'etcd',
  where: 'etcd://e1,e2,e3/sealane',
  replicas: [{ id: 'a' }, { id: 'b' }, { id: 'c' }],
  storeMembers: [well('e1'), well('e2'), well('e3')],
}
const away = (name: string): StoreMemberFacts => ({ endpoint: `${name}:2379`, why: 'no connection: ECONNREFUSED' })
const withLog = (more: Partial<LogFacts>): BrokerFacts => ({ ...SQLITE, log: { ...LOG, ...more } })
const authority = (more: Partial<LogFacts['authority']>) => withLog({ authority: { ...LOG.authority, ...more } })

const rows: readonly (readonly [string, BrokerFacts, string, readonly string[]])[] = [
  ['one broker', SQLITE, 'healthy', []],
  ['three replicas', ETCD, 'healthy', []],
  ['nobody serves', { ...SQLITE, replicas: [] }, 'down', ['no broker replica runs']],
  ['nobody knows who serves', { ...SQLITE, replicas: undefined }, 'healthy', []],
  [
    'a store that cannot be read',
    { ...SQLITE, log: { why: 'the disk is full' } },
    'down',
    ['the store cannot be read: the disk is full'],
  ],
  [
    'one replica',
    { ...ETCD, replicas: [{ id: 'a' }] },
    'degraded',
    ['only one broker replica runs: if it fails, no broker is left'],
  ],
  [
    'a replica that ignores the topology',
    {
      ...ETCD,
      log: { ...LOG, topology: 'groups' },
      replicas: [{ id: 'a' }, { id: 'b', host: 'old-0', lacksTopology: true }],
    },
    'degraded',
    ['TopologyNotSupported: these replicas of an earlier release ignore the topology: old-0'],
  ],
  [
    'such a replica while all members link',
    { ...ETCD, replicas: [{ id: 'a' }, { id: 'b', lacksTopology: true }] },
    'healthy',
    [],
  ],
  [
    'a member of etcd is away',
    { ...ETCD, storeMembers: [well('e1'), well('e2'), away('e3')] },
    'degraded',
    ['etcd at e3:2379: no connection: ECONNREFUSED'],
  ],
  [
    'two are away',
    {
      ...ETCD,
      storeMembers: [well('e1'), away('e2'), away('e3')],
      log: { why: 'the majority of the etcd members does not answer' },
    },
    'down',
    [
      'the store cannot be read: the majority of the etcd members does not answer',
      'etcd has no majority of its 3 members: 1 more must answer',
      'etcd at e2:2379: no connection: ECONNREFUSED',
      'etcd at e3:2379: no connection: ECONNREFUSED',
    ],
  ],
  [
    'no leader',
    { ...ETCD, storeMembers: [well('e1'), well('e2'), { ...well('e3'), hasLeader: false }] },
    'degraded',
    ['etcd at e3:2379 has no leader'],
  ],
  [
    'etcd is full',
    { ...ETCD, storeMembers: [{ ...well('e1'), alarms: ['memberID:1 alarm:NOSPACE'] }, well('e2'), well('e3')] },
    'degraded',
    ['etcd at e1:2379: memberID:1 alarm:NOSPACE'],
  ],
  [
    'one address for all members',
    { ...ETCD, storeMembers: [well('lb')] },
    'healthy',
    ['only one etcd endpoint is configured, etcd://e1,e2,e3/sealane'],
  ],
  [
    'the authority ends soon',
    authority({ until: '2026-06-20T00:00:00.000Z' }),
    'degraded',
    ['the certificate authority expires at 2026-06-20T00:00:00.000Z'],
  ],
  [
    'it has ended',
    authority({ until: '2026-05-20T00:00:00.000Z' }),
    'down',
    ['the certificate authority expires at 2026-05-20T00:00:00.000Z'],
  ],
  [
    'a store of a release that wrote down no authority',
    withLog({ authority: { phase: 'steady', waitsFor: 0 } }),
    'healthy',
    [],
  ],
  [
    'a rotation',
    authority({ phase: 'announced', waitsFor: 2 }),
    'healthy',
    ['a rotation of the authority is in progress (announced); number of members and tokens that it waits for: 2'],
  ],
  [
    'members are silent, and clusters wait',
    withLog({ members: [{ id: 'c1', state: 'silent' }], waiting: 2 }),
    'healthy',
    ['members are not in contact: c1', 'number of clusters that wait for approval: 2'],
  ],
]

t.test('what is found, and what it means', (t) => {
  for (const [name, facts, health, problems] of rows) {
    const status = planStatus(facts, NOW)
    t.equal(status.health, health, name)
    t.strictSame(
      status.problems.map(({ text }) => text),
      problems,
      `${name}: says why`,
    )
  }
  t.end()
})

t.test('a majority', (t) => {
  for (const [all, up, missing] of [
    [0, 0, 0],
    [1, 1, 0],
    [1, 0, 1],
    [3, 3, 0],
    [3, 2, 0],
    [3, 1, 1],
    [3, 0, 2],
    [5, 3, 0],
    [5, 1, 2],
  ] as const) {
    const members = Array.from({ length: all }, (_, i) => (i < up ? well(`e${i}`) : away(`e${i}`)))
    t.equal(missingMembers(members), missing, `${up} of ${all}`)
  }
  t.end()
})
