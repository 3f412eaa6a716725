/**
 * What the API server or the broker refuses a member, with its consequences: one line for each problem that no other
 * problem causes.
 */
import t from 'tap'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import type { Fact } from '../../explain/facts/fact.ts'
import {
  HEALTHY_BROKER,
  NOW,
  type ObjectsByKind,
  condition,
  factSet,
  healthyReports,
  lease,
  reportFact,
} from '../support/objects/member-facts.ts'
import { type Loose, brokenMember, linesOf } from './broken-member.ts'

/** Only the agent has started, and it is not ready. */
function notJoined(): ObjectsByKind {
  return brokenMember((at) => {
    at('Membership').length = 0
    for (const { metadata, status } of at('Deployment')) {
      if (metadata.name === 'sealane-agent') status['readyReplicas'] = 0
    }
    for (const { metadata, status } of at('Pod')) {
      if (metadata.name.includes('agent')) status.conditions = [{ type: 'Ready', status: 'False' }]
    }
  })
}

/** From a name to the broken objects and the expected lines. */
const REFUSED: Readonly<Record<string, readonly [objects: ObjectsByKind, lines: readonly string[]]>> = {
  'the agent may not write its Lease any more': [
    brokenMember((at) => void at('Lease').splice(0, 1, lease('sealane-agent', '') as unknown as Loose)),
    ['degraded PartForbidden Deployment sealane-system/sealane-agent (AgentSilent ×1)'],
  ],
  'the Secret with the identity was deleted': [
    brokenMember(() => undefined),
    ['degraded IdentityMissing Secret sealane-system/sealane-identity'],
  ],
  'the Secret with the identity was deleted, and the agent was started anew': [
    brokenMember((at) => void at('Lease').splice(0, 1, lease('sealane-agent', '') as unknown as Loose)),
    ['degraded IdentityMissing Secret sealane-system/sealane-identity (AgentSilent ×1)'],
  ],
  'the agent may not change its Secret any more': [
    brokenMember(() => undefined),
    ['degraded PartForbidden Deployment sealane-system/sealane-agent'],
  ],
  'the broker is away, and what is wrong with exports was so before': [
    brokenMember(
      (at) => {
        const [conflict, missing, unused] = at('ServiceExport')
        conflict?.status.conditions.splice(2, 2)
        conflict?.status.conditions.push(condition('Conflict', 'True', 'PortConflict'))
        if (missing !== undefined) missing.status.conditions = [condition('Valid', 'False', 'NoService', 'none')]
        unused?.status.conditions.splice(2, 2)
        unused?.status.conditions.push(condition('sealane.io/Imported', 'False', 'NotImported', 'paris: no namespace'))
      },
      { services: 3 },
    ),
    [
      'degraded BrokerUnreached Broker -',
      'degraded NoService ServiceExport shop/web1',
      'notice NotImported ServiceExport shop/web2',
      'notice PortConflict ServiceExport shop/web0',
    ],
  ],
  'a webhook refuses what the agent publishes': [
    brokenMember(
      (at) => {
        for (const one of at('ServiceExport').slice(0, 2)) one.status.conditions = []
      },
      { services: 3 },
    ),
    ['degraded AdmissionRefuses Deployment sealane-system/sealane-agent (Pending ×2)'],
  ],
  'a webhook refuses what a gateway and a routeagent report': [
    brokenMember((at) => {
      const [gateway] = at('Gateway')
      if (gateway !== undefined) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
    }),
    [
      'degraded AdmissionRefuses DaemonSet sealane-system/sealane-gateway (GatewaySilent ×1)',
      'degraded AdmissionRefuses DaemonSet sealane-system/sealane-routeagent',
    ],
  ],
  'the API server takes no writes': [
    brokenMember((at) => {
      for (const gateway of at('Gateway')) gateway.status['heartbeatTime'] = '2026-11-25T11:50:00Z'
      at('Lease').splice(0, 1, lease('sealane-agent', '') as unknown as Loose)
    }),
    ['down ApiServerReadOnly ApiServer - (GatewaySilent ×2, GatewayStatusStale ×2, AgentSilent ×1)'],
  ],
  'a webhook refuses something, and an export has no Service': [
    brokenMember(
      (at) => {
        const [one] = at('ServiceExport')
        if (one !== undefined) one.status.conditions = [condition('Valid', 'False', 'NoService', 'no Service web0')]
      },
      { services: 3 },
    ),
    ['degraded AdmissionRefuses Deployment sealane-system/sealane-agent', 'degraded NoService ServiceExport shop/web0'],
  ],
  'a standby was refused before another one joined': [brokenMember(() => undefined), []],
  'the namespace was deleted, and the token of the next join was used': [
    brokenMember((at) => {
      for (const { metadata, status } of at('Deployment')) {
        if (metadata.name === 'sealane-agent') status['readyReplicas'] = 1
      }
      const [own] = at('Cluster')
      if (own !== undefined)
        own.status.conditions = [condition('ClusterDNS', 'False', 'DoesNotAnswer', 'says SERVFAIL')]
    }),
    ['down TokenUsed Membership self (DoesNotAnswer ×1, PartNotReady ×1)'],
  ],
  'the broker confirms each change late': [brokenMember(() => undefined), ['degraded StoreSlow Broker -']],
  'the broker confirms most changes late': [brokenMember(() => undefined), []],
  "the broker's clock is ahead": [brokenMember(() => undefined), ['degraded BrokerClockDiffers Cluster milano']],
  "the broker's clock is somewhat behind": [
    brokenMember(() => undefined),
    ['notice BrokerClockDiffers Cluster milano'],
  ],
  "the broker's clock is as good as any": [brokenMember(() => undefined), []],
  "the broker's clock is ahead, and it takes nothing": [
    brokenMember(() => undefined),
    ['degraded BrokerClockDiffers Cluster milano', 'degraded BrokerUnreached Broker -'],
  ],
  'a clock that was wrong when the broker was heard last': [
    brokenMember(() => undefined),
    ['notice BrokerUnreached Broker -'],
  ],
  'a token that was used': [notJoined(), ['down TokenUsed Membership self (PartNotReady ×1)']],
  'an id that is taken': [notJoined(), ['down ClusterIdTaken Membership self (PartNotReady ×1)']],
  'an operator has not accepted it yet': [notJoined(), ['down JoinAwaitsApproval Membership self (PartNotReady ×1)']],
  'ranges that were stated after the join wait for an operator': [
    brokenMember(() => undefined),
    ['degraded RangesAwaitApproval Cluster milano'],
  ],
  'a refusal that this release does not know': [notJoined(), ['down NoMembership Membership self (PartNotReady ×1)']],
  'a new token was refused, and the certificate has ended': [
    brokenMember(() => undefined),
    ['degraded CertificateExpired Cluster milano', 'degraded TokenExpired Membership self'],
  ],
}

