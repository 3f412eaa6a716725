/**
 * Which packets of other clusters reach the pods of a node, traced through the planned table, and compared with the
 * access rules themselves. What a real kernel makes of the table: test/lanes/access.test.ts.
 */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { type TracePacket, traceNft } from '../../../kernel/fake/fake-nft-tracer.ts'
import { LiveCache } from '../../../kubeapi/driver/kind-store.ts'
import { type ObjectKey, objectKey } from '../../../kubeapi/driver/object-key.ts'
import { formatNft } from '../../../kernel/nft/nft-text.ts'
import { AccessRules, isOfferedTo } from '../../../model/access/access.ts'
import { ADMITTED_MARK } from '../../../model/kernel-ids.ts'
import type {
  Condition,
  AccessPolicy,
  Cluster,
  ClusterAccessPolicy,
  EndpointSlice,
  KubeObject,
  Membership,
  Namespace,
  Pod,
  ServiceExport,
} from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { type AccessPlan, accessGuard } from '../../../routeagent/access/access-chains.ts'
import { AccessPlanner, type AdmissionPlan, planAccess } from '../../../routeagent/access/plan-access.ts'
import { NOTHING_LIMITED } from '../../../routeagent/access/plan-calls.ts'
import { AccessReader } from '../../../routeagent/access/read-access.ts'
import { NodeTable } from '../../../routeagent/balance/node-table.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import {
  type NodeNftWorld,
  accessSite,
  nodeNftWorld,
  planTable,
  serviceContext,
} from '../../../routeagent/balance/plan-node-table.ts'
import { addressFamily } from '../../../routeagent/world/address-family.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import type { NodeRouteWorld } from '../../../routeagent/world/node-world.ts'
import { LazyInformer } from '../../../routeagent/world/read-world.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { equalsGolden } from '../../support/golden.ts'
import { membershipObject } from '../../support/objects/cluster-objects.ts'
import { accessPolicy, clusterAccessPolicy, observedAt } from '../../support/objects/access-objects.ts'
import { exportObject } from '../../support/objects/service-objects.ts'
import { ownSlice } from '../support/own-slice.ts'
import { cluster, dualStack, routeWorld, slice } from '../support/site.ts'

const CALLERS = { paris: '244.1.0.9', tokyo: '244.2.0.9', oslo: '244.3.0.9' } as const
const CLUSTERS = [
  dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd42:1::/48'),
  dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd42:2::/48'),
  cluster('tokyo', 3, '244.2.0.0/16'),
  cluster('oslo', 4, '244.3.0.0/16'),
]

const WORLD: Partial<NodeRouteWorld> = { clusters: CLUSTERS, exposure: 'exports' }
/** The gateway node gw-a has its pods in 10.42.0.0/24. */
const GATEWAY: Partial<NodeRouteWorld> = {
  ...WORLD,
  node: 'gw-a',
  facts: {
    ...routeWorld().facts,
    addresses: [
      { device: 'eth0', address: '192.168.7.1/24' },
      { device: 'cni0', address: '10.42.0.1/24' },
    ],
    mainRoutes: [{ destination: '10.42.0.0/24', type: 'unicast', device: 'cni0' }],
  },
}

/** The same, without the gateway gw-b. */
const ONLY_GATEWAY: Partial<NodeRouteWorld> = {
  ...GATEWAY,
  endpoints: routeWorld().endpoints.filter(({ spec }) => spec.node !== 'gw-b'),
}

interface Planned {
  readonly world: NodeNftWorld
  readonly access: AccessPlan
}

function planned(objects: readonly KubeObject[], change: Partial<NodeRouteWorld> = WORLD, family: 4 | 6 = 4): Planned {
  const world = nodeNftWorld(routeWorld(change), family, [{ protocol: 'tcp', port: 22 }])
  const of = <K extends KubeObject['kind']>(kind: K): Extract<KubeObject, { kind: K }>[] =>
    objects.filter((one): one is Extract<KubeObject, { kind: K }> => one.kind === kind)
  const rules = rulesOf(objects)
  const site = accessSite(world, routeWorld(change))
  const own = { family: addressFamily(family), rules, exports: of('ServiceExport'), slices: of('EndpointSlice') }
  return { world, access: { ...planAccess({ ...site, ...own }), calls: NOTHING_LIMITED } }
}

function rulesOf(objects: readonly KubeObject[]): AccessRules {
  const policies = objects.filter((one): one is AccessPolicy => one.kind === 'AccessPolicy')
  const clusterPolicies = objects.filter((one) => one.kind === 'ClusterAccessPolicy')
  return new AccessRules({ self: 'milano', clustersetDefault: 'allow', policies, clusterPolicies, clusters: CLUSTERS })
}

async function tableOf({ world, access }: Planned): Promise<FakeNft> {
  const nft = new FakeNft({ family: world.family === 4 ? 'ip' : 'ip6' })
  await nft.run(planTable(world, new Map(), access).statements)
  return nft
}

const CALL: TracePacket = {
  iif: 'sealane-vx',
  saddr: CALLERS.paris,
  daddr: '10.42.1.5',
  l4proto: 'tcp',
  dport: 8080,
  syn: true,
}

/** What comes of a packet before it is routed. */
function outcome(nft: FakeNft, change: Partial<TracePacket>): string {
  const result = traceNft(nft, 'prerouting', { ...CALL, ...change })
  const { packet, path } = result
  if (result.verdict === 'accept') return packet.mark === ADMITTED_MARK ? 'admitted' : 'not looked at'
  return /dropped-access-(\S+)/.exec(path.at(-1) ?? '')?.[1] ?? result.verdict
}

