/** Facts about a member of a clusterset as a driver reads them: complete and healthy unless a test changes them. */
import {
  CONDITION_CLUSTER_DNS,
  CONDITION_CONNECTED,
  CONDITION_IMPORTED,
  CONDITION_IN_CONTACT,
} from '../../../model/conditions.ts'
import { LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER } from '../../../model/spec-constants.ts'
import type { Cluster, Condition, ConnectionStatus, Gateway, KubeObject } from '../../../model/objects.ts'
import type { ConditionReason } from '../../../model/reasons/reasons.ts'
import type { Fact, FactSet } from '../../../explain/facts/fact.ts'
import type { BrokerReport, FactKind } from '../../../explain/facts/shapes.ts'
import { networkPolicy } from '../../../install/policies/network-policies.ts'
import { clusterObject, endpointObject, membershipObject } from './cluster-objects.ts'
import { connectionTo, gatewayObject, internalIps, nodeObject, routeAgentObject } from './node-objects.ts'
import { exportObject, importObject, sliceObject } from './service-objects.ts'

export const NOW = '2026-11-25T12:00:00Z'
export const SELF = 'milano'

export interface HealthyInit {
  /** The ids of the other members. */
  readonly others?: readonly string[]
  /** The number of gateways here, and of each other member. */
  readonly gateways?: number
  readonly workers?: number
  /** The number of services imported from each other member, and of those exported from here. */
  readonly services?: number
  /** Whether the parts are pods of a Kubernetes cluster; otherwise it is a plain site. */
  readonly kubernetes?: boolean
}

export type ObjectsByKind = Partial<Record<FactKind, unknown[]>>

/** All objects of a healthy member, by kind. */
export function healthyObjects(init: HealthyInit = {}): ObjectsByKind {
  const { others = ['paris', 'tokyo'], gateways = 2, workers = 1, services = 1, kubernetes = true } = init
  const lanes = Array.from({ length: gateways }, (_, lane) => lane)
  const servers = lanes.map((lane) => `gw${lane}`)
  const all = [...servers, ...Array.from({ length: workers }, (_, i) => `w${i}`)]
  const names = Array.from({ length: services }, (_, i) => `web${i}`)
  const ready = { status: 'True', reason: 'KubeletReady', message: '', lastTransitionTime: '2026-11-20T00:00:00Z' }
  return {
    Membership: [membershipObject({ clusterId: SELF, exposure: 'exports' })],
    Cluster: [ownCluster(kubernetes), ...others.map((id, i) => otherCluster(id, i + 2))],
    Endpoint: [SELF, ...others].flatMap((cluster) =>
      lanes.map((lane) => endpointObject({ cluster, node: `gw${lane}`, lane })),
    ),
    Node: all.map((name) =>
      nodeObject(name, {
        metadata: {
          labels: { 'kubernetes.io/os': 'linux', ...(servers.includes(name) ? { 'sealane.io/gateway': 'true' } : {}) },
        },
        status: { ...internalIps('192.0.2.1'), ...(kubernetes ? { conditions: [{ type: 'Ready', ...ready }] } : {}) },
      }),
    ),
    Gateway: lanes.map((lane) => healthyGateway(lane, others, lanes)),
    RouteAgent: all.map((name) =>
      routeAgentObject(name, {
        version: '0.1.0',
        clusters: others.map((cluster) => ({ cluster, gateways: servers, mtu: 1420 })),
      }),
    ),
    ServiceExport: names.map((name) => ({ ...exportObject({ name }), status: { conditions: EXPORTED } })),
    ServiceImport: names.map((name) => ({
      ...importObject({ name }),
      status: { clusters: [SELF, ...others].map((cluster) => ({ cluster })) },
    })),
    EndpointSlice: [SELF, ...others].flatMap((cluster) => names.map((name) => importedSlice(name, cluster))),
    Lease: [lease('sealane-agent', 'sealane-agent-1')],
    ...(kubernetes ? installed(all) : {}),
  }
}

export function condition(type: string, status: Condition['status'], reason: ConditionReason, message = ''): Condition {
  return { type, status, reason, message, lastTransitionTime: '2026-11-25T10:00:00Z' }
}

const EXPORTED: readonly Condition[] = [
  condition('Valid', 'True', 'Valid'),
  condition('Ready', 'True', 'Exported', 'exported'),
  condition('Conflict', 'False', 'NoConflicts'),
  condition(CONDITION_IMPORTED, 'True', 'Imported'),
]

function ownCluster(kubernetes: boolean): Cluster {
  const conditions = kubernetes ? [condition(CONDITION_CLUSTER_DNS, 'True', 'Answers')] : []
  return clusterObject({ id: SELF, podCIDRs: ['10.42.0.0/16'] }, { status: { conditions } })
}

function otherCluster(id: string, index: number): Cluster {
  const conditions = [
    condition(CONDITION_IN_CONTACT, 'True', 'Heard'),
    condition(CONDITION_CONNECTED, 'True', 'LaneUp'),
  ]
  return clusterObject({ id, index, podCIDRs: [`10.${100 + index}.0.0/16`] }, { status: { conditions } })
}

