/** The progress of a join, read from objects. */
import t from 'tap'
import { joinedOthers, laneStates, lanesProgress } from '../../../cli/cluster/watch-join.ts'
import { RolloutRoom, restoreRecorded } from '../../../cli/installation/rollout-room.ts'
import { type HeldRollout, isRolledOut, rolloutOf, rolloutProgress } from '../../../cli/installation/rollout.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import type { Cluster, ConnectionCause, Gateway } from '../../../model/objects.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'

const { signal } = new AbortController()
const NAMESPACE = 'sealane-system'

function cluster(id: string): Cluster {
  return clusterObject({ id }, { metadata: { labels: { 'app.kubernetes.io/managed-by': 'sealane' } } })
}

function gateway(
  node: string,
  ...connections: readonly (readonly [string, 'up' | 'down' | 'connecting', string, ConnectionCause?])[]
): Gateway {
  const rows = connections.map(([to, state, message, cause]) => ({
    cluster: to,
    state,
    message,
    ...(cause && { cause }),
  }))
  const object = {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: node },
    spec: {},
    status: { lanes: [{ lane: 0 }], connections: rows },
  }
  return object as unknown as Gateway
}

t.test('lanes: one that is up is enough, and nobody is missing where nobody else is', (t) => {
  t.strictSame(joinedOthers(['c2', 'c1', 'c3'].map(cluster), 'c2'), ['c1', 'c3'])
  const gateways = [
    gateway('a', ['c1', 'down', 'no answer'], ['c3', 'connecting', 'no handshake']),
    gateway('b', ['c1', 'up', '']),
  ]
  const text = laneStates(['c1', 'c3', 'c4'], gateways).map(
    ({ cluster: id, state, message }) => `${id} ${state} ${message}`,
  )
  t.strictSame(text, ['c1 up ', 'c3 connecting no handshake', 'c4 connecting not reported yet'])
  const conditions = [{ type: 'Ready', status: 'Unknown', reason: 'GatewayStatusStale' }]
  const silent = gateway('b', ['c1', 'up', ''])
  const states = laneStates(['c1'], [{ ...silent, status: { ...silent.status, conditions } } as unknown as Gateway])
  t.match(states, [{ state: 'connecting', message: 'the gateway on node b does not report' }])
  t.end()
})

const MEMBERSHIP = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Membership',
  metadata: { name: 'self' },
  spec: { clusterId: 'c2' },
}
/** Returns this cluster's own Cluster object with the members that the broker reported. */
function own(known: string): Cluster {
  const { metadata, ...rest } = cluster('c2')
  return { ...rest, metadata: { ...metadata, annotations: { 'sealane.io/known-members': known } } }
}
/** The objects that exist once the agent has the members of the clusterset. */
const SELF = [MEMBERSHIP, own('c1,c2,c3')]
const ON_N1 = { gateways: [{ node: 'n1' }], activeGateways: 1 }

t.test('lanes of a cluster', async (t) => {
  const look = (...gateways: Gateway[]) => {
    const objects = [...SELF, cluster('c1'), cluster('c3'), ...gateways]
    return lanesProgress(new MemoryAdmin(objects as never[]), ON_N1, signal)
  }
  const so = { alone: false, leftOut: [] }
  t.strictSame(await look(), { ...so, reached: [], missing: { what: 'from the gateway on n1' } })
  const half = await look(gateway('n1', ['c1', 'up', ''], ['c3', 'down', 'no answer to probes']))
  t.strictSame(half, { ...so, reached: ['c1'], missing: { what: 'to c3', why: 'c3 down: no answer to probes' } })
  const none = await look(
    gateway('n1', ['c1', 'connecting', 'no handshake yet'], ['c3', 'down', 'no answer to probes']),
  )
  t.strictSame(
    none.missing,
    { what: 'to c1, c3', why: 'c1 connecting: no handshake yet; c3 down: no answer to probes' },
    'of each why',
  )
  const hopeless = ['connecting', 'no handshake yet', 'NeitherCallable'] as const
  const both = await look(gateway('n1', ['c1', 'up', ''], ['c3', ...hopeless]))
  t.match(both.missing?.mend, /^Open the UDP port of one/, 'both ends are behind NAT: somebody has to do something')
  const mixed = await look(gateway('n1', ['c1', 'connecting', 'no handshake yet'], ['c3', ...hopeless]))
  t.equal(mixed.missing?.mend, undefined, 'while another may still come, it is waited for')
  t.strictSame(await look(gateway('n1', ['c1', 'up', ''], ['c3', 'up', ''])), {
    ...so,
    reached: ['c1', 'c3'],
    missing: undefined,
  })
  const first = lanesProgress(new MemoryAdmin([MEMBERSHIP, own('c2'), gateway('n1')] as never[]), ON_N1, signal)
  t.strictSame(await first, { alone: true, leftOut: [], reached: [], missing: undefined })
})