type Row = readonly [what: string, want: string, packet: Partial<TracePacket>]

const SHOP = [
  exportObject({ name: 'web' }),
  ownSlice('web', ['10.42.1.5', '10.42.1.6!'], [{ protocol: 'TCP', port: 8080 }]),
  ownSlice('hidden', ['10.42.1.7'], [{ protocol: 'TCP', port: 8080 }]),
  exportObject({ name: 'audit' }),
  ownSlice('audit', ['10.42.1.5'], [{ protocol: 'UDP', port: 514 }]),
  accessPolicy('shop/audit', { targetRefs: [{ name: 'audit' }], from: [{ clusters: ['paris', 'tokyo'] }] }),
] as const

const ANSWER = { ctDirection: 'reply', ctState: 'established', sport: 443, dport: 40000, syn: false } as const
const UDP = { l4proto: 'udp', syn: false } as const
const ERROR = { l4proto: 'icmp', icmpType: 3, ctState: 'related', saddr: '246.0.2.0', syn: false } as const
const ABOUT_CALL = { ...ERROR, originalSaddr: '10.42.1.5', replySaddr: CALLERS.paris } as const
const ECHO = { l4proto: 'icmp', icmpType: 8, syn: false } as const

t.test('on the node of the pod', async (t) => {
  const nft = await tableOf(planned(SHOP))
  const rows: readonly Row[] = [
    ['an exported port', 'admitted', {}],
    ['later packets of that call', 'admitted', { ctState: 'established', syn: false }],
    ['an endpoint that is not ready', 'admitted', { daddr: '10.42.1.6' }],
    ['another port', 'not-exported', { dport: 8081 }],
    ['that port with UDP', 'not-exported', UDP],
    ['a service that is not exported', 'not-exported', { daddr: '10.42.1.7' }],
    ['a pod without a service', 'not-exported', { daddr: '10.42.1.99' }],
    ['an open connection to what is not offered', 'not-exported', { dport: 8081, ctState: 'established' }],
    ['offered to paris', 'admitted', { ...UDP, dport: 514 }],
    ['not offered to oslo', 'not-offered', { ...UDP, dport: 514, saddr: CALLERS.oslo }],
    ['from an address of no cluster', 'not-offered', { saddr: '244.9.0.1' }],
    ['an answer', 'admitted', ANSWER],
    ['an answer to no call', 'no-connection', { ...ANSWER, ctState: 'invalid' }],
    ['a related connection, as helpers announce', 'not-exported', { dport: 20, ctState: 'related' }],
    ['an ICMP error about a call of a pod', 'admitted', { ...ERROR, replySaddr: CALLERS.paris }],
    ['an ICMP error about an answer of a pod', 'admitted', { ...ERROR, originalSaddr: CALLERS.paris }],
    ['one of a pod there', 'admitted', { ...ABOUT_CALL, saddr: CALLERS.paris }],
    ['one of a third cluster', 'no-connection', { ...ABOUT_CALL, saddr: CALLERS.oslo }],
    ['one of it about an answer', 'no-connection', { ...ERROR, saddr: CALLERS.oslo, originalSaddr: CALLERS.paris }],
    ['one of its gateway', 'no-connection', { ...ABOUT_CALL, saddr: '246.0.4.1' }],
    ['one of a node of ours', 'admitted', { ...ABOUT_CALL, saddr: '10.42.0.1' }],
    ['one of a gateway of ours', 'admitted', { ...ABOUT_CALL, saddr: '246.0.1.0' }],
    ['an ICMP error about a flow among pods', 'no-connection', { ...ERROR, originalSaddr: '10.42.1.6' }],
    ['an ICMP error to no call', 'no-connection', { l4proto: 'icmp', icmpType: 3, ctState: 'invalid' }],
    ['echo to what is exported', 'admitted', { ...ECHO, saddr: CALLERS.oslo }],
    ['echo to another pod', 'not-exported', { ...ECHO, daddr: '10.42.1.7' }],
    ['a timestamp request', 'not-exported', { ...ECHO, icmpType: 13 }],
    ['GRE', 'not-exported', { l4proto: 'gre', syn: false }],
    ['the node itself', 'node', { daddr: '10.42.1.1', local: true }],
    ['echo to the node', 'node', { ...ECHO, daddr: '10.42.1.1', local: true }],
    ['an open port of the node', 'admitted', { daddr: '10.42.1.1', local: true, dport: 22 }],
    ['an answer to the node', 'admitted', { ...ANSWER, daddr: '10.42.1.1', local: true }],
    ['from a lane', 'admitted', { iif: 'sealane0' }],
    ['from a cable of a lane, another port', 'not-exported', { iif: 'sealane0-rx', dport: 1 }],
    ['a probe of a node whose address is among the pods', 'admitted', { ...UDP, saddr: '192.168.7.1', dport: 4498 }],
    ['from a pod of this node', 'not looked at', { iif: 'cni0', saddr: '10.42.1.6', dport: 1 }],
    [
      'a call of a pod, for the reverse-path filter',
      'admitted',
      { iif: 'cni0', saddr: '10.42.1.6', daddr: CALLERS.paris },
    ],
    ['one of another node', 'admitted', { saddr: '10.42.0.9', daddr: CALLERS.paris }],
    ['one out of a lane', 'not looked at', { iif: 'sealane0', saddr: '10.42.0.9', daddr: CALLERS.paris }],
    ['for no pod', 'not looked at', { daddr: '192.168.7.11', dport: 1 }],
  ]
  for (const [what, want, packet] of rows) t.equal(outcome(nft, packet), want, what)
  for (const hook of ['forward', 'input'] as const) {
    const { path, packet } = traceNft(nft, hook, { ...CALL, oif: 'cni0', mark: ADMITTED_MARK | 0x4000 })
    t.equal(packet.mark, 0x4000, `${hook}: other programs do not see the mark`)
    t.match(path[0], /unmark/, 'before all other rules')
  }
})

