/** How far a join has come, read from objects. */
import t from 'tap'
import { joinedOthers, laneStates } from '../../../cli/kube/lane-states.ts'
import { firstTrouble } from '../../../cli/kube/pod-trouble.ts'
import { isRolledOut, rolloutOf } from '../../../cli/kube/rollout.ts'
import { joinProgress, lanesProgress, rolloutProgress } from '../../../cli/kube/watch-join.ts'
import { secretIdentity } from '../../../cli/secret-identity.ts'
import type { Cluster, Gateway } from '../../../model/objects.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'
import { MemorySecret } from '../../support/memory-secret.ts'

const { signal } = new AbortController()
const NAMESPACE = 'sealane-system'

function cluster(id: string): Cluster {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: { id, index: 1, podCIDRs: [], serviceCIDRs: [], globalCIDRs: [], labels: {} },
  }
}

function gateway(
  node: string,
  ...connections: readonly (readonly [string, 'up' | 'down' | 'connecting', string])[]
): Gateway {
  const rows = connections.map(([to, state, message]) => ({ cluster: to, state, message }))
  const object = {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: node },
    spec: {},
    status: { connections: rows },
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
  t.strictSame(text, ['c1 up ', 'c3 connecting no handshake', 'c4 connecting not heard of yet'])
  t.end()
})

t.test('lanes of a cluster', async (t) => {
  const membership = {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: 'self' },
    spec: { clusterId: 'c2' },
  }
  const look = (...gateways: Gateway[]) => {
    const objects = [membership, cluster('c1'), cluster('c2'), cluster('c3'), ...gateways]
    return lanesProgress(new MemoryAdmin(objects as never[]), [{ node: 'n1' }], signal)
  }
  t.strictSame(await look(), { reached: [], missing: { what: 'from the gateway on n1' } })
  const half = await look(gateway('n1', ['c1', 'up', ''], ['c3', 'down', 'no answer to probes']))
  t.strictSame(half, { reached: ['c1'], missing: { what: 'to c3', why: 'c3 down: no answer to probes' } })
  t.strictSame(await look(gateway('n1', ['c1', 'up', ''], ['c3', 'up', ''])), {
    reached: ['c1', 'c3'],
    missing: undefined,
  })
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
  t.strictSame(await look(0, 0), { what: 'agent, gateway, dns', why: 'agent 0 of 1 ready' })
  t.strictSame(await look(1, 1), { what: 'gateway', why: 'gateway 0 of 1 ready' })
  t.strictSame(await rolloutProgress(new MemoryAdmin(), NAMESPACE, signal), undefined)
})

t.test("pods' trouble: what keeps them from running, in the order of their names", (t) => {
  const pod = (name: string, status: object) => ({ metadata: { name, namespace: NAMESPACE }, status })
  const waiting = (reason: string, more: object = {}) => ({
    containerStatuses: [{ state: { waiting: { reason, ...more } } }],
  })
  const rows: [string, object, string | undefined][] = [
    ['is made', waiting('ContainerCreating'), undefined],
    ['runs', { phase: 'Running', containerStatuses: [{ ready: true, state: { running: {} } }] }, undefined],
    ['image', waiting('ErrImagePull', { message: 'not\nfound' }), 'not found'],
    ['reason only', waiting('CrashLoopBackOff'), 'CrashLoopBackOff'],
    [
      'said before it ended',
      {
        containerStatuses: [
          { state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: { terminated: { message: 'no TUN' } } },
        ],
      },
      'no TUN',
    ],
    ['failed', { phase: 'Failed', message: 'evicted' }, 'evicted'],
    ['no node', { conditions: [{ type: 'PodScheduled', status: 'False', message: '0/3 nodes' }] }, '0/3 nodes'],
    [
      'not ready',
      { containerStatuses: [{ ready: false, state: { running: {} } }] },
      'it runs and is not ready yet: see kubectl --namespace sealane-system logs a',
    ],
    ['too long', waiting('X', { message: 'y'.repeat(1000) }), 'y'.repeat(300)],
  ]
  for (const [name, status, want] of rows) {
    t.equal(firstTrouble([pod('a', status)]), want === undefined ? undefined : `pod a: ${want}`, name)
  }
  t.equal(firstTrouble([pod('b', waiting('B')), pod('a', waiting('A'))]), 'pod a: A')
  t.end()
})

t.test('joining: refused is final, about the token that lies there; the rest is waited for', async (t) => {
  const admin = new MemoryAdmin()
  const look = (secret: MemorySecret) =>
    joinProgress(admin, { secret, settings: 'kind: Site', namespace: NAMESPACE }, signal)
  const secret = new MemorySecret({ token: 'sealane1.one' })
  const desk = secretIdentity(secret, 'kind: Site')
  t.strictSame(await look(secret), { what: 'agent', why: undefined })
  await desk.problem({ text: 'broker at b:1: connection refused' })
  t.strictSame(await look(secret), { what: 'agent', why: 'broker at b:1: connection refused' })
  await desk.problem({ text: 'cluster: "c2" is a member already', refused: 'sealane1.one' })
  await t.rejects(look(secret), { message: 'cluster: "c2" is a member already', hint: /make a new token/ })
  t.equal(await desk.isRefused('sealane1.one\n'), true)
  t.equal(await secretIdentity(secret, 'another').isRefused('sealane1.one'), false, 'with other settings it may do')
  await secretIdentity(secret, 'another').problem({ text: 'no', refused: 'sealane1.one' })
  t.strictSame(await look(secret), { what: 'agent', why: 'no' }, 'an agent of earlier settings speaks of those')
  await desk.problem({ text: 'cluster: "c2" is a member already', refused: 'sealane1.one' })
  await secret.change({ data: { token: 'sealane1.two' } })
  t.strictSame(await look(secret), { what: 'agent', why: 'cluster: "c2" is a member already' }, 'not about this token')
  t.equal(await desk.isRefused('sealane1.two'), false)
})
