/** Checks whether this cluster publishes and receives: the agent, its connection to the broker, its certificate. */
import { CONDITION_IN_CONTACT, findCondition } from '../../model/model.ts'
import { type ReasonCode, knownReason, reasonRow } from '../../model/reasons/reasons.ts'
import {
  type BrokerCall,
  type Cause,
  type Finding,
  IDENTITY_MISSING,
  type Seen,
  type Subject,
  type World,
  durationText,
  hangingHere,
  named,
  refusalCauses,
  seenAt,
  seenSubject,
} from '../facts/facts.ts'

/** Compares the clocks of two machines. A holder renews its Lease every few seconds. */
const LEASE_OLD_MS = 45_000
const CERTIFICATE_SOON_MS = 6 * 3600_000
const AGENT = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-agent' }

export function broker(world: World): readonly Finding[] {
  // The cluster has not joined, so the agent has nothing to do.
  if (world.self === undefined) return []
  return [
    ...agentSilent(world),
    ...unreached(world),
    ...failingAddresses(world),
    ...statement(world),
    ...slowStore(world),
    ...clock(world),
    ...certificate(world),
  ]
}

/** The broker uses the facts that it accepted before, so other clusters do not reach ranges that are new here. */
function statement({ broker, selfSubject: subject }: World): readonly Finding[] {
  const reason = knownReason(broker?.object.factsRefused)
  if (broker === undefined || reason === undefined) return []
  const seen = `the broker refuses records of this cluster. ${reasonRow(reason).means}`
  return [{ reason, severity: 'degraded', subject, seen, ...seenAt(broker) }]
}

/**
 * The same limit as in SealaneBrokerStoreSlow: a confirmation waits for a commit of the store and hardly anything else.
 */
const SLOW_MS = 500

function slowStore({ broker }: World): readonly Finding[] {
  if (broker?.object.answeredMs === undefined) return []
  const { answeredMs, publish } = broker.object
  if (answeredMs < SLOW_MS || publish !== 'live') return []
  const seen = `the broker took ${(answeredMs / 1000).toFixed(1)} s or more to confirm each of the last three changes`
  return [
    { reason: 'StoreSlow', severity: 'degraded', subject: { kind: 'Broker', name: '-' }, seen, ...seenAt(broker) },
  ]
}

/** Delays on the network, and two machines that use time servers, cause smaller differences. */
const CLOCK_DIFFERS_MS = 10_000
/** The largest difference at which a join is accepted, and by which a certificate is backdated. */
const CLOCK_WRONG_MS = 5 * 60_000

/** Without a stream the value is outdated: either clock may have been changed since. */
function clock({ broker, selfSubject }: World): readonly Finding[] {
  if (broker?.object.aheadMs === undefined || broker.object.watch !== 'live') return []
  const differs = Math.abs(broker.object.aheadMs)
  if (differs < CLOCK_DIFFERS_MS) return []
  const how = broker.object.aheadMs > 0 ? 'ahead of' : 'behind'
  const seen = `the clock of the broker is ${durationText(differs)} ${how} that of the agent`
  const severity = differs >= CLOCK_WRONG_MS ? 'degraded' : 'notice'
  const because = [{ reason: 'ClockDiffers' as const }]
  return [{ reason: 'BrokerClockDiffers', severity, subject: selfSubject, seen, ...seenAt(broker), because }]
}

/** A missing report is explained by the Lease: a report of an acting agent proves more than its Lease. */
function agentSilent(world: World): readonly Finding[] {
  const { agentLease, broker, nowMs } = world
  if (agentLease === undefined || broker !== undefined) return []
  const { holderIdentity, renewTime } = agentLease.object.spec ?? {}
  const ageMs = nowMs - Date.parse(renewTime ?? '')
  const isHeld = (holderIdentity ?? '') !== ''
  if (isHeld && !(ageMs >= LEASE_OLD_MS)) return []
  const seen = isHeld
    ? `${holderIdentity ?? ''} renewed its Lease ${durationText(ageMs)} ago, and no other agent has taken it`
    : 'the active agent has ended, and no other agent is active'
  return [
    {
      reason: 'AgentSilent',
      severity: 'degraded',
      subject: seenSubject('Lease', agentLease),
      seen,
      ...seenAt(agentLease, renewTime),
      because: [
        ...(['PartNotReady', 'PartMissing', 'PolicyStopsPart'] as const).map((reason) => ({
          reason,
          subject: AGENT,
        })),
        ...refusalCauses('agent'),
        { reason: 'DiskFull' as const },
        { reason: 'DiskReadOnly' as const },
        ...(isOfThisMachine(world, holderIdentity ?? '') ? hangingHere(world) : []),
      ],
    },
  ]
}