t.test('on a gateway: packets that it passes on to other nodes', async (t) => {
  const nft = await tableOf(planned([...SHOP, ownSlice('web', ['10.42.1.5 on worker'])], GATEWAY))
  const rows: readonly Row[] = [
    ['an exported port', 'admitted', { notrack: true }],
    ['another port', 'not-exported', { notrack: true, dport: 1 }],
    ['not offered to oslo', 'admitted', { ...UDP, dport: 514, saddr: CALLERS.oslo, notrack: true }],
    ['what may be an answer', 'admitted', { notrack: true, dport: 1, syn: false }],
    ['UDP that may be an answer', 'admitted', { ...UDP, notrack: true, dport: 1 }],
    ['a SYN-ACK that this node tracks wrongly', 'admitted', { syn: false, ctState: 'invalid', dport: 1 }],
    ['echo to another pod', 'not-exported', { ...ECHO, notrack: true, daddr: '10.42.1.7' }],
    ['an ICMP error', 'admitted', { l4proto: 'icmp', icmpType: 3, notrack: true, syn: false }],
    ['GRE', 'protocol', { l4proto: 'gre', notrack: true, syn: false }],
    ['a part without its first part', 'fragment', { notrack: true, fragment: true, syn: false }],
    ['its own pod', 'not-exported', { daddr: '10.42.0.5' }],
    ['its own pod, UDP', 'not-exported', { ...UDP, daddr: '10.42.0.5' }],
  ]
  for (const [what, want, packet] of rows) t.equal(outcome(nft, packet), want, what)
})

t.test('on a gateway: what leaves the nodes of Sealane satisfies it', async (t) => {
  const objects = [...SHOP, ownSlice('web', ['10.42.1.5', '10.42.9.5'])]
  const nft = await tableOf(planned(objects, ONLY_GATEWAY))
  const at = { iif: 'sealane0', oif: 'eth0', daddr: '10.42.9.7', mark: ADMITTED_MARK } as const
  const rows: readonly Row[] = [
    ['an exported port', 'passes', { daddr: '10.42.9.5' }],
    ['one of a node that is known', 'passes', { daddr: '10.42.1.5', iif: 'sealane-vx' }],
    ['another port', 'not-exported', {}],
    ['UDP', 'not-exported', UDP],
    ['SCTP', 'not-exported', { l4proto: 'sctp', syn: false }],
    ['UDP that another gateway has handed on', 'not-exported', { ...UDP, iif: 'sealane-vx' }],
    ['from a cable of a lane', 'not-exported', { iif: 'sealane0-rx', syn: false }],
    ['not offered to oslo', 'not-offered', { ...UDP, daddr: '10.42.1.5', dport: 514, saddr: CALLERS.oslo }],
    ['an answer', 'passes', ANSWER],
    ['a SYN-ACK to no call', 'no-connection', { ...ANSWER, ctState: 'invalid' }],
    ['UDP that may be an answer, untracked', 'not-exported', { ...UDP, notrack: true }],
    ['an ICMP error about a call', 'passes', { ...ERROR, replySaddr: CALLERS.paris }],
    ['an ICMP error about a flow among pods', 'no-connection', { ...ERROR, originalSaddr: '10.42.1.6' }],
    ['over the overlay, its node decides', 'passes', { ...UDP, oif: 'sealane-vx' }],
    ['to its own pod, decided before', 'passes', { ...UDP, daddr: '10.42.0.5', oif: 'cni0' }],
    ['from a pod', 'passes', { ...UDP, iif: 'cni0', saddr: '10.42.0.5' }],
  ]
  for (const [what, want, change] of rows) {
    const { path, packet, ...end } = traceNft(nft, 'forward', { ...CALL, ...at, ...change })
    const isPassed = end.verdict === 'accept'
    const why = /dropped-access-(\S+)/.exec(path.at(-1) ?? '')?.[1] ?? end.verdict
    t.equal(isPassed ? 'passes' : why, want, what)
    if (isPassed && packet.iif !== 'cni0') t.equal(packet.mark, 0, `${what}: the mark is cleared`)
  }

  // Only one of several gateways knows a connection, so each refuses only what is a call for certain.
  const several = await tableOf(planned(objects, GATEWAY))
  const stateless: readonly Row[] = [
    ['an exported port', 'passes', { daddr: '10.42.9.5' }],
    ['another port', 'not-exported', {}],
    ['echo', 'not-exported', ECHO],
    ['a SYN-ACK to a call by another gateway', 'passes', { ...ANSWER, ctState: 'invalid' }],
    ['a later packet of such a call', 'passes', { ...ANSWER, ctDirection: 'original', ctState: 'new' }],
    ['UDP that may answer a call by another gateway', 'passes', UDP],
    ['SCTP that may answer one', 'passes', { l4proto: 'sctp', syn: false }],
    ['an ICMP error about a call by another gateway', 'passes', { ...ERROR, ctState: 'invalid' }],
    ['GRE', 'protocol', { l4proto: 'gre', syn: false }],
    ['its own pod', 'not-exported', { ...UDP, daddr: '10.42.0.5', oif: 'cni0' }],
  ]
  for (const [what, want, change] of stateless) {
    const packet = { ...CALL, ...at, ...change }
    const first = outcome(several, { ...packet, mark: 0 })
    const end = traceNft(several, 'forward', packet)
    t.equal(first !== 'admitted' ? first : end.verdict === 'accept' ? 'passes' : end.verdict, want, `several: ${what}`)
  }
  const nodeless = { nodes: routeWorld().nodes.slice(0, 1) }
  t.notOk(planned([], { ...GATEWAY, ...nodeless }).world.isOnlyGateway, 'nor if the other has no Node')
  t.notOk(planned([]).world.isOnlyGateway, 'on a node that is no gateway')
})

