/**
 * One fault and its findings: one line for each problem that no other problem causes, with the number of problems that
 * follow from it.
 */
import t from 'tap'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import {
  type ObjectsByKind,
  NOW,
  condition,
  factSet,
  healthyObjects,
  healthyReports,
  importedSlice,
  lease,
} from '../support/objects/member-facts.ts'
import type { ConditionReason } from '../../model/reasons/reasons.ts'
import { DOWN, type Loose, SILENCE, brokenMember, changeLinks, linesOf } from './broken-member.ts'

function trafficPolicy(name: string, ...conditions: readonly object[]) {
  return { metadata: { name, namespace: 'shop' }, spec: {}, status: { conditions } }
}

/** From a name to the broken objects and the expected lines. */
const FAULTS: Readonly<Record<string, readonly [objects: ObjectsByKind, lines: readonly string[]]>> = {
  'a blocked port at paris': [
    brokenMember((at) => changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN)),
    ['down ClusterCutOff Cluster paris (LaneProbeTimeout ×4)'],
  ],
  'a blocked port here': [
    brokenMember((at) => changeLinks(at, () => true, DOWN)),
    ['down AllClustersCutOff Cluster milano (ClusterCutOff ×2, LaneProbeTimeout ×8)'],
  ],
  'both ends are behind NAT': [
    brokenMember((at) =>
      changeLinks(at, ({ cluster }) => cluster === 'paris', { state: 'connecting', cause: 'NeitherCallable' }),
    ),
    ['down NeitherEndCallable Cluster paris (LaneConnecting ×4)'],
  ],
  'one gateway here has no way out': [
    brokenMember((at) => changeLinks(at, (_, node) => node === 'gw1', DOWN)),
    ['degraded GatewayCutOff Gateway gw1 (LaneProbeTimeout ×4)'],
  ],
  'one gateway of paris is dead': [
    brokenMember((at) => changeLinks(at, ({ cluster, remoteLane }) => cluster === 'paris' && remoteLane === 1, DOWN)),
    ['degraded FarGatewayUnreached Endpoint paris.gw1-lane1 (LaneProbeTimeout ×2)'],
  ],
  'one link': [
    brokenMember((at) =>
      changeLinks(at, ({ cluster, remoteLane, lane }) => cluster === 'paris' && remoteLane === 1 && lane === 0, DOWN),
    ),
    ['degraded LaneProbeTimeout Link gw0 lane 0 to paris lane 1'],
  ],
  'a cluster that is switched off, and a service that only it exports': [
    brokenMember((at) => {
      changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN)
      const [, paris] = at('Cluster')
      if (paris !== undefined)
        paris.status.conditions = [condition('InContact', 'False', 'Silent', 'not heard since 11:00')]
      const [web] = at('ServiceImport')
      if (web !== undefined) Object.assign(web.status, { clusters: [{ cluster: 'paris' }] })
      at('EndpointSlice').splice(0, 9, importedSlice('web0', 'paris') as Loose)
    }),
    ['down Silent Cluster paris (ClusterCutOff ×1, ImportsWithoutBackends ×1, LaneProbeTimeout ×4)'],
  ],
  'the own gateway is dead, and its node': [
    brokenMember(
      (at) => {
        const [gateway] = at('Gateway')
        if (gateway !== undefined) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
        const [node] = at('Node')
        if (node !== undefined) {
          node.status.conditions = [
            {
              type: 'Ready',
              status: 'Unknown',
              message: 'the kubelet stopped posting',
              lastTransitionTime: '2026-11-25T11:51:00Z',
            },
          ]
        }
      },
      { gateways: 1, workers: 2 },
    ),
    ['down NodeNotReady Node gw0 (GatewaySilent ×1, GatewayStatusStale ×2)'],
  ],
  'the gateway process hangs': [
    brokenMember((at) => {
      const [gateway] = at('Gateway')
      if (gateway !== undefined) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
    }),
    ['degraded GatewaySilent Gateway gw0'],
  ],
  'all gateway processes hang': [
    brokenMember((at) => {
      for (const gateway of at('Gateway')) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
    }),
    ['down GatewaySilent Gateway gw0 (GatewayStatusStale ×2)', 'down GatewaySilent Gateway gw1'],
  ],
  'all gateway processes hang, and there is no other cluster yet': [
    brokenMember((at) => {
      for (const kind of ['Cluster', 'Endpoint'] as const) {
        const own = at(kind).filter(({ metadata }) => metadata.name.startsWith('milano'))
        at(kind).splice(0, at(kind).length, ...own)
      }
      for (const gateway of at('Gateway')) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
    }),
    ['degraded GatewaySilent Gateway gw0', 'degraded GatewaySilent Gateway gw1'],
  ],
  'no gateway': [
    brokenMember((at) => {
      at('Gateway').length = 0
      for (const { metadata } of at('Node')) delete metadata.labels
    }),
    ['down NoGateway Cluster milano'],
  ],
  'gateways that have never reported': [
    brokenMember((at) => {
      for (const gateway of at('Gateway')) Object.assign(gateway, { status: undefined })
    }),
    ['down NoGateway Cluster milano'],
  ],
  'a gateway without an IPv4 address': [
    brokenMember((at) => {
      const [node] = at('Node')
      if (node !== undefined) node.status['addresses'] = [{ type: 'InternalIP', address: 'fd00::1' }]
      const agent = at('RouteAgent').find(({ metadata }) => metadata.name === 'gw0')
      Object.assign(agent?.status ?? {}, { failure: 'NodeNotUsable: Node gw0: InternalIP fd00::1: expected IPv4' })
    }),
    ['degraded GatewayWithoutIPv4 Node gw0 (RoundFailed ×1)'],
  ],
  'one gateway of several nodes': [
    brokenMember(() => undefined, { gateways: 1, workers: 2 }),
    ['notice OneGatewayOnly Cluster milano'],
  ],
  'one gateway of one node': [brokenMember(() => undefined, { gateways: 1, workers: 0 }), []],
  'a gateway that is drained': [
    brokenMember((at) => {
      const [node] = at('Node')
      if (node !== undefined) node.spec = { unschedulable: true }
    }),
    ['notice GatewayDraining Node gw0'],
  ],
  'an MTU black hole': [
    brokenMember((at) =>
      changeLinks(at, ({ cluster, lane, remoteLane }) => cluster === 'paris' && lane + remoteLane === 0, { mtu: 1240 }),
    ),
    ['notice PathMtuReduced Link gw0 lane 0 to paris lane 0'],
  ],
  'a bad line': [
    brokenMember((at) =>
      changeLinks(at, ({ cluster, lane, remoteLane }) => cluster === 'paris' && lane + remoteLane === 0, {
        loss: 0.3,
        held: true,
      }),
    ),
    ['degraded LinkFlaps Link gw0 lane 0 to paris lane 0', 'degraded LinkLossy Link gw0 lane 0 to paris lane 0'],
  ],
  'a gateway that cannot do its work': [
    brokenMember((at) => {
      const [gateway] = at('Gateway')
      if (gateway !== undefined) gateway.status['failure'] = 'RoundFailed: nft: cannot allocate memory'
    }),
    ['degraded RoundFailed Gateway gw0'],
  ],
  'workers without a way to the gateways': [
    brokenMember((at) => {
      for (const { status } of at('RouteAgent').slice(0, 2)) for (const one of status.clusters) one.gateways = []
    }),
    ['down NodesCutOff Cluster milano'],
  ],
  'one of two gateway nodes does not answer the others over the overlay': [
    brokenMember((at) => {
      for (const { metadata, status } of at('RouteAgent')) {
        if (metadata.name === 'gw1') continue
        status['silentNodes'] = ['gw1']
        for (const one of status.clusters) one.gateways = ['gw0']
      }
    }),
    ['degraded GatewayNodeSilent Node gw1'],
  ],
  'a worker that hears no gateway node, as they hear nothing of it': [
    brokenMember((at) => {
      for (const { metadata, status } of at('RouteAgent')) {
        const isWorker = metadata.name === 'w0'
        status['silentNodes'] = isWorker ? ['gw0', 'gw1'] : ['w0']
        if (isWorker) for (const one of status.clusters) one.gateways = []
      }
    }),
    ['down NodesCutOff Cluster milano'],
  ],
  'gateway nodes hear nothing of a worker that hears them': [
    brokenMember((at) => {
      for (const { metadata, status } of at('RouteAgent')) if (metadata.name !== 'w0') status['silentNodes'] = ['w0']
    }),
    ['degraded WorkerNodeSilent Node w0'],
  ],
  'a network card whose fault could not be avoided': [
    brokenMember((at) => {
      const worker = at('RouteAgent').find(({ metadata }) => metadata.name === 'w0')
      if (worker === undefined) return
      worker.status.conditions = [condition('ChecksumOffload', 'Unknown', 'ChecksumOffloadNotSwitched', 'no ethtool')]
      worker.status['silentNodes'] = ['gw0', 'gw1']
    }),
    ['degraded ChecksumOffloadNotSwitched Node w0 (GatewayNodeSilent ×2)'],
  ],
  'a network card whose fault was avoided': [
    brokenMember((at) => {
      for (const { status } of at('RouteAgent'))
        status.conditions = [condition('ChecksumOffload', 'False', 'ChecksumOffloadFault', 'off: vmxnet3')]
    }),
    [],
  ],
  'a node with another port of the overlay': [
    brokenMember((at) => {
      for (const { metadata, status } of at('RouteAgent')) {
        status['overlayPort'] = metadata.name === 'w0' ? 4811 : 4810
        if (metadata.name === 'w0') status['silentNodes'] = ['gw0', 'gw1']
      }
    }),
    ['degraded OverlayPortDiffers Node w0 (GatewayNodeSilent ×2)'],
  ],
  'a node of an earlier release, which tells no port, where another one was chosen': [
    brokenMember((at) => {
      for (const { metadata, status } of at('RouteAgent')) {
        status['underlay'] = ['192.168.7.0/24']
        if (metadata.name !== 'w0') status['overlayPort'] = 4811
      }
    }),
    ['degraded OverlayPortDiffers Node w0'],
  ],
  'one port of the overlay, told by some nodes': [
    brokenMember((at) => {
      for (const { metadata, status } of at('RouteAgent')) if (metadata.name !== 'w0') status['overlayPort'] = 4811
    }),
    [],
  ],
  'half of the nodes with another port of the overlay': [
    brokenMember(
      (at) => {
        for (const { metadata, status } of at('RouteAgent'))
          status['overlayPort'] = metadata.name.startsWith('gw') ? 4811 : 4812
      },
      { gateways: 2, workers: 2 },
    ),
    ['gw0', 'gw1', 'w0', 'w1'].map((name) => `degraded OverlayPortDiffers Node ${name}`),
  ],
  'a worker that has never heard its gateway nodes': [
    brokenMember((at) => {
      const worker = at('RouteAgent').find(({ metadata }) => metadata.name === 'w0')
      if (worker !== undefined)
        worker.status.conditions = [condition('NodesAnswer', 'Unknown', 'GatewayNodeUnheard', 'gw0, gw1')]
    }),
    ['degraded GatewayNodeUnheard Node w0'],
  ],
  'a worker without a routeagent': [
    brokenMember((at) => void at('RouteAgent').pop()),
    ['degraded RouteAgentMissing Cluster milano'],
  ],
  'routeagents that have stopped to write, and one of an earlier release': [
    brokenMember(
      (at) => {
        for (const { metadata, status } of at('RouteAgent'))
          if (metadata.name !== 'w1')
            status['heartbeatTime'] = metadata.name.startsWith('gw') ? NOW : '2020-01-01T00:00:00Z'
      },
      { workers: 3 },
    ),
    ['w0', 'w2'].map((name) => `degraded RouteAgentSilent RouteAgent ${name}`),
  ],
  'an image that nobody has': [
    brokenMember((at) => {
      for (const pod of at('Pod').filter(
        ({ metadata }) => metadata.labels?.['app.kubernetes.io/component'] === 'agent',
      )) {
        pod.status.conditions = [{ type: 'Ready', status: 'False' }]
        pod.status['containerStatuses'] = [
          { ready: false, state: { waiting: { reason: 'ImagePullBackOff', message: 'not found' } } },
        ]
      }
      for (const { metadata, status } of at('Deployment'))
        if (metadata.name === 'sealane-agent') status['readyReplicas'] = 0
      at('Lease').splice(0, 1, lease('sealane-agent', '') as unknown as Loose)
    }),
    ['degraded PartNotReady Deployment sealane-system/sealane-agent (AgentSilent ×1)'],
  ],
  'a new release of the agent has no image, and the old pods stay': [
    brokenMember((at) => {
      const [pod] = at('Pod').filter(({ metadata }) => metadata.name.includes('agent'))
      if (pod === undefined) return
      const status = {
        phase: 'Pending',
        containerStatuses: [{ state: { waiting: { reason: 'ImagePullBackOff', message: 'not found' } } }],
      }
      at('Pod').push({ ...pod, metadata: { ...pod.metadata, name: 'sealane-agent-new' }, status: status as never })
    }),
    ['degraded PartNotReady Deployment sealane-system/sealane-agent'],
  ],
  'a join was killed while maxUnavailable was raised': [
    brokenMember((at) => {
      const [one] = at('DaemonSet')
      if (one !== undefined) Object.assign(one.metadata, { annotations: { 'sealane.io/max-unavailable': '10%' } })
    }),
    ['notice MaxUnavailableRaised DaemonSet sealane-system/sealane-gateway'],
  ],
  'no DNS': [
    brokenMember((at) => {
      for (const { metadata, status } of at('Deployment'))
        if (metadata.name === 'sealane-dns') status['readyReplicas'] = 0
      const [own] = at('Cluster')
      if (own !== undefined)
        own.status.conditions = [condition('ClusterDNS', 'False', 'DoesNotAnswer', 'says SERVFAIL')]
    }),
    ['down PartNotReady Deployment sealane-system/sealane-dns (DoesNotAnswer ×1)'],
  ],
  'cluster DNS is not wired': [
    brokenMember((at) => {
      const [own] = at('Cluster')
      if (own !== undefined)
        own.status.conditions = [condition('ClusterDNS', 'False', 'DoesNotAnswer', 'says NXDOMAIN')]
    }),
    ['down DoesNotAnswer Cluster milano'],
  ],
  'pods got addresses of a new network': [
    brokenMember((at) => {
      const [own] = at('Cluster')
      own?.status.conditions.push(condition('PodAddresses', 'False', 'PodsOutsideRanges', 'pod shop/a has 10.50.0.5'))
    }),
    ['degraded PodsOutsideRanges Cluster milano'],
  ],
  'a part was removed': [
    brokenMember((at) => void at('DaemonSet').pop()),
    ['degraded PartMissing DaemonSet sealane-system/sealane-routeagent'],
  ],
  'not joined': [brokenMember((at) => void (at('Membership').length = 0)), ['down NoMembership Membership self']],
  'not joined, because nothing of the agent runs': [
    brokenMember((at) => {
      at('Membership').length = 0
      for (const { metadata, status } of at('Deployment'))
        if (metadata.name === 'sealane-agent') status['readyReplicas'] = 0
      for (const { metadata, status } of at('Pod')) if (metadata.name.includes('agent')) status['phase'] = 'Pending'
    }),
    ['down PartNotReady Deployment sealane-system/sealane-agent (NoMembership ×1)'],
  ],
  leaving: [
    brokenMember((at) => {
      const [membership] = at('Membership')
      if (membership !== undefined) membership.spec['phase'] = 'leaving'
    }),
    ['notice LeavingClusterset Membership self'],
  ],
  'a member that joined before there was a choice of what it exposes': [
    brokenMember((at) => {
      const [membership] = at('Membership')
      if (membership !== undefined) delete membership.spec['exposure']
    }),
    ['notice AllPodsExposed Membership self'],
  ],
  'a cluster, this cluster and a service are drained': [
    brokenMember((at) => {
      for (const { metadata, spec } of at('Cluster')) if (metadata.name !== 'tokyo') spec['drained'] = true
      const [exported] = at('ServiceExport')
      Object.assign(exported?.metadata ?? {}, { annotations: { 'sealane.io/drain': 'true' } })
    }),
    [
      'notice ClusterDrained Cluster milano',
      'notice ClusterDrained Cluster paris',
      'notice ServiceDrained ServiceExport shop/web0',
    ],
  ],
  'traffic policies: valid, not valid, and not looked at yet': [
    {
      ...healthyObjects(),
      TrafficPolicy: [
        trafficPolicy('good', condition('Valid', 'True', 'TrafficPolicyInForce')),
        trafficPolicy('new'),
        trafficPolicy('wrong', condition('Valid', 'False', 'TrafficPolicyInvalid', 'spec.order: 9 tiers')),
        trafficPolicy('later', condition('Valid', 'False', 'OfALaterRelease' as never)),
      ],
      ClusterTrafficPolicy: [
        {
          metadata: { name: 'default' },
          status: { conditions: [condition('Valid', 'False', 'TrafficPolicyInvalid')] },
        },
      ],
    },
    [
      'degraded TrafficPolicyInvalid ClusterTrafficPolicy default',
      'degraded TrafficPolicyInvalid TrafficPolicy shop/later',
      'degraded TrafficPolicyInvalid TrafficPolicy shop/wrong',
    ],
  ],
  'the own Cluster object was deleted': [
    brokenMember((at) => void at('Cluster').shift()),
    ['degraded OwnClusterMissing Cluster milano'],
  ],
  versions: [
    brokenMember((at) => {
      for (const { status } of at('RouteAgent')) status['version'] = '0.2.0'
    }),
    ['notice VersionSkew Cluster milano'],
  ],
  'versions too far apart': [
    brokenMember((at) => {
      for (const { status } of at('RouteAgent')) status['version'] = '0.4.1'
    }),
    ['degraded VersionSkew Cluster milano'],
  ],
  'a pod outside the ranges of the cluster, and the name of one that is too long': [
    brokenMember(
      (at) => {
        for (const [i, reason] of (['AddressOutsidePods', 'HostnameTooLong'] as const).entries())
          leaveOut(at, i, reason)
        for (const one of at('EndpointSlice'))
          if (one.metadata.name.startsWith('web0-')) Object.assign(one, { endpoints: [] })
      },
      { services: 3 },
    ),
    [
      'degraded AddressOutsidePods ServiceExport shop/web0 (ImportsWithoutBackends ×1)',
      'notice HostnameTooLong ServiceExport shop/web1',
    ],
  ],
  'backends of a site whose checks fail, in two slices of one service': [
    brokenMember(
      (at) => {
        const backend = (address: string, up: boolean) => ({ address, up, since: '2026-01-01T00:00:00Z', message: 'm' })
        const slice = (name: string, service: string, ...backends: object[]) => ({
          metadata: { name, namespace: 'shop', labels: { 'kubernetes.io/service-name': service } },
          endpoints: [],
          status: { check: 'tcp', backends },
        })
        at('EndpointSlice').push(
          slice('web9-ipv4', 'web9', backend('10.42.0.1', false), backend('10.42.0.2', true)) as never,
          slice('web9-ipv6', 'web9', backend('fd00::1', false)) as never,
          slice('well-ipv4', 'well', backend('10.42.0.3', true)) as never,
        )
        for (const one of at('EndpointSlice')) {
          if (!one.metadata.name.startsWith('web0-') || one.metadata.labels === undefined) continue
          Object.assign(one, { endpoints: [] })
        }
        at('EndpointSlice').push(slice('web0-ipv4', 'web0', backend('10.42.0.4', false)) as never)
      },
      { services: 3 },
    ),
    ['degraded BackendDown Service shop/web0 (ImportsWithoutBackends ×1)', 'degraded BackendDown Service shop/web9'],
  ],
  'exports of every kind': [
    brokenMember(
      (at) => {
        const [invalid, refused, pending, conflict, unused] = at('ServiceExport')
        if (invalid !== undefined)
          invalid.status.conditions = [condition('Valid', 'False', 'NoService', 'no Service web0')]
        if (refused !== undefined)
          refused.status.conditions = [condition('Ready', 'False', 'Failed', 'the broker refuses it')]
        if (pending !== undefined) pending.status.conditions = [condition('Ready', 'False', 'Pending', 'not confirmed')]
        for (const one of [conflict, unused]) one?.status.conditions.splice(2, 2)
        conflict?.status.conditions.push(condition('Conflict', 'True', 'PortConflict'))
        unused?.status.conditions.push(
          condition('sealane.io/Imported', 'False', 'NotImported', 'paris: NamespaceMissing'),
        )
      },
      { services: 6 },
    ),
    [
      'degraded Failed ServiceExport shop/web1',
      'degraded NoService ServiceExport shop/web0',
      'degraded Pending ServiceExport shop/web2',
      'notice NotImported ServiceExport shop/web4',
      'notice PortConflict ServiceExport shop/web3',
    ],
  ],
  'two services without a pod that is exported: the pods of one are outside the ranges': [
    brokenMember(
      (at) => {
        leaveOut(at, 0, 'HostnameTooLong,AddressOutsidePods')
        for (const slice of at('EndpointSlice'))
          if (/^web[01]-/.test(slice.metadata.name)) Object.assign(slice, { endpoints: [] })
      },
      { services: 3 },
    ),
    [
      'degraded AddressOutsidePods ServiceExport shop/web0 (ImportsWithoutBackends ×1)',
      'degraded ImportsWithoutBackends ServiceImport shop/web1',
      'notice HostnameTooLong ServiceExport shop/web0',
    ],
  ],
  'a service whose ready pods are behind a blocked link, and an exporter that is reached has none': [
    brokenMember((at) => {
      changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN)
      const [web] = at('ServiceImport')
      if (web !== undefined) Object.assign(web.status, { clusters: [{ cluster: 'paris' }, { cluster: 'tokyo' }] })
      at('EndpointSlice').splice(0, 9, importedSlice('web0', 'paris') as Loose)
    }),
    ['down ClusterCutOff Cluster paris (ImportsWithoutBackends ×1, LaneProbeTimeout ×4)'],
  ],
  'services without pods': [
    brokenMember(
      (at) => {
        for (const one of at('EndpointSlice')) Object.assign(one, { endpoints: [{ conditions: { ready: false } }] })
      },
      { services: 3 },
    ),
    ['degraded ImportsWithoutBackends Cluster milano (ImportsWithoutBackends ×3)'],
  ],
  'one service without pods': [
    brokenMember(
      (at) => {
        for (const one of at('EndpointSlice'))
          if (one.metadata.name.startsWith('web0-')) Object.assign(one, { endpoints: [] })
      },
      { services: 3 },
    ),
    ['degraded ImportsWithoutBackends ServiceImport shop/web0'],
  ],
}

