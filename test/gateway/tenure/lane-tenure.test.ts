/** Three nodes that share one lane number, on a fake clock and a fake API. */
import t from 'tap'
import type { Node } from '../../../model/objects.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { membership } from '../support/netns-sites.ts'
import { ADDRESSES, Cluster, NODES, served, taken } from './tenure-cluster.ts'

t.test('a drain hands the lane over, and nobody takes it back', async (t) => {
  const cluster = await served(t)
  cluster.node('a', { unschedulable: true })
  await cluster.pass(300)
  t.equal(cluster.states, 'b serving, c standing by, a handing over', 'offered, and taken at once')
  cluster.reports('b', { paris: 'up', tokyo: 'connecting' })
  await cluster.pass(10_000)
  t.equal(cluster.states, 'b serving, c standing by, a handing over', 'until the other is up everywhere')
  t.strictSame([...(cluster.tenures.get('a')?.handedOver() ?? [])], ['0/paris'])
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  await cluster.pass(1500)
  t.match(cluster.states, 'a handing over', 'and the routes have followed')
  await cluster.pass(1000)
  t.equal(cluster.states, 'b serving, c standing by, a standing by')
  cluster.reports('a', undefined)
  cluster.node('a', {})
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b serving, c standing by, a standing by', 'it does not come back by itself')
  t.strictSame(cluster.reported(), [
    taken('b', 'a hands it over: the node is cordoned'),
    'Normal LaneHandedOver a: b now has lane 0; this node carries the traffic until b does',
  ])
})

t.test('all nodes are cordoned: the lane stays, and that is told; one comes back', async (t) => {
  const cluster = await served(t)
  for (const name of NODES) cluster.node(name, { unschedulable: true })
  await cluster.pass(4000)
  t.strictSame(cluster.objects.events, [])
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  t.match(cluster.objects.events, [{ reason: 'LaneNotHandedOver', regarding: { kind: 'Node', name: 'a' } }])
  cluster.node('c', {})
  await cluster.pass(2500)
  t.equal(cluster.states, 'b standing by, c serving, a handing over')
})

t.test('a machine that dies is replaced after its Lease; it comes back and stands by', async (t) => {
  const cluster = await served(t)
  cluster.lose('a')
  await cluster.pass(10_000)
  t.equal(cluster.states, 'b standing by, c standing by')
  await cluster.pass(8000)
  t.equal(cluster.states, 'b serving, c standing by')
  t.strictSame(cluster.knocks.slice(0, 2), [ADDRESSES.a, ADDRESSES.a], 'knocked at twice: a packet may be lost')
  t.strictSame(cluster.reported(), [
    taken('b', 'a is no longer available'),
    'Warning LaneHolderLost a: this node has lost lane 0; b takes it over',
  ])
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  cluster.start('a')
  await cluster.pass(4000)
  t.equal(cluster.states, 'b serving, c standing by, a standing by')
})

t.test('a process that is away for long, on a machine that answers, keeps its lane', async (t) => {
  const cluster = await served(t)
  cluster.kill('a')
  await cluster.pass(300_000)
  t.equal(cluster.states, 'b standing by, c standing by', 'its kernel goes on, and nobody would take that out')
  t.ok(cluster.knocks.length > 20 && cluster.knocks.length < 130, `asked now and then: ${cluster.knocks.length}`)
  t.match(cluster.objects.events, [{ reason: 'LaneHolderSilent', regarding: { kind: 'Node', name: 'a' } }])
  t.equal(cluster.objects.events.length, 1)
  await cluster.pass(900_000)
  t.equal(cluster.objects.events.length, 1, 'told once')
  t.equal(cluster.logger.lines.filter(({ message }) => message === 'the lease of the lane has expired').length, 2)
  cluster.start('a')
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.leaseTransitions, 0)

  cluster.kill('a')
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b standing by, c standing by')
  cluster.lose('a')
  await cluster.pass(9000)
  t.equal(cluster.states, 'b serving, c standing by', 'later the machine goes as well')
})

t.test('a process that is away, and a lane that is lost with it, or given up', async (t) => {
  const rows: [say: string, happens: (cluster: Cluster) => void][] = [
    ['user space ends with it', (cluster) => cluster.reports('a', { paris: 'up' }, 'wireguard-userspace')],
    ['it was up nowhere', (cluster) => cluster.reports('a', { paris: 'down', tokyo: 'connecting' })],
    ['its Node does not exist', (cluster) => cluster.objects.drop('Node', 'a')],
    ['its label is gone', (cluster) => cluster.label('a', undefined)],
    ['it is cordoned', (cluster) => cluster.node('a', { unschedulable: true })],
    [
      'nobody knows where to knock',
      (cluster) => {
        const { status: _none, ...rest } = cluster.objects.get('Node', 'a') as Node
        cluster.objects.put(rest)
      },
    ],
  ]
  for (const [say, happens] of rows) {
    const cluster = await served(t)
    cluster.kill('a')
    await cluster.pass(30_000)
    t.equal(cluster.states, 'b standing by, c standing by', say)
    happens(cluster)
    await cluster.pass(9000)
    t.equal(cluster.states, 'b serving, c standing by', say)
    t.equal(cluster.leases.get('sealane-lane-0')?.spec?.leaseTransitions, 1, say)
  }
})

