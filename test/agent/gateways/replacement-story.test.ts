/** Nodes of a cluster come and go, and the agent keeps its gateways: the loop against an API in memory. */
import t, { type Test } from 'tap'
import { type GatewayMarker, ReplacementLoop } from '../../../agent/gateways/gateways.ts'
import { AGENT_LOOP } from '../../../agent/loop/config.ts'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { ClusterApiError } from '../../../kubeapi/kubeapi.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { Node, ObjectMeta } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { clusterObject, membershipObject } from '../../support/objects/cluster-objects.ts'
import { internalIps, nodeObject, routeAgentObject } from '../../support/objects/node-objects.ts'

const LABEL = 'sealane.io/gateway'
const BY = 'sealane.io/gateway-chosen-by'

/** Writes as the API server would: a Node that was made again under its name is another one. */
class MemoryMarker implements GatewayMarker {
  readonly marked: string[] = []
  failure: ClusterApiError | undefined
  readonly #api: MemoryApi

  constructor(api: MemoryApi) {
    this.#api = api
  }

  mark: GatewayMarker['mark'] = async ({ name, uid }, { labels, annotations }) => {
    if (this.failure !== undefined) throw this.failure
    const node = this.#api.get('Node', name)
    if (node?.metadata.uid !== uid) throw new ClusterApiError('Conflict', `Node ${name}: another uid`)
    this.marked.push(name)
    put(this.#api, node, { labels, annotations })
  }

  remember: GatewayMarker['remember'] = async (annotation, text) => {
    if (this.failure !== undefined) throw this.failure
    const before = this.#api.get('Membership', 'self')
    if (before === undefined) throw new ClusterApiError('NotFound', 'Membership self')
    const metadata = { ...before.metadata, annotations: { ...before.metadata.annotations, [annotation]: text } }
    this.#api.put({ ...before, metadata })
  }
}

function put(api: MemoryApi, node: Node, { labels, annotations }: Pick<ObjectMeta, 'labels' | 'annotations'>): void {
  const { metadata } = node
  api.put({
    ...node,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...labels },
      annotations: { ...metadata.annotations, ...annotations },
    },
  })
}

interface World {
  readonly api: MemoryApi
  readonly clock: FakeClock
  readonly marker: MemoryMarker
  readonly logger: CapturingLogger
  /** A new node, on which the routeagent runs. */
  add(name: string, change?: { readonly chosen?: boolean; readonly labels?: Record<string, string> }): void
  taint(name: string, ...keys: readonly string[]): void
  drop(name: string): void
  /** Removes the label alone, as `kubectl label node n1 sealane.io/gateway-` does. */
  unlabel(name: string): void
  /** The names of the labelled nodes. */
  gateways(): string
  /** Starts the loop, as the acting agent does. Gives the function that ends it. */
  act(): () => Promise<void>
  /** Moves the clock until the condition holds. */
  until(t: Test, read: () => unknown, want: unknown, say: string): Promise<void>
}

function world(t: Test, { hold = false, activeGateways = 2, fillsUp = false } = {}): World {
  const clock = new FakeClock()
  const api = new MemoryApi({ clock, hold })
  const marker = new MemoryMarker(api)
  const logger = new CapturingLogger()
  let serial = 0
  const act = (): (() => Promise<void>) => {
    const parts = { api, clock, logger, metrics: agentMetrics(createMetrics('agent')) }
    const gatewayChoice = { fillsUp, nodeSelector: {} }
    const init = { own: 'milano', activeGateways, gatewayChoice, loop: AGENT_LOOP }
    const loop = new ReplacementLoop({ ...parts, marker }, init)
    const stop = new AbortController()
    const running = loop.run(stop.signal)
    const end = async (): Promise<void> => {
      stop.abort()
      await running
    }
    t.teardown(end)
    return end
  }
  api.put(membershipObject({ clusterId: 'milano' }))
  api.put(clusterObject({ id: 'milano', podCIDRs: ['10.42.0.0/16'] }))
  return {
    ...{ api, clock, marker, logger, act },
    add: (name, { chosen = false, labels = {} } = {}) => {
      serial += 1
      api.put(
        nodeObject(name, {
          metadata: {
            uid: `uid-${serial}`,
            labels: { 'kubernetes.io/os': 'linux', ...(chosen ? { [LABEL]: 'true' } : {}), ...labels },
            annotations: chosen ? { [BY]: 'join' } : {},
          },
          status: internalIps(`10.0.0.${(serial % 250) + 1}`),
        }),
      )
      api.put(routeAgentObject(name))
    },
    taint: (name, ...keys) => {
      const node = api.get('Node', name)
      if (node === undefined) throw new Error(`no node ${name}`)
      api.put({ ...node, spec: { ...node.spec, taints: keys.map((key) => ({ key, effect: 'NoSchedule' })) } })
    },
    unlabel: (name) => {
      const node = api.get('Node', name)
      if (node === undefined) throw new Error(`no node ${name}`)
      const { [LABEL]: _label, ...labels } = node.metadata.labels ?? {}
      api.put({ ...node, metadata: { ...node.metadata, labels } })
    },
    drop: (name) => {
      api.drop('Node', name)
      api.drop('RouteAgent', name)
    },
    gateways: () =>
      api
        .cache('Node')
        .list()
        .filter(({ metadata }) => metadata.labels?.[LABEL] !== undefined)
        .map(({ metadata }) => metadata.name)
        .sort()
        .join(' '),
    until: async (t, read, want, say) => {
      await eventually(
        async () => {
          await clock.advance(500)
          return JSON.stringify(read()) === JSON.stringify(want)
        },
        { deadlineMs: 5000, intervalMs: 1 },
      ).catch(() => undefined)
      t.strictSame(read(), want, say)
    },
  }
}