/** On a plain site, the agent's holder identity begins with the name of its node. */
function isOfThisMachine({ probes }: World, holder: string): boolean {
  return probes.host?.some(({ object: { node } }) => holder.startsWith(`${node}_`)) === true
}

/** Possible results of a call to the broker from this machine. */
const CALLED = [
  'ProxyRefused',
  'ProxyAuthUnsupported',
  'BrokerSilent',
  'BrokerNoTls',
  'BrokerLate',
  'ClockDiffers',
  'CertificateExpired',
  'CertificateNotYetValid',
  'CertificateUntrusted',
  'CertificateOtherClusterset',
  'CertificateWrongIdentity',
] as const

function unreached({ broker, nowMs, selfSubject }: World): readonly Finding[] {
  if (broker === undefined) return []
  const { publish, watch, since, reason, heardAt, addresses } = broker.object
  if (publish === 'live' && watch === 'live') return []
  const ageMs = nowMs - Date.parse(since)
  // Agents of an earlier release use the reason of an unreachable API server for the broker.
  const why = knownReason(reason === 'NoConnection' ? 'BrokerSilent' : reason)
  const means = why === undefined ? '' : ` ${reasonRow(why).means}`
  const heard = heardAt === undefined ? 'no message since this process started' : `last heard ${heardAt}`
  const known = `${addresses} address${addresses === 1 ? '' : 'es'} known`
  return [
    {
      ...(why === 'MemberEvicted'
        ? { reason: why, severity: 'down' as const }
        : // A connection that is being reopened is not a problem yet.
          {
            reason: 'BrokerUnreached' as const,
            severity: ageMs < 15_000 ? ('notice' as const) : ('degraded' as const),
          }),
      subject: { kind: 'Broker', name: '-' },
      seen: `publishing is ${publish}, watching is ${watch}: ${heard}, ${known}.${why === undefined ? '' : ` ${why}:`}${means}`,
      ...seenAt(broker, since),
      ...(why === undefined ? {} : { mend: reasonRow(why).todo }),
      // An eviction is decided by an operator of the broker and has no cause here.
      because: why === 'MemberEvicted' ? [] : causes(selfSubject),
    },
  ]
}

function causes(selfSubject: Subject): readonly Cause[] {
  return [
    { reason: 'ClockDiffers', subject: selfSubject },
    { reason: 'CertificateExpired', subject: selfSubject },
    IDENTITY_MISSING,
    ...CALLED.map((reason) => ({ reason, subject: { kind: 'Broker', name: '-' } })),
    { reason: 'FilesNearlyOut' },
    { reason: 'PolicyStopsPart', subject: AGENT },
  ]
}

function failingAddresses({ broker, probes }: World): readonly Finding[] {
  // The call probes of each address are more informative.
  if (broker === undefined || probes['broker-call'] !== undefined) return []
  const { failing, addresses, publish, watch } = broker.object
  if (failing === 0 || publish !== 'live' || watch !== 'live') return []
  const seen = `${failing} of ${addresses} known addresses did not answer the last attempt`
  const subject = { kind: 'Broker', name: '-' }
  return [{ reason: 'BrokerAddressFailing', severity: 'notice', subject, seen, ...seenAt(broker) }]
}

function certificate({ broker, nowMs, selfSubject }: World): readonly Finding[] {
  const ends = broker?.object.certificateEnds
  const leftMs = Date.parse(ends ?? '') - nowMs
  if (broker === undefined || ends === undefined || !(leftMs < CERTIFICATE_SOON_MS)) return []
  const at = { subject: selfSubject, ...seenAt(broker) }
  // A missing identity prevents the renewal, since the new certificate cannot be stored.
  if (leftMs <= 0) {
    const seen = `it ended at ${ends}`
    return [{ reason: 'CertificateExpired', severity: 'degraded', seen, ...at, because: [IDENTITY_MISSING] }]
  }
  const because = [IDENTITY_MISSING, { reason: 'BrokerUnreached' as const }, { reason: 'MemberEvicted' as const }]
  const seen = `it ends at ${ends}, in ${durationText(leftMs)}`
  return [{ reason: 'CertificateEndsSoon', severity: 'degraded', seen, ...at, because }]
}

type Call = Seen<BrokerCall>

const BROKER = { kind: 'Broker', name: '-' }

/** Evaluates the calls to the broker at each of its addresses, and whether this member's certificate can be used. */
export function brokerCalls(world: World): readonly Finding[] {
  return [...own(world), ...calls(world), ...ahead(world)]
}