function healthyGateway(lane: number, others: readonly string[], remoteLanes: readonly number[]): Gateway {
  return gatewayObject(`gw${lane}`, {
    version: '0.1.0',
    heartbeatTime: '2026-11-25T11:59:58Z',
    lanes: remoteLanes.map((remoteLane) => ({
      lane,
      remoteLane,
      device: `sealane${remoteLane}`,
      mtu: 1420,
      driver: 'kernel',
    })),
    connections: others.flatMap((cluster) => remoteLanes.map((remoteLane) => healthyLink(cluster, lane, remoteLane))),
    conditions: [condition('Ready', 'True', 'LanesUp')],
  })
}

function healthyLink(cluster: string, lane: number, remoteLane: number): ConnectionStatus {
  return connectionTo(cluster, 'up', {
    lane,
    remoteLane,
    endpoint: `${cluster}.gw${remoteLane}-lane${remoteLane}`,
    usingAddress: '198.51.100.7:4500',
    rttMs: 12.5,
    loss: 0,
    mtu: 1420,
    receiveMtu: 1420,
    handshakeAgeSeconds: 61,
  })
}

export function importedSlice(name: string, cluster: string, ready = true): unknown {
  const labels = { [LABEL_SERVICE_NAME]: name, [LABEL_SOURCE_CLUSTER]: cluster }
  return sliceObject(
    { name: `${name}-${cluster}`, labels },
    { endpoints: [{ addresses: ['10.42.0.9'], conditions: { ready } }] },
  )
}

export function lease(name: string, holderIdentity: string, renewTime = '2026-11-25T11:59:57.000000Z'): KubeObject {
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name, namespace: 'sealane-system' },
    spec: { holderIdentity, leaseDurationSeconds: 10, renewTime },
  }
}

/** The pods and their controllers: two agents, two DNS servers, and one of the other parts on each node. */
function installed(nodes: readonly string[]): ObjectsByKind {
  const pods = ['agent', 'dns', 'gateway', 'routeagent'].flatMap((part) =>
    (part === 'routeagent' ? nodes : nodes.slice(0, 2)).map((node, i) => podObject(part, `sealane-${part}-${i}`, node)),
  )
  const count = (part: string): number =>
    pods.filter(({ metadata }) => metadata.labels['app.kubernetes.io/component'] === part).length
  const policies = (['agent', 'dns'] as const).flatMap((part) =>
    networkPolicy({ part, namespace: 'sealane-system' }, true),
  )
  const template = { spec: { containers: [{ image: 'sealane:0.1.0' }] } }
  const named = (part: string) => ({ metadata: { name: `sealane-${part}`, namespace: 'sealane-system' } })
  return {
    Pod: pods,
    NetworkPolicy: [...policies],
    Deployment: ['agent', 'dns'].map((part) => ({
      ...named(part),
      spec: { replicas: count(part), template },
      status: { replicas: count(part), readyReplicas: count(part) },
    })),
    DaemonSet: ['gateway', 'routeagent'].map((part) => ({
      ...named(part),
      spec: { template },
      status: { desiredNumberScheduled: count(part), numberReady: count(part) },
    })),
  }
}

export function podObject(part: string, name: string, nodeName: string) {
  const labels = { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': part }
  return {
    metadata: { name, namespace: 'sealane-system', labels },
    spec: { nodeName, containers: [{ name: part, image: 'sealane:0.1.0' }] },
    status: {
      phase: 'Running',
      podIP: '10.42.0.4',
      conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: null }],
      containerStatuses: [{ ready: true, restartCount: 0, state: { running: {} } }],
    },
  }
}

export const HEALTHY_BROKER: BrokerReport = {
  publish: 'live',
  watch: 'live',
  since: '2026-11-25T08:00:00Z',
  heardAt: '2026-11-25T11:59:55Z',
  addresses: 3,
  failing: 0,
  certificateEnds: '2026-11-26T04:00:00Z',
}

export function reportFact(part: string, name: string, more: object = {}): Fact {
  const report = { part, name, version: '0.1.0', ready: true, ...more }
  return { t: 'report', source: `pod ${name}`, at: NOW, report }
}

/** One fact for each kind, and the reports of the parts. */
export function factSet(objects: ObjectsByKind, more: readonly Fact[] = healthyReports()): FactSet {
  const facts = Object.entries(objects).map(([kind, items]): Fact => {
    return { t: 'objects', kind: kind as FactKind, items, source: 'API server', at: NOW }
  })
  return { format: 1, takenAt: NOW, target: 'context "c1"', facts: [...facts, ...more] }
}

export function healthyReports(broker: BrokerReport = HEALTHY_BROKER): readonly Fact[] {
  return [
    reportFact('agent', 'sealane-agent-0', { broker, notImported: {} }),
    reportFact('agent', 'sealane-agent-1'),
    reportFact('dns', 'sealane-dns-0'),
    reportFact('cli', 'sealane'),
  ]
}

/** A copy by way of JSON, which a test may change. */
export function copyOf<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T
}