const recordOf = ({ api }: World): string =>
  api.get('Membership', 'self')?.metadata.annotations?.['sealane.io/chosen-gateways'] ?? ''
const condition = ({ api }: World): string => {
  const found = api.get('Cluster', 'milano')?.status?.conditions?.find(({ type }) => type === 'GatewaysChosen')
  return found === undefined ? '' : `${found.status} ${found.reason}`
}

t.test('a gateway node is gone: another one takes its place, and this is told', async (t) => {
  const here = world(t)
  for (const name of ['n1', 'n2']) here.add(name, { chosen: true })
  here.add('n3')
  here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'the chosen nodes are noted')
  t.equal(condition(here), '', 'nothing is to be told')
  here.drop('n1')
  await here.clock.advance(5000)
  t.equal(here.gateways(), 'n2', 'it may come back at once')
  await here.until(t, () => here.gateways(), 'n2 n3', 'replaced')
  t.match(here.api.get('Node', 'n3')?.metadata.annotations, { [BY]: 'agent' })
  await here.until(t, () => condition(here), 'True GatewayReplaced', 'the condition')
  t.strictSame(
    here.api.events.map(({ regarding, reason, note }) => `${regarding.kind} ${regarding.name} ${reason}: ${note}`),
    ['Node n3 GatewayReplaced: n3 is a gateway in place of n1: it is gone'],
  )
  here.drop('n2')
  await here.clock.advance(20_000)
  await here.until(t, () => condition(here), 'False GatewayNotReplaced', 'there is no other node')
  t.ok(
    here.logger.lines.some(({ fields }) => fields['reason'] === 'GatewayNotReplaced'),
    'it is logged',
  )
  here.add('n4')
  await here.until(t, () => here.gateways(), 'n3 n4', 'one comes')
  await here.until(t, () => condition(here), 'True GatewayReplaced', 'and it is well again')
})

t.test('a node that its autoscaler removes is replaced before it is gone', async (t) => {
  const here = world(t)
  for (const name of ['n1', 'n2']) here.add(name, { chosen: true })
  here.add('n3')
  here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'noted')
  here.taint('n1', 'DeletionCandidateOfClusterAutoscaler')
  await here.clock.advance(20_000)
  t.equal(here.gateways(), 'n1 n2', 'a candidate only')
  here.taint('n1', 'ToBeDeletedByClusterAutoscaler')
  await here.until(t, () => here.gateways(), 'n1 n2 n3', 'the old one drains, and keeps its label')
  here.taint('n1')
  here.add('n4')
  await here.clock.advance(20_000)
  t.equal(here.gateways(), 'n1 n2 n3', 'it stays after all')
  here.drop('n2')
  await here.clock.advance(30_000)
  t.equal(here.gateways(), 'n1 n3', 'so that the next loss needs no other node')
})