t.test(
  'members that the broker told of, and that are not here yet, are waited for: it is not the first one',
  async (t) => {
    const look = (known: string, ...ids: readonly string[]) => {
      const objects = [MEMBERSHIP, own(known), ...ids.map(cluster), gateway('n1', ['c1', 'up', ''])]
      return lanesProgress(new MemoryAdmin(objects as never[]), ON_N1, signal)
    }
    const waits = { reached: [], alone: false, leftOut: [] }
    t.strictSame(await look('c1,c2,c3,c4'), { ...waits, missing: { what: 'from c1, c3, c4' } })
    t.strictSame(await look('c1,c2,c3', 'c1'), { ...waits, missing: { what: 'from c3' } })
    const leftOut = ['cluster c3 is not used here: AddressTaken']
    t.strictSame(await look('c1,c2,c3:AddressTaken', 'c1'), {
      reached: ['c1'],
      alone: false,
      missing: undefined,
      leftOut,
    })
    t.strictSame(await look('c2,c3:AddressTaken'), { reached: [], alone: false, missing: undefined, leftOut })
  },
)

t.test('before the agent has heard of the clusterset nothing is said of who is in it', async (t) => {
  const { name } = cluster('c2').metadata
  const joined = { ...cluster('c2'), metadata: { name } }
  for (const objects of [[MEMBERSHIP], [MEMBERSHIP, joined], [MEMBERSHIP, joined, cluster('c1')], [own('c2')]]) {
    const admin = new MemoryAdmin([...objects, gateway('n1', ['c1', 'up', ''])] as never[])
    t.strictSame(await lanesProgress(admin, ON_N1, signal), {
      reached: [],
      alone: false,
      missing: { what: 'the members of the clusterset from the broker' },
      leftOut: [],
    })
  }
})

const SINCE = '2026-01-01T00:00:00Z'

t.test('lanes to clusters that the broker does not hear are not waited for', async (t) => {
  const heard = (id: string, status: 'True' | 'False', message: string): Cluster => ({
    ...cluster(id),
    status: { conditions: [{ type: 'InContact', status, reason: 'Silent', message, lastTransitionTime: SINCE }] },
  })
  const silent = (id: string) =>
    heard(id, 'False', 'the cluster has had no connection to the broker since 2026-01-01T00:00:00Z')
  const look = (clusters: readonly Cluster[], ...connections: Parameters<typeof gateway>[1][]) => {
    const known = ['c2', ...clusters.map(({ spec }) => spec.id)].sort().join()
    const objects = [MEMBERSHIP, own(known), ...clusters, gateway('n1', ...connections)]
    return lanesProgress(new MemoryAdmin(objects as never[]), ON_N1, signal)
  }
  const DEAD =
    'cluster c3 is not in contact: the cluster has had no connection to the broker since 2026-01-01T00:00:00Z'
  const both = [heard('c1', 'True', ''), silent('c3')]
  t.strictSame(await look(both, ['c1', 'up', ''], ['c3', 'down', 'no answer']), {
    reached: ['c1'],
    alone: false,
    missing: undefined,
    leftOut: [DEAD],
  })
  t.strictSame(
    await look(both, ['c1', 'connecting', 'no handshake'], ['c3', 'down', 'no answer']),
    {
      reached: [],
      alone: false,
      missing: { what: 'to c1', why: 'c1 connecting: no handshake' },
      leftOut: [DEAD],
    },
    'one that is heard and not reached is an error in the end',
  )
  t.strictSame(
    await look([silent('c3')], ['c3', 'up', '']),
    { reached: ['c3'], alone: false, missing: undefined, leftOut: [] },
    'a lane that is up counts, whoever hears it',
  )
  t.strictSame(await look([silent('c3')]), { reached: [], alone: false, missing: undefined, leftOut: [DEAD] })
})

const node = (name: string, ready: 'True' | 'False' | 'Unknown') => ({
  ...nodeObject(name),
  status: { conditions: [{ type: 'Ready', status: ready }] },
})