/** By the local clock, both certificates are valid, but the broker treats ours as expired: its clock is ahead. */
function ahead({
  probes: { identity = [], 'broker-call': all = [] },
  broker,
  nowMs,
  selfSubject,
}: World): readonly Finding[] {
  const [own] = identity
  const isRefused = broker !== undefined && knownReason(broker.object.reason) === 'CertificateExpired'
  if (own === undefined || !isRefused || !all.some(({ object: { stage } }) => stage === 'tls')) return []
  const { ends } = own.object
  if (!(Date.parse(ends) > nowMs)) return []
  const seen = `the broker considers the certificate of this cluster expired; it expires at ${ends}, and the clock here says ${isoOf(nowMs)}`
  return [{ reason: 'ClockDiffers', severity: 'degraded', subject: selfSubject, seen, ...seenAt(broker) }]
}

/** A certificate that starts in the future shows that the local clock is behind, since certificates are backdated. */
function own({ probes: { identity = [] }, nowMs, selfSubject }: World): readonly Finding[] {
  return identity.flatMap((one): readonly Finding[] => {
    const { begins, ends } = one.object
    const at = seenAt(one)
    if (Date.parse(begins) > nowMs) {
      const seen = `the certificate of this cluster is valid from ${begins}, and the clock here says ${isoOf(nowMs)}`
      return [{ reason: 'ClockDiffers', severity: 'degraded', subject: selfSubject, seen, ...at }]
    }
    if (!(Date.parse(ends) <= nowMs)) return []
    const seen = `it ended at ${ends}, by the clock of this machine (${isoOf(nowMs)})`
    return [{ reason: 'CertificateExpired', severity: 'degraded', subject: selfSubject, seen, ...at }]
  })
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString()
}

/** If one address answers, those that fail are only notices. */
function calls({ probes: { 'broker-call': all = [] }, selfSubject, broker }: World): readonly Finding[] {
  const failed = all.filter(({ object: { stage } }) => stage !== 'tls')
  const [first] = failed
  if (first === undefined) return []
  if (failed.length < all.length) {
    return failed.map((call) => ({
      reason: 'BrokerAddressFailing',
      severity: 'notice',
      subject: { kind: 'Broker', name: call.object.address },
      seen: textOf(call),
      ...seenAt(call),
    }))
  }
  const isLive = broker?.object.publish === 'live' && broker.object.watch === 'live'
  // The agent's own connection counts, since this machine may reach the broker by another route.
  const severity = isLive ? 'notice' : 'degraded'
  const because = [{ reason: 'ClockDiffers' as const, subject: selfSubject }]
  const base = { severity, subject: BROKER, seen: named(failed.map(textOf), 3), ...seenAt(first), because } as const
  // An address that answers tells more about the broker than one that does not, and an answer with a cause more than a
  // late one.
  const reasons = failed.map(({ object }) => knownReason(object.reason) ?? unnamed(object))
  const reason = reasons.sort((a, b) => SAYS_LESS.indexOf(a) - SAYS_LESS.indexOf(b))[0] ?? 'BrokerSilent'
  if (reason === 'CertificateNotYetValid') return [{ ...base, reason: 'ClockDiffers', because: [] }]
  return [{ ...base, reason }]
}

/** The least informative reasons, from the most to the least. All other reasons are more informative. */
const SAYS_LESS: readonly ReasonCode[] = ['BrokerNoTls', 'BrokerLate', 'BrokerSilent']

function unnamed({ stage }: BrokerCall): ReasonCode {
  return stage === 'nothing' ? 'BrokerSilent' : 'BrokerNoTls'
}

function textOf({ object: { address, stage, message = '' } }: Call): string {
  return `${address}: ${stage === 'tcp' ? 'TCP connects, TLS does not: ' : ''}${message}`
}

// Finds other clusters that have lost their connection to the broker.

/** While this cluster has no connection itself, the broker's last report may be outdated. */
export function contact({ objects, self, reached }: World): readonly Finding[] {
  return (objects.Cluster ?? []).flatMap((cluster): readonly Finding[] => {
    const { spec, status } = cluster.object
    const found = findCondition(status?.conditions, CONDITION_IN_CONTACT)
    if (spec.id === self || found?.status !== 'False') return []
    return [
      {
        reason: 'Silent',
        // Its exports keep working.
        severity: reached?.has(spec.id) === true ? 'notice' : 'degraded',
        subject: { kind: 'Cluster', name: spec.id },
        seen: found.message,
        ...seenAt(cluster, found.lastTransitionTime),
      },
    ]
  })
}