t.test('what is not gone, and what a user chose', async (t) => {
  const here = world(t)
  for (const name of ['n1', 'n2']) here.add(name, { chosen: true })
  here.add('u1', { labels: { [LABEL]: 'true' } })
  here.add('n3')
  here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'noted')
  here.taint('n1', 'node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable')
  here.taint('u1', 'ToBeDeletedByClusterAutoscaler')
  await here.clock.advance(120_000)
  t.strictSame(here.marker.marked, [], 'a node that is not ready, and one that a user labelled')
  here.drop('u1')
  await here.clock.advance(120_000)
  t.strictSame(here.marker.marked, [])
  const n2 = here.api.get('Node', 'n2')
  if (n2 === undefined) throw new Error('no node n2')
  const { [LABEL]: _label, ...labels } = n2.metadata.labels ?? {}
  here.api.put({ ...n2, metadata: { ...n2.metadata, labels } })
  await here.clock.advance(120_000)
  t.equal(here.gateways(), 'n1', 'a user took a label away: nobody else gets it')
  t.strictSame(here.marker.marked, [])
})

t.test('a node that stays unreachable is replaced, and comes back without any change', async (t) => {
  const here = world(t)
  for (const name of ['n1', 'n2']) here.add(name, { chosen: true })
  for (const name of ['n3', 'n4']) here.add(name)
  const beat = (name: string, heartbeatTime: string): void =>
    here.api.put({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Gateway',
      metadata: { name },
      status: { version: '1', heartbeatTime, lanes: [], connections: [] },
    })
  const minutes = (count: number): Promise<void> => here.clock.advance(count * 60_000)
  beat('n1', '2026-11-30T10:00:00Z')
  here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'noted')
  here.taint('n1', 'node.kubernetes.io/unreachable')
  await minutes(9)
  beat('n1', '2026-11-30T10:09:00Z')
  await minutes(9)
  t.equal(here.gateways(), 'n1 n2', 'its kubelet alone is silent')
  here.taint('n1')
  await minutes(1)
  here.taint('n1', 'node.kubernetes.io/not-ready')
  await minutes(9)
  t.equal(here.gateways(), 'n1 n2', 'it was ready meanwhile')
  here.api.failure = new ClusterApiError('Unavailable', 'no answer')
  await minutes(5)
  t.strictSame(here.marker.marked, [], 'an API server that does not answer says nothing')
  here.api.failure = undefined
  await here.until(t, () => here.gateways(), 'n1 n2 n3', 'replaced')
  await here.until(t, () => condition(here), 'True GatewayReplaced', 'the condition')
  t.strictSame(
    here.api.events.map(({ note }) => note),
    [
      'n3 is a gateway in place of n1: for 10 minutes it has the taint node.kubernetes.io/not-ready, and no gateway reports from it',
    ],
  )
  for (const taints of [[], ['node.cloudprovider.kubernetes.io/shutdown'], []]) {
    here.taint('n1', ...taints)
    await minutes(12)
  }
  t.strictSame(here.marker.marked, ['n3'], 'it comes and goes: enough others are there')
  here.taint('n2', 'node.cloudprovider.kubernetes.io/shutdown')
  await minutes(12)
  t.strictSame(here.marker.marked, ['n3'], 'it takes the place of the next one')
  here.taint('n1', 'node.cloudprovider.kubernetes.io/shutdown')
  await here.until(t, () => recordOf(here).includes('n3'), true, 'known')
  await minutes(12)
  t.strictSame(here.marker.marked, ['n3', 'n4'], 'both are switched off')
})

t.test('what has not been read is not gone', async (t) => {
  const here = world(t, { hold: true })
  here.add('n3')
  const before = here.api.get('Membership', 'self')
  if (before === undefined) throw new Error('no Membership')
  const annotations = { 'sealane.io/chosen-gateways': '{"count":2,"nodes":{"u1":"n1","u2":"n2"}}' }
  here.api.put({ ...before, metadata: { ...before.metadata, annotations } })
  here.act()
  await here.clock.advance(120_000)
  t.strictSame(here.marker.marked, [])
  here.api.release()
  await here.until(t, () => here.gateways(), 'n3', 'read: both are gone, and one node is there')
})

t.test('an API server that does not answer says nothing', async (t) => {
  const here = world(t)
  for (const name of ['n1', 'n2']) here.add(name, { chosen: true })
  here.add('n3')
  here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'noted')
  here.api.failure = new ClusterApiError('Unavailable', 'no answer')
  here.drop('n1')
  await here.clock.advance(60_000)
  t.strictSame(here.marker.marked, [])
  here.api.failure = undefined
  await here.until(t, () => here.gateways(), 'n2 n3', 'it answers')
})