t.test('a gateway on a node that is not ready is not waited for, unless it is the only one', async (t) => {
  const objects: object[] = [MEMBERSHIP, own('c2'), node('n1', 'True'), node('n2', 'Unknown'), gateway('n1')]
  const look = (...nodes: string[]) =>
    lanesProgress(
      new MemoryAdmin(objects as never[]),
      { gateways: nodes.map((name) => ({ node: name })), activeGateways: 2 },
      signal,
    )
  t.strictSame(await look('n1', 'n2'), {
    reached: [],
    alone: true,
    missing: undefined,
    leftOut: ['node n2 is not ready'],
  })
  const only = { reached: [], missing: { what: 'from the gateway on n2' }, leftOut: [] }
  t.strictSame(await look('n2'), { ...only, alone: true })
  objects.splice(1, 1, own('c1,c2'))
  objects.push(gateway('n2', ['c1', 'up', '']), cluster('c1'))
  t.strictSame(await look('n2'), { ...only, alone: false }, 'what it said last is no news')
  t.strictSame(await look('n1', 'n2'), {
    reached: [],
    alone: false,
    missing: { what: 'to c1', why: 'c1 connecting: not reported yet' },
    leftOut: ['node n2 is not ready'],
  })
})

t.test('nodes that stand by for a gateway are not waited for', async (t) => {
  const labelled = (name: string, lane: string) => {
    const { metadata, ...rest } = node(name, 'True')
    return { ...rest, metadata: { ...metadata, labels: { 'sealane.io/gateway': lane } } }
  }
  const look = async (lanes: readonly [string, string], activeGateways: number, ...serving: Gateway[]) => {
    const objects: object[] = [MEMBERSHIP, own('c2'), labelled('n1', lanes[0]), labelled('n2', lanes[1]), ...serving]
    const gateways = ['n1', 'n2'].map((name) => ({ node: name }))
    return (await lanesProgress(new MemoryAdmin(objects as never[]), { gateways, activeGateways }, signal)).missing
  }
  const n1 = gateway('n1')
  const n2 = { ...gateway('n2'), status: { ...gateway('n2').status, lanes: [{ lane: 1 }] } } as unknown as Gateway
  t.equal(await look(['0', '0'], 2, n1), undefined)
  t.strictSame(await look(['0', '1'], 2, n1), { what: 'from the gateway on n2' }, 'a lane of its own is')
  t.strictSame(await look(['true', 'true'], 2, n1), { what: 'from the gateway on n2' }, 'two are to be active')
  t.strictSame([await look(['true', 'true'], 2, n1, n2), await look(['true', 'true'], 1, n1)], [undefined, undefined])
})

interface DaemonPod {
  readonly on: string
  readonly ready?: boolean
  readonly hash?: string
  /** Whether the pod is unscheduled, so that only its affinity names the node. */
  readonly pending?: boolean
}

const daemonSet = (max: number | string, labels: Readonly<Record<string, string>> = {}) => ({
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'sealane-gateway', namespace: NAMESPACE, labels },
  spec: { updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: max } } },
})
const daemonSetOf = async (admin: MemoryAdmin) => {
  const [object] = await admin.list('apps/v1', 'DaemonSet', {})
  return object as unknown as ReturnType<typeof daemonSet>
}
const maxOf = async (admin: MemoryAdmin) => (await daemonSetOf(admin)).spec.updateStrategy.rollingUpdate.maxUnavailable

t.test('nodes that are down do not hold the others: maxUnavailable grows for the roll-out alone', async (t) => {
  const rows = [
    { object: daemonSet(1), wanted: 3, away: 1, max: 2 },
    { object: daemonSet(1), wanted: 3, away: 2, max: 3 },
    { object: daemonSet('10%'), wanted: 21, away: 2, max: 5 },
    { object: daemonSet('10%', { 'argocd.argoproj.io/instance': 'x' }), wanted: 21, away: 2, max: '10%' },
  ]
  for (const { object, max, ...held } of rows) {
    const admin = new MemoryAdmin([object])
    const room = new RolloutRoom(admin, () => t.fail('nothing to say'))
    await room.make([{ ...held, object }], signal)
    t.equal(await maxOf(admin), max)
    const [now] = await admin.list('apps/v1', 'DaemonSet', {})
    await room.make([{ ...held, object: now ?? object }], signal)
    t.equal(await maxOf(admin), max, 'it is not raised twice')
    t.strictSame(await room.restore(signal), [])
    t.equal(await maxOf(admin), object.spec.updateStrategy.rollingUpdate.maxUnavailable)
  }
})