t.test('a network that comes back while the lane is being taken', async (t) => {
  const cluster = await served(t)
  cluster.kill('b')
  cluster.lose('a')
  for (let i = 0; i < 200 && cluster.knocks.length < 2; i += 1) await cluster.pass(100)
  t.equal(cluster.knocks.length, 2)
  cluster.dead.clear()
  await cluster.pass(60_000)
  t.equal(cluster.states, 'c standing by', 'the machine answers again before it was given up')
})

t.test('a Lease that somebody removes each time is not made anew at once', async (t) => {
  const cluster = await served(t)
  let made = 0
  cluster.leases.collects = true
  const write = cluster.leases.write.bind(cluster.leases)
  cluster.leases.write = (lease) => {
    made += 1
    return write(lease)
  }
  await cluster.pass(30_000)
  t.ok(made >= 5 && made <= 12, `${made} times in 30 s`)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  cluster.leases.collects = false
  await cluster.pass(10_000)
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.holderIdentity, 'a')
})

t.test('without an API nothing moves, for minutes; then a dead one is replaced', async (t) => {
  const cluster = await served(t)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  await cluster.pass(120_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  cluster.leases.failure = undefined
  await cluster.pass(20_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving', 'and nobody thinks that it was dead')
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.leaseTransitions, 0)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  cluster.lose('a')
  await cluster.pass(60_000)
  cluster.leases.failure = undefined
  await cluster.pass(14_000)
  t.equal(cluster.states, 'b standing by, c standing by')
  await cluster.pass(5000)
  t.equal(cluster.states, 'b serving, c standing by')
})

t.test('a process that starts while nobody answers', async (t) => {
  const cluster = new Cluster(t)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  cluster.start('a', 'b')
  cluster.reports('b', { paris: 'up' })
  await cluster.pass(3000)
  t.equal(cluster.states, 'a unknown, b serving', 'who has told that it serves goes on')
  cluster.leases.failure = undefined
  await cluster.pass(3000)
  t.equal(cluster.states, 'a standing by, b serving', 'and keeps the lane')

  const older = new Cluster(t)
  older.leases.failure = new ClusterApiError('Forbidden', 'leases is forbidden')
  older.start('a', 'b')
  await older.pass(3000)
  t.equal(older.states, 'a serving, b serving', 'without the right to Leases the label alone counts')
})

t.test('a release without Leases: who was called last goes on', async (t) => {
  const cluster = new Cluster(t)
  cluster.reports('a', { paris: 'down' })
  await cluster.pass(2000)
  cluster.reports('c', { paris: 'up' })
  cluster.start('a', 'b', 'c')
  await cluster.pass(300)
  t.match(cluster.states, /c serving/)
  await cluster.pass(4000)
  t.equal(cluster.states, 'a standing by, b standing by, c serving')
})

t.test('before a cluster joins, and after it has left, no Lease is made', async (t) => {
  const cluster = new Cluster(t)
  cluster.objects.drop('Membership', 'self')
  cluster.start('a', 'b')
  await cluster.pass(10_000)
  t.equal(cluster.states, 'a unknown, b unknown')
  t.match(cluster.tenures.get('a')?.state, { why: 'this cluster has not joined yet' })
  t.equal(cluster.leases.get('sealane-lane-0'), undefined)
  cluster.objects.put(membership('milano', 'joined'))
  await cluster.pass(1000)
  t.equal(cluster.states, 'a serving, b standing by')
  const before = cluster.leases.get('sealane-lane-0')?.metadata
  t.equal(before?.ownerReferences?.[0]?.kind, 'Membership')
  for (const phase of ['leaving', 'gone'] as const) {
    if (phase === 'gone') cluster.objects.drop('Membership', 'self')
    else cluster.objects.put(membership('milano', 'leaving'))
    await cluster.pass(60_000)
    t.equal(cluster.leases.get('sealane-lane-0')?.metadata.resourceVersion, before?.resourceVersion, phase)
    t.equal(cluster.states, 'a serving, b standing by', 'and it sees to its own departure')
  }
})