t.test('connections that are kept', async (t) => {
  const kept = ({ world, access }: Planned): Planned => {
    return { world, access: { ...access, calls: { ...access.calls, keepsOpen: true } } }
  }
  const nft = await tableOf(kept(planned(SHOP)))
  const open = { dport: 8081, ctState: 'established', syn: false } as const
  const rows: readonly Row[] = [
    ['what is no longer offered, of an open connection', 'admitted', open],
    ['a first packet', 'not-exported', { dport: 8081 }],
    ['a packet without a connection', 'not-exported', { ...open, ctState: 'new' }],
    ['a SYN that opens it once more', 'not-exported', { ...open, syn: true }],
    ['one that a helper announces', 'not-exported', { ...open, ctState: 'related' }],
    ['what is invalid', 'no-connection', { ...open, ctState: 'invalid' }],
    ['UDP has no end', 'not-exported', { ...open, l4proto: 'udp' }],
    ['SCTP is looked up', 'not-exported', { ...open, l4proto: 'sctp' }],
    ['the node', 'node', { ...open, daddr: '10.42.1.1', local: true }],
    ['what is exported', 'admitted', {}],
    ['the source of a caller, by a pod', 'not-exported', { iif: 'cni0', dport: 8081 }],
    ['the source of a caller, by the underlay', 'not-exported', { iif: 'eth0', dport: 8081 }],
    ['to what is exported, whichever way', 'admitted', { iif: 'eth0' }],
    ['UDP that no lane carries, about which we do not decide', 'admitted', { ...UDP, iif: 'eth0' }],
  ]
  for (const [what, want, packet] of rows) t.equal(outcome(nft, packet), want, what)
  for (const hook of ['forward', 'input'] as const) {
    const { packet } = traceNft(nft, hook, { ...CALL, iif: 'eth0', oif: 'cni0', mark: ADMITTED_MARK | 0x4000 })
    t.equal(packet.mark, 0x4000, `${hook}: other programs do not see the mark`)
  }
  const gateway = await tableOf(kept(planned(SHOP, GATEWAY)))
  t.equal(outcome(gateway, { iif: 'eth0', daddr: '10.42.0.5' }), 'not-exported', 'on a gateway')
  t.equal(outcome(gateway, { ...open, daddr: '10.42.0.5' }), 'admitted', 'its own pods')
  const pods = await tableOf(kept(planned(SHOP, { ...WORLD, exposure: 'pods' })))
  t.equal(outcome(pods, { iif: 'eth0', dport: 1 }), 'not looked at', 'if all pods are exposed')
})

t.test('exposure, IPv6, and what takes an offer back', async (t) => {
  const web = [exportObject({ name: 'web' }), ownSlice('web', ['10.42.1.5'])] as const
  const six: EndpointSlice = { ...ownSlice('web', ['fd42:1::5']), addressType: 'IPv6' }
  const rows: readonly [what: string, plan: Planned, want: string, packet?: Partial<TracePacket>][] = [
    ['pods: any port', planned([], { ...WORLD, exposure: 'pods' }), 'admitted', { dport: 1 }],
    ['a release without the choice', planned([], { clusters: CLUSTERS }), 'admitted', { dport: 1 }],
    ['nothing: an exported port', planned(web, { ...WORLD, exposure: 'nothing' }), 'not-exported'],
    ['nothing: an answer', planned(web, { ...WORLD, exposure: 'nothing' }), 'admitted', ANSWER],
    ['default deny', planned([...web, clusterAccessPolicy('deny')]), 'not-exported'],
    ['no export', planned([web[1]]), 'not-exported'],
    ['an endpoint of another node', planned([web[0], ownSlice('web', ['10.42.1.5 on other'])]), 'not-exported'],
    ['an imported slice', planned([web[0], slice('web', 'paris', ['10.42.1.5'])]), 'not-exported'],
    ['an export that is being deleted', planned([deleted(web[0]), web[1]]), 'not-exported'],
    ['a port for each offer', planned(SHOP), 'admitted', ECHO],
  ]
  for (const [what, plan, want, packet = {}] of rows) t.equal(outcome(await tableOf(plan), packet), want, what)
  const nft = await tableOf(planned([web[0], six], WORLD, 6))
  const base = { saddr: 'fd42:2::9', daddr: 'fd42:1::5' }
  for (const [want, packet] of [
    ['admitted', {}],
    ['not-exported', { dport: 1 }],
    ['admitted', { l4proto: 'icmpv6', icmpType: 128, syn: false }],
    ['admitted', { l4proto: 'icmpv6', icmpType: 2, ctState: 'related', syn: false }],
    ['no-connection', { l4proto: 'icmpv6', icmpType: 2, ctState: 'related', syn: false, originalSaddr: 'fd42:3::9' }],
  ] as const) {
    t.equal(outcome(nft, { ...base, ...packet }), want, `IPv6 ${JSON.stringify(packet)}`)
  }
})

function deleted(object: ServiceExport): ServiceExport {
  return { ...object, metadata: { ...object.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } }
}