t.test('maxUnavailable falls again once no pod is away, also before the roll-out ends', async (t) => {
  const admin = new MemoryAdmin([daemonSet(1)])
  const room = new RolloutRoom(admin, () => t.fail('nothing to say'))
  const look = async (...held: readonly Omit<HeldRollout, 'object'>[]) => {
    const object = await daemonSetOf(admin)
    await room.make(
      held.map((one) => ({ ...one, object })),
      signal,
    )
    return maxOf(admin)
  }
  t.equal(await look({ wanted: 3, away: 2 }), 3)
  t.equal(await look({ wanted: undefined, away: 0 }), 3, 'while that is not known it stays')
  t.equal(await look({ wanted: 3, away: 1 }), 2)
  t.equal(await look(), 1)
  t.equal(await look({ wanted: 3, away: 1 }), 2, 'it may grow again')
  t.equal(admin.done.length, 4)
})

t.test('a join that is killed leaves a record of the value, and the next join restores it', async (t) => {
  const recordOf = async (admin: MemoryAdmin) =>
    (await admin.list('apps/v1', 'DaemonSet', {}))[0]?.metadata.annotations?.['sealane.io/max-unavailable']
  const quiet = () => t.fail('nothing to say')
  for (const value of [1, '10%']) {
    const admin = new MemoryAdmin([daemonSet(value)])
    const look = async () => [{ object: await daemonSetOf(admin), wanted: 21, away: 2 }]
    await new RolloutRoom(admin, quiet).make(await look(), signal)
    t.strictSame([await maxOf(admin), await recordOf(admin)], [value === 1 ? 3 : 5, String(value)], 'killed here')

    const next = new RolloutRoom(admin, quiet)
    await next.make(await look(), signal)
    t.equal(await maxOf(admin), value === 1 ? 3 : 5, 'not raised above what was raised')
    t.strictSame(await next.restore(signal), [])
    t.strictSame([await maxOf(admin), await recordOf(admin)], [value, undefined])

    await new RolloutRoom(admin, quiet).make(await look(), signal)
    t.strictSame(await restoreRecorded(admin, NAMESPACE, signal), ['DaemonSet sealane-system/sealane-gateway'])
    t.strictSame([await maxOf(admin), await recordOf(admin)], [value, undefined], 'nothing is held now')
    t.strictSame(await restoreRecorded(admin, NAMESPACE, signal), [], 'once')
  }
  const forged = {
    ...daemonSet(1),
    metadata: { ...daemonSet(1).metadata, annotations: { 'sealane.io/max-unavailable': '0' } },
  }
  t.strictSame(await restoreRecorded(new MemoryAdmin([forged]), NAMESPACE, signal), [], 'no value of a DaemonSet')
})

t.test('a value that cannot be changed is reported once, and does not end the join', async (t) => {
  const said: string[] = []
  const say = (text: string) => void said.push(text)
  const admin = new MemoryAdmin([daemonSet(1)])
  const held = async () => [{ object: await daemonSetOf(admin), wanted: 3, away: 1 }]
  const note = (why: string) =>
    'note: maxUnavailable of DaemonSet sealane-system/sealane-gateway cannot be changed for this roll-out, ' +
    `which may take longer: ${why}\n`
  const failing = (code: 'Forbidden' | 'Unavailable') => ({
    merge: () => Promise.reject(new ClusterApiError(code, 'no\nway')),
  })
  const refused = new RolloutRoom(failing('Forbidden'), say)
  for (let i = 0; i < 3; i += 1) await refused.make(await held(), signal)
  t.strictSame(said.splice(0), [note('no way')])
  t.strictSame(await refused.restore(signal), [], 'nothing was changed')
  const down = new RolloutRoom(failing('Unavailable'), say)
  await t.rejects(down.make(await held(), signal), { code: 'Unavailable' })
  const reverted = new RolloutRoom(admin, say)
  for (let i = 0; i < 5; i += 1) {
    await reverted.make(await held(), signal)
    admin.put(daemonSet(1))
  }
  t.strictSame([said, admin.done.length], [[note('another client reverts it')], 2])
})

