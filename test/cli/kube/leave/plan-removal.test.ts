/** The text that `leave` and `uninstall` print before they change anything, and the cases in which they refuse. */
import t from 'tap'
import { type RemovalFacts, type RemovalOptions, planRemoval } from '../../../../cli/cluster/leave/plan-removal.ts'

const NOTHING: RemovalFacts = {
  title: 'context "c1" of FILE',
  flags: '--context c1',
  site: false,
  member: undefined,
  parts: [],
  others: [],
  exports: [],
  imports: 0,
  nodes: [],
  hasPolicy: false,
  broker: undefined,
}
const MEMBER: RemovalFacts = {
  ...NOTHING,
  member: { id: 'c1', clusterset: 'default', leaving: false },
  parts: ['Namespace sealane-system', 'DaemonSet sealane-system/sealane-gateway'],
  others: ['c2', 'c3'],
  exports: ['demo/hello'],
  imports: 2,
  nodes: ['n1', 'n2'],
}
const broker = (...members: readonly (readonly [string, string])[]): RemovalFacts['broker'] => ({
  members: members.map(([id, state]) => ({ id, state })),
  claims: ['sealane-broker-data'],
})
const LEAVE: RemovalOptions = { verb: 'leave', crds: false, deleteData: false, evictMembers: false, force: false }
const UNINSTALL: RemovalOptions = { ...LEAVE, verb: 'uninstall' }
const CLAIM = 'PersistentVolumeClaim sealane-broker/sealane-broker-data'
const SERVICE = 'Service sealane-broker/sealane-broker'
const ETCD_CLAIMS = [0, 1, 2].map((i) => `data-sealane-etcd-${i}`)
const ETCD_DATA = `PersistentVolumeClaims ${ETCD_CLAIMS.map((name) => `sealane-broker/${name}`).join(', ')}`
const STAYS = `  kept: the broker's data and address (--delete-data), for the next sealane broker deploy: ${CLAIM}, Service sealane-broker/sealane-broker`
const HUB = '  the broker of context "c1" of FILE: no cluster can join, or receive changes of another'
const OFFER = 'first take a backup: sealane broker backup --context c1 --output broker.backup'
const SNAPSHOT = 'first take a snapshot of its etcd: etcdctl snapshot save (docs/reference.md)'
const FIRST = 'this removes from context "c1" of FILE:'
const OF_MEMBER = [
  '  c1 leaves clusterset default: cut off from c2, c3',
  '  other clusters can no longer call the services exported here: demo/hello',
  '  pods here can no longer call 2 services of other clusters',
  '  lanes, routes and rules in the kernel of n1, n2',
  '  installed objects: Namespace sealane-system, DaemonSet sealane-system/sealane-gateway; node labels, settings of cluster DNS',
]