/** The reports of the parts, where they differ from those of a healthy member. */
const REPORTS: Readonly<Record<string, readonly Fact[]>> = {
  'the agent may not write its Lease any more': [
    agentReport({ refused: [refusal('PartForbidden', 'update leases.coordination.k8s.io')] }),
  ],
  'the Secret with the identity was deleted': [
    agentReport({ broker: HEALTHY_BROKER, refused: [refusal('PartForbidden', 'create secrets')] }),
  ],
  'the Secret with the identity was deleted, and the agent was started anew': [
    agentReport({ refused: [refusal('PartForbidden', 'create secrets')] }),
  ],
  'the agent may not change its Secret any more': [
    agentReport({ broker: HEALTHY_BROKER, refused: [refusal('PartForbidden', 'patch secrets')] }),
  ],
  'the broker is away, and what is wrong with exports was so before': healthyReports({
    ...HEALTHY_BROKER,
    ...{ watch: 'waiting', publish: 'waiting', since: '2026-11-25T11:30:00Z' },
  }),
  'a webhook refuses what the agent publishes': [
    agentReport({
      broker: HEALTHY_BROKER,
      refused: [
        refusal('AdmissionRefuses', 'patch serviceexports.multicluster.x-k8s.io/status', 'webhook deny.example.com'),
      ],
    }),
  ],
  'a webhook refuses what a gateway and a routeagent report': [
    ...healthyReports(),
    ...(['gateway', 'routeagent'] as const).map((part) =>
      reportFact(part, `${part} on gw0`, {
        refused: [refusal('AdmissionRefuses', `patch ${part}s.sealane.io/status`)],
      }),
    ),
  ],
  'the API server takes no writes': (['agent', 'gateway'] as const).map((part) =>
    reportFact(part, part, { refused: [refusal('ApiServerReadOnly', 'update leases.coordination.k8s.io')] }),
  ),
  'a webhook refuses something, and an export has no Service': [
    agentReport({
      broker: HEALTHY_BROKER,
      refused: [refusal('AdmissionRefuses', 'patch endpointslices.discovery.k8s.io')],
    }),
  ],
  'a standby was refused before another one joined': [
    ...healthyReports(),
    reportFact('agent', 'sealane-agent-2', { joinRefused: 'TokenExpired' }),
    reportFact('dns', 'sealane-dns-1', { joinRefused: 'TokenUsed' }),
  ],
  'the namespace was deleted, and the token of the next join was used': [
    agentReport({ ready: false, joinRefused: 'TokenUsed' }),
  ],
  'the broker confirms each change late': healthyReports({ ...HEALTHY_BROKER, answeredMs: 500 }),
  'the broker confirms most changes late': healthyReports({ ...HEALTHY_BROKER, answeredMs: 499 }),
  "the broker's clock is ahead": healthyReports({ ...HEALTHY_BROKER, aheadMs: 300_000 }),
  "the broker's clock is somewhat behind": healthyReports({ ...HEALTHY_BROKER, aheadMs: -10_000 }),
  "the broker's clock is as good as any": healthyReports({ ...HEALTHY_BROKER, aheadMs: 9_999 }),
  "the broker's clock is ahead, and it takes nothing": healthyReports({
    ...{ ...HEALTHY_BROKER, aheadMs: 900_000 },
    ...{ publish: 'waiting', since: '2026-11-25T11:50:00Z' },
  }),
  'a clock that was wrong when the broker was heard last': healthyReports({
    ...{ ...HEALTHY_BROKER, aheadMs: 900_000 },
    ...{ watch: 'waiting', since: '2026-11-25T11:59:50Z' },
  }),
  'a token that was used': [agentReport({ ready: false, joinRefused: 'TokenUsed' })],
  'an id that is taken': [agentReport({ ready: false, joinRefused: 'ClusterIdTaken' })],
  'an operator has not accepted it yet': [agentReport({ ready: false, joinRefused: 'JoinAwaitsApproval' })],
  'ranges that were stated after the join wait for an operator': healthyReports({
    ...HEALTHY_BROKER,
    factsRefused: 'RangesAwaitApproval',
  }),
  'a new token was refused, and the certificate has ended': [
    agentReport({
      broker: { ...HEALTHY_BROKER, certificateEnds: '2026-11-25T11:00:00Z' },
      joinRefused: 'TokenExpired',
    }),
  ],
  'a refusal that this release does not know': [agentReport({ joinRefused: 'FullMoon' })],
}

function agentReport(more: object): Fact {
  return reportFact('agent', 'sealane-agent-0', more)
}

function refusal(code: string, what: string, by?: string): object {
  return { code, what, ...(by === undefined ? {} : { by }), places: 1, since: NOW, last: NOW }
}

for (const [name, [objects, lines]] of Object.entries(REFUSED)) {
  t.test(name, async (t) => {
    const { problems } = diagnoseMember(factSet(objects, REPORTS[name] ?? []))
    t.ok(REPORTS[name], 'parts report it')
    t.same(linesOf(problems), lines)
    for (const { seen, mend, source } of problems) {
      t.match({ seen, mend, source }, { seen: /./, mend: /./, source: /./ }, 'what was seen, by whom, and what to do')
    }
  })
}