t.test('a DaemonSet is waited for on nodes that are ready', async (t) => {
  const owner = { kind: 'DaemonSet', name: 'sealane-gateway' }
  const revision = (name: string, number: number, hash: string) => ({
    apiVersion: 'apps/v1',
    kind: 'ControllerRevision',
    metadata: { name, namespace: NAMESPACE, labels: { 'controller-revision-hash': hash }, ownerReferences: [owner] },
    revision: number,
  })
  const labels = { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'gateway' }
  const affinity = (name: string) => ({
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchFields: [{ key: 'metadata.name', operator: 'In', values: [name] }] }],
      },
    },
  })
  const pod = ({ on, ready = true, hash = 'new', pending = false }: DaemonPod, i: number) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `gateway-${i}`, namespace: NAMESPACE, labels: { ...labels, 'controller-revision-hash': hash } },
    spec: pending ? { affinity: affinity(on) } : { nodeName: on },
    status: { conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] },
  })
  const heldText = ({ wanted, away }: HeldRollout): string => `held by ${away} of ${wanted}`
  const look = async (...pods: DaemonPod[]): Promise<string> => {
    const ready = pods.filter((one) => one.ready !== false).length
    const updated = pods.filter(({ hash = 'new' }) => hash === 'new').length
    const status = { desiredNumberScheduled: 3, numberReady: ready, updatedNumberScheduled: updated }
    const { missing, leftOut, held } = await rolloutProgress(
      new MemoryAdmin([
        ...[node('w1', 'True'), node('w2', 'True'), node('w3', 'Unknown'), node('w4', 'False')],
        node('w5', 'False'),
        { ...node('f1', 'True'), spec: { taints: [{ key: 'eks.amazonaws.com/compute-type', value: 'fargate' }] } },
        revision('a', 9, 'old'),
        revision('b', 10, 'new'),
        { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name: owner.name, namespace: NAMESPACE }, status },
        ...pods.map(pod),
      ]),
      NAMESPACE,
      signal,
    )
    return [
      missing === undefined ? 'done' : `${missing.what}: ${missing.why ?? ''}`,
      ...leftOut,
      ...held.map(heldText),
    ].join('; ')
  }
  const dead: DaemonPod = { on: 'w3', ready: false }
  t.equal(await look({ on: 'w1' }, { on: 'w2' }, dead), 'done; node w3 is not ready')
  t.equal(await look({ on: 'w1' }, { on: 'w2' }, { ...dead, pending: true }), 'done; node w3 is not ready')
  t.equal(await look({ on: 'w1' }, dead), 'gateway: gateway 1 of 2 ready; node w3 is not ready; held by 1 of 3')
  t.equal(
    await look({ on: 'w1' }, { on: 'w2', hash: 'old' }, dead),
    'gateway: gateway 1 of 2 ready; node w3 is not ready; held by 1 of 3',
    'a new pod on the dead node does not count for an old one elsewhere',
  )
  t.equal(
    await look({ on: 'w1' }, dead, { on: 'w4', ready: false }),
    'done; node w3 is not ready; node w4 is not ready',
  )
  t.equal(
    await look(dead, { on: 'w4', ready: false }, { on: 'w5', ready: false }),
    'gateway: gateway 0 of 1 ready; node w3 is not ready; node w4 is not ready; node w5 is not ready; held by 3 of 3',
    'what runs nowhere is not done',
  )
  t.equal(
    await look({ on: 'w1' }, { on: 'w2' }, { on: 'f1', ready: false, pending: true }),
    'done; node f1 is a virtual node (EKS Fargate)',
    'on a virtual node a pod waits for ever',
  )
  t.equal(
    await look({ on: 'w1', hash: 'old' }, { on: 'w4' }, { on: 'f1' }),
    'gateway: gateway 0 of 1 ready; node f1 is a virtual node (EKS Fargate); node w4 is not ready',
    'pods that are ready are not away',
  )
  t.equal(
    await look({ on: 'w1' }, { on: 'w2' }),
    'gateway: gateway 2 of 3 ready',
    'what w3 should have is not known yet',
  )
  t.equal(await look({ on: 'w1' }, { on: 'w2' }, { on: 'w3' }), 'done', 'the last it said is that all are ready')
})