t.test('the text of the chains', async (t) => {
  const { podCidrs, ownPods, origins } = planned([], GATEWAY).world
  const init = {
    family: addressFamily(4),
    exposure: 'exports',
    podCidrs,
    ownPods,
    isOnlyGateway: true,
    origins,
    openPorts: [],
    keepsOpen: false,
    marksAgain: true,
    sampled: false,
    remote: 'remote',
    nodes: 'overlay-nodes',
  } as const
  equalsGolden(t, formatNft(accessGuard(init), 'ip'), 'routeagent/access.txt')
})

t.test('samples of what is refused', async (t) => {
  const { world, access } = planned(SHOP)
  const nft = await tableOf({ world: { ...world, sampled: true }, access })
  const rows: readonly (readonly [want: string, packet: Partial<TracePacket>])[] = [
    ['not-exported', { dport: 8081 }],
    ['not-offered', { ...UDP, dport: 514, saddr: CALLERS.oslo }],
    ['no-connection', { ...ANSWER, ctState: 'invalid' }],
    ['node', { daddr: '10.42.1.1', local: true }],
  ]
  for (const [want, change] of rows) {
    const trace = (isOverLimits: boolean) => traceNft(nft, 'prerouting', { ...CALL, ...change }, { isOverLimits })
    const [sampled, flood] = [trace(false), trace(true)]
    t.same([sampled.verdict, flood.verdict], ['drop', 'drop'], want)
    t.ok(
      sampled.path.some((rule) => rule.includes(`counter name dropped-access-${want} `)),
      'counted',
    )
    t.match(sampled.path.at(-2), `log prefix "access-${want}" group 7310 snaplen 64`)
    t.ok(
      flood.path.some((rule) => rule.includes(`counter name dropped-access-${want} `)),
      'a flood is counted',
    )
    t.notOk(
      flood.path.some((rule) => rule.includes('log prefix')),
      'and not logged',
    )
  }
  t.equal(traceNft(nft, 'prerouting', CALL, { isOverLimits: true }).verdict, 'accept', 'what is admitted has no limit')
})

const IDS = ['paris', 'tokyo', 'oslo'] as const
const callers = fc.subarray([...IDS])
const parts = {
  exported: fc.boolean(),
  addresses: fc.subarray(['10.42.1.5', '10.42.1.6 on worker', '10.42.1.7 on other']),
  ports: fc.subarray([80, 81]),
  /** Undefined: no policy names the service. */
  from: fc.option(fc.array(callers, { maxLength: 2 }), { nil: undefined }),
  /** The policy is for all of the namespace. */
  ofAll: fc.boolean(),
}
const service = fc.record(parts)
const atFirst = fc.array(service, { minLength: 3, maxLength: 3 })
/** What each change makes different about one service and about the site. */
const steps = fc.array(
  fc.record({
    at: fc.nat({ max: 2 }),
    change: fc.record(parts, { requiredKeys: [] }),
    site: fc.record(
      {
        open: fc.boolean(),
        /** Packets of paris have other addresses. */
        parisMoves: fc.boolean(),
        isGateway: fc.boolean(),
      },
      { requiredKeys: [] },
    ),
  }),
  { minLength: 1, maxLength: 5 },
)

t.test('a change of an export or a slice that is said to change no plan changes none', (t) => {
  const [names, namespaces] = [fc.constantFrom('a', 'b'), fc.constantFrom('shop', 'kube-system')]
  const readiness = fc.constantFrom<Condition['status'] | undefined>('True', 'False', undefined)
  type Change = (planner: AccessPlanner, known: Known) => boolean
  const setters: fc.Arbitrary<Change> = fc.oneof(
    fc.tuple(names, namespaces, readiness, fc.nat(4)).map(([name, namespace, ready, leaves]): Change => {
      const made = exportObject({ name, namespace })
      const metadata = { ...made.metadata, ...(leaves === 0 && { deletionTimestamp: '2026-01-01T00:00:00Z' }) }
      const rest = { type: 'Ready', reason: 'Exported', message: '', lastTransitionTime: '' } as const
      const status = ready && { conditions: [{ ...rest, status: ready }] }
      const object: ServiceExport = { ...made, metadata, ...(status && { status }) }
      return (planner, { exports }) => (exports.set(`${namespace}/${name}`, object), planner.setExport(object))
    }),
    fc
      .tuple(names, names, namespaces, fc.nat(6), fc.subarray(['10.42.1.5', '10.42.1.6']))
      .map(([name, service, namespace, is, hosts]): Change => {
        const made = is === 0 ? slice(service, 'paris', hosts) : ownSlice(service, hosts)
        const metadata = { ...made.metadata, name, namespace }
        const object: EndpointSlice = { ...made, metadata, addressType: is === 1 ? 'IPv6' : 'IPv4' }
        return (planner, { slices }) => (slices.set(`${namespace}/${name}`, object), planner.setSlice(object))
      }),
    fc.tuple(names, namespaces).map(([name, namespace]): Change => {
      const id = `${namespace}/${name}`
      return (planner, { exports }) => (exports.delete(id), planner.removeExport(namespace, name))
    }),
    fc.tuple(names, namespaces).map(([name, namespace]): Change => {
      const id = `${namespace}/${name}`
      return (planner, { slices }) => (slices.delete(id), planner.removeSlice(namespace, name))
    }),
  )
  const context = { exposure: 'exports', node: undefined, callers: new Map<string, string[]>() } as const
  const rules = rulesOf([])
  let silent = 0
  fc.assert(
    fc.property(fc.array(setters, { minLength: 20, maxLength: 30 }), (changes) => {
      const planner = new AccessPlanner(addressFamily(4))
      planner.setContext(context)
      planner.setRules(rules)
      const known: Known = { exports: new Map(), slices: new Map() }
      for (const change of changes) {
        planner.takeChanges()
        if (change(planner, known)) continue
        silent += 1
        const [exports, slices] = [[...known.exports.values()], [...known.slices.values()]]
        const atOnce = planAccess({ ...context, family: addressFamily(4), rules, exports, slices })
        if (!isDeepStrictEqual(texts(planner.plan), texts(atOnce))) return false
      }
      return true
    }),
    { numRuns: 100 },
  )
  t.ok(silent > 100, 'there were such changes')
  t.end()
})