/** Marks a part of the i-th export as left out; the message differs from ours, because no decision depends on it. */
function leaveOut(at: (kind: 'ServiceExport') => readonly Loose[], i: number, reason: ConditionReason): void {
  const one = at('ServiceExport')[i]
  if (one === undefined) return
  one.status.conditions = [
    condition('Valid', 'True', 'Valid'),
    condition('Ready', 'True', 'Exported', 'exported'),
    condition('sealane.io/Complete', 'False', reason, 'not all of it'),
  ]
}

for (const [name, [objects, lines]] of Object.entries(FAULTS)) {
  t.test(name, async (t) => {
    const reports = name === 'an image that nobody has' ? [] : healthyReports()
    const { health, problems } = diagnoseMember(factSet(objects, reports))
    t.same(linesOf(problems), lines)
    const severity = lines[0]?.split(' ')[0] ?? 'notice'
    t.equal(health, severity === 'notice' ? 'healthy' : severity)
    for (const { seen, mend, source, at } of problems) {
      t.match({ seen, mend, source }, { seen: /./, mend: /./, source: /./ }, 'what was seen, by whom, and what to do')
      t.equal(at, NOW, 'and when')
    }
  })
}

t.test('the last gateway that falls silent says so', async (t) => {
  const hang = (how: number) =>
    brokenMember((at) => {
      for (const gateway of at('Gateway').slice(0, how)) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
    })
  t.match(diagnoseMember(factSet(hang(1))).problems[0]?.seen, /^last heard \S+ ago$/)
  t.match(diagnoseMember(factSet(hang(2))).problems[0]?.seen, /^last heard \S+ ago, and no other gateway reports$/)
})

t.test('names and messages of other clusters steer no terminal', async (t) => {
  const evil = 'paris\u001b[2J\u202e\u0007'
  const objects = brokenMember(
    (at) =>
      changeLinks(at, ({ cluster }) => cluster === evil, { state: 'down', message: `\u001b]0;x\u0007${SILENCE}` }),
    {
      others: [evil, 'tokyo'],
    },
  )
  const { problems, overview } = diagnoseMember(factSet(objects))
  t.match(problems[0], { reason: 'ClusterCutOff', subject: { name: 'paris?[2J??' } })
  t.notMatch(JSON.stringify({ problems, overview }), /\\u001b|\u202e|\\u0007/)
})
