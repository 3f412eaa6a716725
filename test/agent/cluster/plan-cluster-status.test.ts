import t from 'tap'
import { clusterEvents, planClusterStatus } from '../../../agent/cluster/plan-cluster-status.ts'
import type { Cluster } from '../../../model/objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { gatewaySaying } from '../../support/objects/node-objects.ts'

const NOW = Date.parse('2026-11-20T12:00:00.400Z')

function cluster(id: string, ...conditions: (readonly [type: string, status: 'True' | 'False'])[]): Cluster {
  const said = conditions.map(([type, status]) => ({
    ...({ type, status, reason: 'Pending', message: 'before' } as const),
    lastTransitionTime: '2026-11-01T00:00:00Z',
  }))
  return clusterObject({ id }, said.length === 0 ? {} : { status: { conditions: said } })
}

function show(clusters: readonly Cluster[], silent: Readonly<Record<string, number>> | undefined): string[] {
  const known = silent === undefined ? undefined : new Map(Object.entries(silent).map(([id, s]) => [id, s * 1000]))
  return planClusterStatus({
    nowMs: NOW,
    clusters,
    silent: known,
    gateways: undefined,
    withGateway: undefined,
    stale: [],
  }).flatMap(({ spec, status }) =>
    (status?.conditions ?? []).map(
      ({ type, status: is, reason, message, lastTransitionTime }) =>
        `${spec.id} ${type}=${is} ${reason} (${message}) ${lastTransitionTime}`,
    ),
  )
}

t.test('who is in contact, as the broker says it', (t) => {
  const HEARD = 'c1 InContact=True Heard (the cluster is connected to the broker) 2026-11-20T12:00:00Z'
  const SILENT =
    'c1 InContact=False Silent (the cluster has had no connection to the broker since 2026-11-20T11:59:30Z) 2026-11-20T12:00:00Z'
  t.strictSame(show([cluster('c1')], {}), [HEARD])
  t.strictSame(show([cluster('c1')], { c1: 29.9 }), [], 'an agent that starts anew is no news')
  t.strictSame(show([cluster('c1')], { c1: 30 }), [SILENT])
  t.strictSame(show([cluster('c1', ['InContact', 'True'])], { c1: 30 }), [SILENT])
  t.strictSame(show([cluster('c1', ['InContact', 'False'])], {}), [HEARD])
  t.strictSame(show([cluster('c1', ['InContact', 'True'])], {}), [], 'nothing new')
  t.strictSame(show([cluster('c1', ['InContact', 'False'])], { c1: 60 }), [], 'since when is said once')
  t.strictSame(show([cluster('c1')], undefined), [], 'without the broker nothing is known')
  t.strictSame(show([cluster('c1', ['Other', 'True'])], {}), [
    'c1 Other=True Pending (before) 2026-11-01T00:00:00Z',
    HEARD,
  ])
  t.end()
})