interface Known {
  readonly exports: Map<string, ServiceExport>
  readonly slices: Map<string, EndpointSlice>
}

t.test('the table admits whom the rules name, after each of several changes', async (t) => {
  await fc.assert(
    fc.asyncProperty(atFirst, steps, async (first, changes) => {
      const nft = new FakeNft()
      const logger = new CapturingLogger()
      const metrics = routeAgentMetrics(createMetrics('routeagent'))
      const table = new NodeTable({ nft, clock: new FakeClock(), logger, metrics })
      const planner = new BalancePlanner(serviceContext(routeWorld(WORLD), 4))
      const { world: plain } = planned([])
      const world = { ...plain, remote: [...plain.remote, '244.9.0.0/16'] }
      const caches = new AccessObjects()
      const reader = new AccessReader(caches.all, addressFamily(4), logger)
      reader.follow(() => undefined)
      const services = [...first]
      let place = { open: true, parisMoves: false, isGateway: false }
      for (const { at, change, site: moves } of changes) {
        services[at] = { ...(services[at] as Service), ...change }
        place = { ...place, ...moves }
        const { parisMoves, isGateway, open } = place
        const objects = objectsOf({ services, open })
        caches.replace(objects)
        const site = accessSite(world, { self: 'milano', node: 'worker' })
        const moved = new Map([...site.callers, ['paris', [parisMoves ? '244.9.0.0/16' : '244.1.0.0/16']]])
        const context = { ...site, callers: moved, node: isGateway ? undefined : 'worker' }
        const access = reader.plan(context)
        const { exports, slices } = caches
        const whole = { family: addressFamily(4), rules: rulesOf(objects) }
        const atOnce = planAccess({ ...context, ...whole, exports: exports.list(), slices: slices.list() })
        if (!isDeepStrictEqual(texts(access.plan), texts(atOnce))) return false
        await table.apply({ world, planner, changes: [], access }, true, new AbortController().signal)
        for (const caller of IDS) {
          const saddr = caller === 'paris' && parisMoves ? '244.9.0.9' : CALLERS[caller]
          for (const address of ['10.42.1.5', '10.42.1.6', '10.42.1.7']) {
            for (const port of [80, 81]) {
              const isIn = outcome(nft, { saddr, daddr: address, dport: port }) === 'admitted'
              if (isIn !== mayCome(objects, caller, address, port, isGateway)) return false
            }
          }
        }
      }
      // Without a repair, each change alone made the table what the plan says.
      return !logger.lines.some(({ level }) => level === 'warn')
    }),
    { numRuns: 60 },
  )
  t.pass()
})

function texts({ ports, addresses, groups }: AdmissionPlan): unknown {
  const targets = (of: AdmissionPlan['ports']) => [...of].map(([key, { target }]) => `${key} ${target}`).sort()
  return { ports: targets(ports), addresses: targets(addresses), groups }
}

/** The caches that the access rules are read from; a change is reported as a driver reports it. */
class AccessObjects {
  readonly exports = new LiveCache<ServiceExport>()
  readonly slices = new LiveCache<EndpointSlice>()
  readonly policies = new LiveCache<AccessPolicy>()
  readonly clusterPolicies = new LiveCache<ClusterAccessPolicy>()
  readonly memberships = new LiveCache<Membership>()
  readonly clusters = new LiveCache<Cluster>()
  readonly all = {
    memberships: this.memberships,
    clusters: this.clusters,
    slices: this.slices,
    access: { exports: this.exports, policies: this.policies, clusterPolicies: this.clusterPolicies },
    callers: {
      pods: new LazyInformer(() => new LiveCache<Pod>()),
      namespaces: new LazyInformer(() => new LiveCache<Namespace>()),
    },
  }

  constructor() {
    for (const object of CLUSTERS) this.clusters.replace(keyOf(object), object)
    this.memberships.replace(keyOf(membershipObject()), membershipObject())
    const { exports, slices, policies, clusterPolicies, memberships, clusters } = this
    for (const cache of [exports, slices, policies, clusterPolicies, memberships, clusters]) cache.markSynced()
  }

  /** Objects that are equal stay the same object. */
  replace(objects: readonly KubeObject[]): void {
    this.#replace(this.exports, objects, 'ServiceExport')
    this.#replace(this.slices, objects, 'EndpointSlice')
    this.#replace(this.policies, objects, 'AccessPolicy')
    this.#replace(this.clusterPolicies, objects, 'ClusterAccessPolicy')
  }

  #replace<T extends KubeObject>(cache: LiveCache<T>, objects: readonly KubeObject[], kind: T['kind']): void {
    const wanted = new Map(objects.flatMap((one) => (one.kind === kind ? [[keyOf(one), one as T]] : [])))
    for (const had of cache.list()) if (!wanted.has(keyOf(had))) cache.replace(keyOf(had), undefined)
    for (const [key, object] of wanted) {
      const had = cache.get(object.metadata.name, object.metadata.namespace)
      if (!isDeepStrictEqual(had, object)) cache.replace(key, object)
    }
  }
}

function keyOf({ metadata }: KubeObject): ObjectKey {
  return objectKey(metadata.name, metadata.namespace)
}