t.test('the agent is replaced in the middle: no gateway too many', async (t) => {
  const here = world(t)
  for (const name of ['n1', 'n2']) here.add(name, { chosen: true })
  for (const name of ['n3', 'n4', 'n5']) here.add(name)
  const end = here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'noted')
  here.taint('n1', 'karpenter.sh/disrupted')
  await here.until(t, () => here.marker.marked, ['n3'], 'replaced')
  await end()
  here.drop('n1')
  here.act()
  await here.clock.advance(60_000)
  t.equal(here.gateways(), 'n2 n3')
  t.strictSame(here.marker.marked, ['n3'])
})

t.test('thirty nodes come and go in ten minutes', async (t) => {
  const here = world(t)
  for (const name of ['n01', 'n02']) here.add(name, { chosen: true })
  for (let i = 3; i <= 6; i += 1) here.add(`n0${i}`)
  here.act()
  await here.until(t, () => recordOf(here) !== '', true, 'noted')
  let least = Infinity
  for (let i = 7; i <= 36; i += 1) {
    // The oldest node is removed as autoscalers do it; each third one is lost without a notice.
    const oldest = `n${String(i - 6).padStart(2, '0')}`
    here.add(`n${String(i).padStart(2, '0')}`, { labels: i % 4 === 0 ? { 'karpenter.sh/capacity-type': 'spot' } : {} })
    if (i % 3 !== 0) here.taint(oldest, 'karpenter.sh/disrupted')
    await here.clock.advance(10_000)
    here.drop(oldest)
    await here.clock.advance(10_000)
    least = Math.min(least, here.gateways().split(' ').filter(Boolean).length)
  }
  await here.until(t, () => here.gateways().split(' ').length, 2, 'as many as join chose')
  t.ok(least >= 1, `never without a gateway: ${least}`)
  t.ok(here.api.get('Node', 'n31'), 'nodes of the end are there')
  t.ok(recordOf(here).length < 300, `the record does not grow: ${recordOf(here)}`)
})

t.test('no join chose gateways: the agent does, once the parts run on all nodes', async (t) => {
  const here = world(t, { fillsUp: true })
  here.add('n1', { labels: { 'karpenter.sh/capacity-type': 'spot' } })
  here.add('n2')
  here.add('n3')
  here.api.drop('RouteAgent', 'n3')
  here.act()
  await here.clock.advance(20_000)
  t.equal(here.gateways(), '', 'nothing runs on n3 yet, and n1 is no better')
  here.api.put(routeAgentObject('n3'))
  await here.until(t, () => here.gateways(), 'n2 n3', 'chosen')
  await here.until(t, () => condition(here), 'True GatewayChosen', 'the condition')
  t.strictSame(
    here.api.events.map(({ regarding, reason, note }) => `${regarding.name} ${reason}: ${note}`),
    ['n2', 'n3'].map((name) => `${name} GatewayChosen: ${name} is a gateway: 0 of 2 gateways were there`),
  )
  here.drop('n2')
  await here.until(t, () => here.gateways(), 'n1 n3', 'one is gone')
  await here.clock.advance(120_000)
  t.strictSame(here.marker.marked, ['n2', 'n3', 'n1'], 'and that is all')
})

t.test('a user takes the label away: that stays, also over a new agent', async (t) => {
  const here = world(t, { fillsUp: true })
  for (const name of ['n1', 'n2']) here.add(name)
  const end = here.act()
  await here.until(t, () => here.gateways(), 'n1 n2', 'chosen')
  await here.clock.advance(60_000)
  here.unlabel('n1')
  await here.clock.advance(120_000)
  t.equal(here.gateways(), 'n2', 'no other node may take its place')
  t.ok(here.logger.messages('info').some((line) => line.includes('will not label this node again')))
  await end()
  here.act()
  await here.clock.advance(120_000)
  t.equal(here.gateways(), 'n2')
  here.add('n3')
  await here.until(t, () => here.gateways(), 'n2 n3', 'another node comes')
})

t.test('no join chose gateways, and a node never runs the parts: the others become gateways in a minute', async (t) => {
  const here = world(t, { fillsUp: true })
  here.add('n1')
  here.add('n2')
  here.api.drop('RouteAgent', 'n1')
  here.act()
  await here.clock.advance(50_000)
  t.equal(here.gateways(), '')
  await here.until(t, () => here.gateways(), 'n2', 'the other one')
})