t.test('which clusters lanes lead to', (t) => {
  const rows: readonly (readonly [gateways: string[], stale: string, want: string])[] = [
    [[], '', 'False NoGateway'],
    [['g1'], '', 'False NoLane'],
    [['g1 c1 up'], '', 'True LaneUp'],
    [['g1 c1 down', 'g2 c1 up'], '', 'True LaneUp'],
    [['g1 c1 connecting', 'g2 c1 down'], '', 'False LaneProbeTimeout'],
    [['g1 c1 connecting, c2 up'], '', 'False LaneConnecting'],
    [['g1 c1 up'], 'g1', 'Unknown GatewayStatusStale'],
    [['g1 c1 up', 'g2 c1 up'], 'g1', 'True LaneUp'],
    [['g1 c1 up', 'g2 c1 down'], 'g1', 'Unknown GatewayStatusStale'],
    [['g1 c1 down'], 'g1', 'False NoLane'],
  ]
  for (const [given, stale, want] of rows) {
    const world = {
      nowMs: NOW,
      silent: undefined,
      gateways: given.map(gatewaySaying),
      withGateway: new Set(['c1', 'c2']),
      stale: stale === '' ? [] : [stale],
    }
    const [written] = planClusterStatus({ ...world, clusters: [cluster('c1', ['Other', 'True'])] })
    const all = written?.status?.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`)
    const found = all?.filter((text) => !text.startsWith('GatewaysRedundant'))
    t.strictSame(found, ['Other True Pending', `Connected ${want}`], `${given.join('; ')} ${stale}`)
    if (written !== undefined) t.strictSame(planClusterStatus({ ...world, clusters: [written] }), [], 'said once')
  }
  const unread = {
    ...{ nowMs: NOW, silent: undefined, gateways: undefined, stale: [] },
    ...{ withGateway: undefined, clusters: [cluster('c1')] },
  }
  t.strictSame(planClusterStatus(unread), [], 'not read yet')
  t.end()
})

t.test('a cluster that has published no gateway', (t) => {
  const [NONE, HAS_ONE] = [new Set(['c2']), new Set(['c1'])]
  /** Returns the last reason of the condition after one round with each of these values. */
  const said = (
    ...rounds: (readonly [withGateway: ReadonlySet<string> | undefined, own: string, stale?: string])[]
  ) => {
    let one = cluster('c1')
    for (const [withGateway, own, stale] of rounds) {
      const world = { nowMs: NOW, silent: undefined, gateways: [gatewaySaying(own)], withGateway }
      one = planClusterStatus({ ...world, clusters: [one], stale: stale === undefined ? [] : [stale] })[0] ?? one
    }
    return one.status?.conditions?.find(({ type }) => type === 'Connected')?.reason
  }
  t.equal(said([NONE, 'g1']), 'FarGatewayAwaited')
  t.equal(said([HAS_ONE, 'g1']), 'NoLane')
  t.equal(said([undefined, 'g1']), undefined, 'nobody knows')
  t.equal(said([undefined, 'g1'], [NONE, 'g1']), 'FarGatewayAwaited', 'the Endpoints are read later')
  t.equal(said([NONE, 'g1'], [undefined, 'g1']), 'FarGatewayAwaited', 'the agent starts anew')
  t.equal(said([undefined, 'g1 c1 up'], [undefined, 'g1']), 'NoLane', 'a cluster that was reached has lost its gateway')
  t.equal(said([HAS_ONE, 'g1'], [NONE, 'g1']), 'NoLane')
  t.equal(said([HAS_ONE, 'g1 c1 down'], [NONE, 'g1']), 'NoLane')
  t.equal(said([HAS_ONE, 'g1 c1 up', 'g1'], [NONE, 'g1']), 'NoLane', 'its lane was up when our gateway became silent')
  t.end()
})

t.test('what people are told when a cluster is cut off, and reached again', (t) => {
  const world = { nowMs: NOW, silent: undefined, withGateway: undefined, stale: [] as string[] }
  let clusters = [cluster('c1')]
  const after = (stale: string, ...gateways: string[]): string[] => {
    const given = { ...world, stale: stale === '' ? [] : [stale], gateways: gateways.map(gatewaySaying) }
    const written = planClusterStatus({ ...given, clusters })
    const events = clusterEvents(clusters, written)
    if (written[0] !== undefined) clusters = [written[0]]
    for (const { regarding } of events) t.match(regarding, { kind: 'Cluster', name: 'c1' })
    return events.map(({ type, reason, note }) => `${type} ${reason}: ${note}`)
  }
  const reached = 'Normal ClusterReached: a lane to the cluster is up'
  t.strictSame(after('', 'g1 c1 connecting'), [], 'nothing was there before')
  t.strictSame(after('', 'g1 c1 up'), [reached])
  t.strictSame(after('', 'g1 c1 up', 'g2 c1 down'), [], 'one link less')
  t.strictSame(after('', 'g1 c1 down', 'g2 c1 down'), [
    'Warning ClusterCutOff: LaneProbeTimeout: no lane to the cluster answers probes',
  ])
  t.strictSame(after('', 'g1 c1 down', 'g2 c1 up'), [reached])
  t.strictSame(after('g2', 'g1 c1 down', 'g2 c1 up'), [], 'its gateway is silent: nobody knows')
  t.strictSame(after('', 'g1 c1 down', 'g2 c1 up'), [], 'and was never down')
  t.strictSame(after(''), ['Warning ClusterCutOff: NoGateway: no node of this cluster runs a gateway'])
  t.end()
})

t.test('whether a gateway may go', (t) => {
  const rows: readonly (readonly [gateways: string[], stale: string, want: string])[] = [
    [[], '', 'False no gateway has a link to the cluster that is up'],
    [
      ['g1 c1 up'],
      '',
      'False only gateway g1 has a link to the cluster that is up: if its node fails, the cluster is unreachable',
    ],
    [['g2 c1 up', 'g1 c1 up'], '', 'True 2 gateways have a link to the cluster that is up: g1, g2'],
    [['g1 c1 up', 'g2 c1 up', 'g3 c1 up'], 'g2', 'True 2 gateways have a link to the cluster that is up: g1, g3'],
    [
      ['g1 c1 up', 'g2 c1 up'],
      'g2',
      'False only gateway g1 has a link to the cluster that is up: if its node fails, the cluster is unreachable',
    ],
    [
      ['g1 c1 up', 'g2 c1 down'],
      '',
      'False only gateway g1 has a link to the cluster that is up: if its node fails, the cluster is unreachable',
    ],
    [
      ['g1 c1 up', 'g2 c2 up'],
      '',
      'False only gateway g1 has a link to the cluster that is up: if its node fails, the cluster is unreachable',
    ],
    [['g1 c1 down', 'g2 c1 connecting'], '', 'False no gateway has a link to the cluster that is up'],
  ]
  for (const [given, stale, want] of rows) {
    const [written] = planClusterStatus({
      nowMs: NOW,
      silent: undefined,
      gateways: given.map(gatewaySaying),
      withGateway: new Set(['c1', 'c2']),
      stale: stale === '' ? [] : [stale],
      clusters: [cluster('c1')],
    })
    const found = written?.status?.conditions?.find(({ type }) => type === 'GatewaysRedundant')
    t.equal(`${found?.status} ${found?.message}`, want, `${given.join('; ')} ${stale}`)
  }
  t.end()
})