t.test('a change is work only for the services that it concerns', async (t) => {
  const read: string[] = []
  const policies: AccessPolicy[] = []
  class CountedRules extends AccessRules {
    override offerOf(namespace: string, name: string): ReturnType<AccessRules['offerOf']> {
      read.push(name)
      return super.offerOf(namespace, name)
    }
  }
  const rules = () =>
    new CountedRules({ self: 'milano', clustersetDefault: 'allow', policies, clusterPolicies: [], clusters: CLUSTERS })
  const planner = new AccessPlanner(addressFamily(4))
  const context = { exposure: 'exports', node: 'worker', callers: new Map([['paris', ['244.1.0.0/16']]]) } as const
  const names = ['a', 'b', 'c']
  planner.setContext(context)
  planner.setRules(rules())
  planner.replaceAll(
    names.map((name) => exportObject({ name })),
    names.map((name, i) => ownSlice(name, [`10.42.1.${i}`, '10.42.1.9'], [{ protocol: 'TCP', port: 80 }])),
  )
  const take = () => {
    read.length = 0
    const { ports, groups } = planner.takeChanges()
    return { read: [...read], ports: ports.map(({ key }) => key), groups: groups.map(({ key }) => key) }
  }
  t.equal(take().read.length, 3, 'at first, all')
  t.same(take(), { read: [], ports: [], groups: [] }, 'without a change, none')

  const rows: readonly [what: string, change: () => void, want: ReturnType<typeof take>][] = [
    [
      'a policy',
      () => {
        policies.push(accessPolicy('shop/p', { targetRefs: [{ name: 'b' }], from: [{ clusters: ['paris'] }] }))
        planner.setRules(rules())
        planner.touch('shop', ['b'])
      },
      { read: ['b'], ports: ['10.42.1.1 . tcp . 80'], groups: ['paris'] },
    ],
    [
      'a slice',
      () => planner.setSlice(ownSlice('c', ['10.42.1.2', '10.42.1.8'], [{ protocol: 'TCP', port: 80 }])),
      { read: ['c'], ports: ['10.42.1.8 . tcp . 80'], groups: [] },
    ],
    [
      'prefixes of a cluster',
      () => planner.setContext({ ...context, callers: new Map([['paris', ['244.8.0.0/16']]]) }),
      { read: [], ports: [], groups: ['paris'] },
    ],
    [
      'services that shared an endpoint with what stays',
      () => {
        planner.removeExport('shop', 'a')
        planner.removeExport('shop', 'c')
      },
      {
        read: [],
        ports: ['10.42.1.0 . tcp . 80', '10.42.1.2 . tcp . 80', '10.42.1.8 . tcp . 80', '10.42.1.9 . tcp . 80'],
        groups: [],
      },
    ],
  ]
  for (const [what, change, want] of rows) {
    change()
    t.same(take(), want, what)
  }
  const guarded = exportObject({ name: 'dns', namespace: 'kube-system' })
  const ready = (status: 'True' | 'False'): ServiceExport => {
    const condition = { type: 'Ready', status, reason: 'Exported', message: '', lastTransitionTime: '' } as const
    return { ...guarded, status: { conditions: [condition] } }
  }
  const own = ownSlice('dns', ['10.42.1.7'], [{ protocol: 'UDP', port: 53 }])
  planner.setSlice({ ...own, metadata: { ...own.metadata, namespace: 'kube-system' } })
  for (const [status, changed] of [
    ['False', 0],
    ['True', 1],
    ['True', 0],
    ['False', 1],
  ] as const) {
    planner.setExport(ready(status))
    t.equal(take().ports.length, changed, `of a guarded namespace, what the broker accepts: Ready=${status}`)
  }
  const isOpen = (...found: readonly string[]): boolean => {
    const conditions = found.map((text) => {
      const [type = '', status, reason] = text.split(' ')
      return { type, status, reason, message: '', lastTransitionTime: '' } as Condition
    })
    planner.setExport({ ...guarded, status: { conditions } })
    planner.takeChanges()
    return planner.plan.ports.has('10.42.1.7 . udp . 53')
  }
  const [valid, imported] = ['Valid True Valid,NamespaceAllowed', 'sealane.io/Imported']
  const cases: readonly (readonly [say: string, open: boolean, conditions: readonly string[]])[] = [
    ['no condition yet', false, []],
    ['never stored', false, [valid, 'Ready False Pending']],
    ['all of it is stored', true, [valid, 'Ready True Exported', `${imported} True Imported`]],
    ['a slice is over quota', true, [valid, 'Ready False QuotaRecords', `${imported} True Imported`]],
    ['before members report', true, [valid, 'Ready False QuotaBytes', `${imported} Unknown NotTold`]],
    ['all of it is over quota', false, [valid, 'Ready False QuotaRecords']],
    ['a slice is refused', true, [valid, 'Ready False Failed', `${imported} False NotImported`]],
    ['all of it is refused', false, [valid, 'Ready False Failed', `${imported} Unknown Pending`]],
    ['a change waits for the broker', true, [valid, 'Ready False Pending', `${imported} True Imported`]],
    ['the namespace is refused', false, [valid, 'Ready False NamespaceNotAllowed', `${imported} True Imported`]],
    ['withdrawn', false, ['Valid False NamespaceNotAllowed', 'Ready False Pending', `${imported} Unknown Pending`]],
    [
      'withdrawn, and not yet said',
      false,
      ['Valid False NoService', 'Ready False Pending', `${imported} True Imported`],
    ],
    ['after a leave', false, ['Valid Unknown Pending', 'Ready False Pending', `${imported} Unknown Pending`]],
    ['exported again', true, [valid, 'Ready True Exported', `${imported} Unknown Pending`]],
  ]
  for (const [say, open, conditions] of cases) t.equal(isOpen(...conditions), open, `of a guarded namespace: ${say}`)
})