t.test('rollouts: pods of an earlier version do not count', (t) => {
  const rows: [string, object, string][] = [
    ['no status', { metadata: { name: 'a', generation: 1 } }, '0 of undefined'],
    [
      'not looked at',
      { metadata: { name: 'a', generation: 2 }, status: { observedGeneration: 1, readyReplicas: 2 } },
      '0 of undefined',
    ],
    [
      'half',
      { metadata: { name: 'a' }, spec: { replicas: 2 }, status: { readyReplicas: 2, updatedReplicas: 1 } },
      '1 of 2',
    ],
    [
      'done',
      { metadata: { name: 'a' }, spec: { replicas: 2 }, status: { readyReplicas: 2, updatedReplicas: 2 } },
      '2 of 2 done',
    ],
    ['no replicas said', { metadata: { name: 'a' }, status: { readyReplicas: 1, updatedReplicas: 1 } }, '1 of 1 done'],
    [
      'nodes',
      { metadata: { name: 'a' }, status: { desiredNumberScheduled: 3, numberReady: 3, updatedNumberScheduled: 1 } },
      '1 of 3',
    ],
    ['no nodes', { metadata: { name: 'a' }, status: { desiredNumberScheduled: 0 } }, '0 of 0 done'],
  ]
  for (const [name, object, want] of rows) {
    const rollout = rolloutOf(object as Parameters<typeof rolloutOf>[0])
    t.equal(`${rollout.ready} of ${String(rollout.wanted)}${isRolledOut(rollout) ? ' done' : ''}`, want, name)
  }
  t.end()
})

t.test('parts in one order, with the trouble of the first', async (t) => {
  const workload = (kind: string, name: string, ready: number) => ({
    apiVersion: 'apps/v1',
    kind,
    metadata: { name: `sealane-${name}`, namespace: NAMESPACE },
    status:
      kind === 'DaemonSet'
        ? { desiredNumberScheduled: 1, numberReady: ready, updatedNumberScheduled: 1 }
        : { readyReplicas: ready, updatedReplicas: 1 },
  })
  const look = (dns: number, agent: number) =>
    rolloutProgress(
      new MemoryAdmin([
        workload('DaemonSet', 'gateway', 0),
        workload('Deployment', 'dns', dns),
        workload('Deployment', 'agent', agent),
      ]),
      NAMESPACE,
      signal,
    )
  t.strictSame(await look(0, 0), {
    missing: { what: 'agent, gateway, dns', why: 'agent 0 of 1 ready' },
    leftOut: [],
    held: [],
  })
  t.strictSame(await look(1, 1), { missing: { what: 'gateway', why: 'gateway 0 of 1 ready' }, leftOut: [], held: [] })
  t.strictSame(await rolloutProgress(new MemoryAdmin(), NAMESPACE, signal), {
    missing: undefined,
    leftOut: [],
    held: [],
  })
})

t.test('a Deployment is not held up by a pod on a node that is not ready', async (t) => {
  const labels = { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'agent' }
  const look = async (
    status: object,
    ...on: readonly (readonly [node: string, ending?: boolean])[]
  ): Promise<string> => {
    const pods = on.map(([name, ending = false], i) => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: {
        ...{ name: `agent-${i}`, namespace: NAMESPACE, labels },
        ...(ending ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}),
      },
      spec: { nodeName: name },
    }))
    const metadata = { name: 'sealane-agent', namespace: NAMESPACE }
    const agent = { apiVersion: 'apps/v1', kind: 'Deployment', metadata, spec: { replicas: 2 }, status }
    const admin = new MemoryAdmin([node('w1', 'True'), node('w3', 'Unknown'), agent, ...pods])
    const { missing, leftOut } = await rolloutProgress(admin, NAMESPACE, signal)
    return [missing === undefined ? 'done' : `${missing.what}: ${missing.why ?? ''}`, ...leftOut].join('; ')
  }
  const rows: [status: object, on: Parameters<typeof look>[1][], want: string][] = [
    [{ readyReplicas: 1, updatedReplicas: 2 }, [['w1'], ['w3']], 'done; node w3 is not ready'],
    [{ readyReplicas: 1, updatedReplicas: 2 }, [['w1'], ['w1']], 'agent: agent 1 of 2 ready'],
    [{ readyReplicas: 0, updatedReplicas: 2 }, [['w3'], ['w3']], 'agent: agent 0 of 1 ready; node w3 is not ready'],
    [{ readyReplicas: 1, updatedReplicas: 1 }, [['w1'], ['w3']], 'agent: agent 0 of 1 ready; node w3 is not ready'],
    [{ readyReplicas: 1, updatedReplicas: 2 }, [['w1'], ['w1'], ['w3', true]], 'agent: agent 1 of 2 ready'],
    [{ readyReplicas: 2, updatedReplicas: 2 }, [['w1'], ['w1'], ['w3', true]], 'done'],
  ]
  for (const [status, on, want] of rows) t.equal(await look(status, ...on), want, JSON.stringify([status, on]))
})