const rows: readonly (readonly [string, RemovalFacts, RemovalOptions, readonly string[], readonly string[]])[] = [
  ['nothing', NOTHING, LEAVE, [], []],
  ['a member', MEMBER, LEAVE, [FIRST, ...OF_MEMBER, '  kept: the CRDs'], []],
  [
    'a leave under way',
    { ...NOTHING, member: { id: 'c1', clusterset: 'default', leaving: true } },
    LEAVE,
    [FIRST, '  c1 leaves clusterset default (under way): no other cluster is known here', '  kept: the CRDs'],
    [],
  ],
  ['a broker is not what leave takes out', { ...NOTHING, broker: broker(['c2', 'in contact']) }, LEAVE, [], []],
  [
    'a broker that only its own cluster is a member of',
    { ...NOTHING, member: { id: 'c1', clusterset: 'default', leaving: false }, broker: broker(['c1', 'in contact']) },
    UNINSTALL,
    [
      FIRST,
      '  c1 leaves clusterset default: no other cluster is known here',
      HUB,
      '  no other cluster is a member',
      STAYS,
      '  kept: the CRDs (--crds)',
      OFFER,
    ],
    [],
  ],
  [
    'members evicted, the data gone',
    { ...NOTHING, broker: broker(['c2', 'in contact'], ['c3', 'silent'], ['c4', 'left']) },
    { ...UNINSTALL, crds: true, deleteData: true, evictMembers: true },
    [
      FIRST,
      HUB,
      '  its members are evicted: c2 (in contact), c3 (silent)',
      `  the broker's data, permanently: ${CLAIM} (members, addresses and the certificate authority)`,
      '  the CRDs, except those of the Kubernetes project that are in use',
      OFFER,
    ],
    ['c2', 'c3'],
  ],
  [
    'the policy of join --prefer-local',
    { ...NOTHING, hasPolicy: true },
    LEAVE,
    [FIRST, '  the ClusterTrafficPolicy of join --prefer-local', '  kept: the CRDs'],
    [],
  ],
  [
    'many names',
    { ...NOTHING, nodes: ['a', 'b', 'c', 'd', 'e', 'f', 'g'] },
    LEAVE,
    [FIRST, '  lanes, routes and rules in the kernel of a, b, c, d, e and 2 more', '  kept: the CRDs'],
    [],
  ],
  [
    'replicas with an etcd beside them',
    { ...NOTHING, broker: { members: [], claims: ETCD_CLAIMS } },
    UNINSTALL,
    [
      FIRST,
      HUB,
      '  no other cluster is a member',
      `  kept: the broker's data and address (--delete-data), for the next sealane broker deploy: ${ETCD_DATA}, ${SERVICE}`,
      '  kept: the CRDs (--crds)',
      SNAPSHOT,
    ],
    [],
  ],
  [
    'its data too',
    { ...NOTHING, broker: { members: [], claims: ETCD_CLAIMS } },
    { ...UNINSTALL, deleteData: true },
    [
      FIRST,
      HUB,
      '  no other cluster is a member',
      `  the broker's data, permanently: ${ETCD_DATA} (members, addresses and the certificate authority)`,
      '  kept: the CRDs (--crds)',
      SNAPSHOT,
    ],
    [],
  ],
  [
    'replicas on an etcd of somebody else',
    { ...NOTHING, broker: { members: [], claims: [], etcd: 'etcd://h1:2379/sealane' } },
    { ...UNINSTALL, deleteData: true },
    [
      FIRST,
      HUB,
      '  no other cluster is a member',
      "  kept: the broker's data in etcd://h1:2379/sealane; give that etcd to the next sealane broker deploy too",
      '  kept: the CRDs (--crds)',
      SNAPSHOT,
    ],
    [],
  ],
  [
    'the data alone is left',
    { ...NOTHING, broker: { members: undefined, claims: ['sealane-broker-data'] } },
    UNINSTALL,
    [],
    [],
  ],
]

t.test('what is said', (t) => {
  for (const [name, facts, chosen, lines, evicts] of rows) {
    const plan = planRemoval(facts, chosen)
    t.strictSame(plan.lines, lines, name)
    t.strictSame(plan.evicts, evicts, `${name}: evicts`)
    t.equal(plan.refusal, undefined, `${name}: is not refused`)
  }
  t.end()
})

t.test('what is refused', (t) => {
  const present = { ...NOTHING, broker: broker(['c1', 'in contact'], ['c2', 'in contact'], ['c3', 'silent']) }
  t.strictSame(planRemoval(present, { ...UNINSTALL, crds: true, force: true }).refusal, {
    message: 'the broker of context "c1" of FILE has members in contact: c1, c2',
    hint:
      'run sealane leave in each of them first, or evict them: ' +
      'sealane uninstall --context c1 --crds --evict-members --force',
  })
  const hub = { ...present, member: { id: 'c1', clusterset: 'default', leaving: false } }
  t.match(planRemoval(hub, UNINSTALL).refusal?.message, /in contact: c2$/, 'its own cluster leaves by itself')
  t.equal(
    planRemoval({ ...hub, broker: broker(['c3', 'silent']) }, UNINSTALL).refusal,
    undefined,
    'silent ones do not count',
  )
  const dumb = { ...NOTHING, broker: { members: { unknown: 'it is not ready' }, claims: ['sealane-broker-data'] } }
  t.strictSame(planRemoval(dumb, UNINSTALL).refusal, {
    message: 'the members of the broker of context "c1" of FILE cannot be listed: it is not ready',
    hint: 'fix that, or remove the broker regardless of its members: sealane uninstall --context c1 --evict-members',
  })
  const anyway = planRemoval(dumb, { ...UNINSTALL, evictMembers: true })
  t.strictSame([anyway.refusal, anyway.evicts], [undefined, []])
  t.equal(anyway.lines.at(-1), '  kept: the CRDs (--crds)', 'no backup is offered of a broker that cannot be asked')
  t.end()
})

t.test('the command to type where nobody can be asked', (t) => {
  t.equal(planRemoval(MEMBER, LEAVE).command, 'sealane leave --context c1 --yes')
  const all = { ...UNINSTALL, crds: true, deleteData: true, evictMembers: true, force: true }
  t.equal(
    planRemoval(MEMBER, all).command,
    'sealane uninstall --context c1 --crds --delete-data --evict-members --force --yes',
  )
  t.end()
})