t.test('a policy that cannot be read: what it said stays, and one that said nothing yet closes', async (t) => {
  const caches = new AccessObjects()
  const logger = new CapturingLogger()
  const reader = new AccessReader(caches.all, addressFamily(4), logger)
  reader.follow(() => undefined)
  const site = { ...accessSite(planned([]).world, { self: 'milano', node: 'worker' }) }
  const web = [exportObject({ name: 'web' }), ownSlice('web', ['10.42.1.5'])]
  caches.replace(web)
  const ports = () => [...reader.plan(site).plan.ports].map(([key, { target }]) => `${key} ${target}`)
  const before = ports()
  t.match(before, ['10.42.1.5 . tcp . 8080 goto all-members'])
  const broken = { ...accessPolicy('shop/p', { from: [] }), spec: {} } as unknown as AccessPolicy
  caches.replace([...web, broken])
  t.same(ports(), [], 'nothing is known of it')
  const fromOslo = ['10.42.1.5 . tcp . 8080 goto from-oslo']
  caches.replace([...web, accessPolicy('shop/p', { targetRefs: [{ name: 'web' }], from: [{ clusters: ['oslo'] }] })])
  t.same(ports(), fromOslo)
  caches.replace([...web, broken])
  t.same([ports(), ports()], [fromOslo, fromOslo], 'what it said stays')
  caches.replace([...web, accessPolicy('shop/p', { targetRefs: [{ name: 'api' }], from: [] })])
  t.same(ports(), before, 'the service that only the old version named')
  t.same(logger.lines, [])
})

t.test('what the agent writes into the status of a policy is work only while the policy is not valid', async (t) => {
  const caches = new AccessObjects()
  const reader = new AccessReader(caches.all, addressFamily(4), new CapturingLogger())
  let pokes = 0
  reader.follow(() => (pokes += 1))
  const poked = (change: () => void): boolean => {
    const before = pokes
    change()
    return pokes > before
  }
  for (const valid of [accessPolicy('shop/p', { from: [] }, 1), clusterAccessPolicy('deny')]) {
    const status = { conditions: observedAt(1) }
    const broken = { ...valid, spec: { ...valid.spec, later: 1 } } as unknown as typeof valid
    const steps: readonly (readonly [say: string, typeof valid, boolean])[] = [
      ['a new one', valid, true],
      ['its status', { ...valid, status }, false],
      ['another spec', { ...broken, status }, true],
      ['the status of one that is not valid', { ...broken, status: { conditions: observedAt(2) } }, true],
      ['valid again', { ...valid, status }, true],
    ]
    for (const [say, one, want] of steps)
      t.equal(
        poked(() => caches.replace([one])),
        want,
        `${valid.kind}: ${say}`,
      )
    t.equal(
      poked(() => caches.replace([])),
      true,
      `${valid.kind}: removed`,
    )
  }
})

t.test('ids that no schema has checked hinder no table, and open nothing to others', async (t) => {
  const [web, audit] = [{ targetRefs: [{ name: 'web' }] }, { targetRefs: [{ name: 'audit' }] }]
  for (const id of ['pa ris', 'pa"ris', '\u4e2d'.repeat(60), '', 'oslo.paris']) {
    const nft = await tableOf(
      planned([
        ...SHOP.filter(({ kind }) => kind !== 'AccessPolicy'),
        accessPolicy('shop/web', { ...web, from: [{ clusters: [id] as never }] }),
        accessPolicy('shop/audit', { ...audit, from: [{ clusters: ['oslo', 'paris'] }] }),
      ]),
    )
    t.equal(outcome(nft, {}), 'not-offered', `${JSON.stringify(id)}: of another`)
    t.equal(outcome(nft, { ...UDP, dport: 514 }), 'admitted', `${JSON.stringify(id)}: what is offered`)
  }
})

function objectsOf({ services, open }: { services: readonly Service[]; open: boolean }): KubeObject[] {
  return [
    clusterAccessPolicy(open ? 'allow' : 'deny'),
    ...services.flatMap(({ exported, addresses, ports, from, ofAll }, i): KubeObject[] => [
      ...(exported ? [exportObject({ name: `s${i}` })] : []),
      ownSlice(
        `s${i}`,
        addresses,
        ports.map((port) => ({ protocol: 'TCP', port, name: String(port) })),
      ),
      ...(from === undefined
        ? []
        : [
            accessPolicy(`shop/p${i}`, {
              ...(ofAll ? {} : { targetRefs: [{ name: `s${i}` }] }),
              from: from.map((clusters) => ({ clusters })),
            }),
          ]),
    ]),
  ]
}

type Service = typeof service extends fc.Arbitrary<infer T> ? T : never

/** Reads the objects one by one, without the plan. */
function mayCome(
  objects: readonly KubeObject[],
  caller: string,
  address: string,
  port: number,
  isGateway: boolean,
): boolean {
  const rules = rulesOf(objects)
  return objects.some((one) => {
    if (one.kind !== 'ServiceExport') return false
    const { name } = one.metadata
    const serves = objects.some(
      (other) =>
        other.kind === 'EndpointSlice' &&
        other.metadata.name === `${name}-own` &&
        (other.ports ?? []).some((p) => p.port === port) &&
        (other.endpoints ?? []).some((e) => e.addresses.includes(address) && (isGateway || e.nodeName !== 'other')),
    )
    return serves && isOfferedTo(rules.offerOf('shop', name).offer, caller)
  })
}
