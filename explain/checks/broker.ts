/** Whether this cluster publishes and learns: the agent, its way to the broker, its certificate. */
import { knownReason, reasonRow } from '../../model/reasons/reasons.ts'
import type { Cause, Finding, Subject } from '../finding.ts'
import {
  IDENTITY_MISSING,
  type World,
  durationText,
  hangingHere,
  seenAt,
  seenSubject,
  refusalCauses,
} from '../world.ts'

/** By the clocks of two machines. A holder renews every few seconds. */
const LEASE_OLD_MS = 45_000
const CERTIFICATE_SOON_MS = 6 * 3600_000
const AGENT = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-agent' }

export function broker(world: World): readonly Finding[] {
  // Nobody has asked the agent for anything yet.
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

/** The broker goes by what it took before: ranges that are new here are not reached from elsewhere. */
function statement({ broker, selfSubject: subject }: World): readonly Finding[] {
  const reason = knownReason(broker?.object.factsRefused)
  if (broker === undefined || reason === undefined) return []
  const seen = `the broker does not take what this cluster states of itself. ${reasonRow(reason).means}`
  return [{ reason, severity: 'degraded', subject, seen, ...seenAt(broker) }]
}

/** As SealaneBrokerStoreSlow has it: a change waits for a commit of the store, and for next to nothing else. */
const SLOW_MS = 500

function slowStore({ broker }: World): readonly Finding[] {
  if (broker?.object.answeredMs === undefined) return []
  const { answeredMs, publish } = broker.object
  if (answeredMs < SLOW_MS || publish !== 'live') return []
  const seen = `it took ${(answeredMs / 1000).toFixed(1)} s or more to confirm each of the last three changes`
  return [
    { reason: 'StoreSlow', severity: 'degraded', subject: { kind: 'Broker', name: '-' }, seen, ...seenAt(broker) },
  ]
}

/** What waits on the way, and two machines that ask others for the time, make less. */
const CLOCK_DIFFERS_MS = 10_000
/** As much as a join may differ, and a certificate begins in the past. */
const CLOCK_WRONG_MS = 5 * 60_000

/** Without a stream it is old: either clock may have been set since. */
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

/** A report of an agent that acts is as good as its Lease. */
function agentSilent(world: World): readonly Finding[] {
  const { agentLease, broker, nowMs } = world
  if (agentLease === undefined || broker !== undefined) return []
  const { holderIdentity, renewTime } = agentLease.object.spec ?? {}
  const ageMs = nowMs - Date.parse(renewTime ?? '')
  const isHeld = (holderIdentity ?? '') !== ''
  if (isHeld && !(ageMs >= LEASE_OLD_MS)) return []
  const seen = isHeld
    ? `${holderIdentity ?? ''} renewed its Lease ${durationText(ageMs)} ago, and nobody has taken it`
    : 'the agent that acted has ended, and no other acts'
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

/** On a plain site an agent has the name of its node in its own. */
function isOfThisMachine({ probes }: World, holder: string): boolean {
  return probes.host?.some(({ object: { node } }) => holder.startsWith(`${node}_`)) === true
}

/** What a call to the broker from this machine may say of it. */
const CALLED = [
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
  // Agents of an earlier release say of the broker what is a reason about API servers.
  const why = knownReason(reason === 'NoConnection' ? 'BrokerSilent' : reason)
  const means = why === undefined ? '' : ` ${reasonRow(why).means}`
  const heard = heardAt === undefined ? 'not heard since this process began' : `last heard ${heardAt}`
  const known = `${addresses} address${addresses === 1 ? '' : 'es'} known`
  return [
    {
      ...(why === 'MemberEvicted'
        ? { reason: why, severity: 'down' as const }
        : // A connection that is being made anew is no news yet.
          {
            reason: 'BrokerUnreached' as const,
            severity: ageMs < 15_000 ? ('notice' as const) : ('degraded' as const),
          }),
      subject: { kind: 'Broker', name: '-' },
      seen: `publishing is ${publish}, watching is ${watch}: ${heard}, ${known}.${why === undefined ? '' : ` ${why}:`}${means}`,
      ...seenAt(broker, since),
      ...(why === undefined ? {} : { mend: reasonRow(why).todo }),
      // What an operator of the broker decided has no cause here.
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
  // A call to each of them says more.
  if (broker === undefined || probes['broker-call'] !== undefined) return []
  const { failing, addresses, publish, watch } = broker.object
  if (failing === 0 || publish !== 'live' || watch !== 'live') return []
  const seen = `at ${failing} of ${addresses} known addresses nobody answered last`
  const subject = { kind: 'Broker', name: '-' }
  return [{ reason: 'BrokerAddressFailing', severity: 'notice', subject, seen, ...seenAt(broker) }]
}

function certificate({ broker, nowMs, selfSubject }: World): readonly Finding[] {
  const ends = broker?.object.certificateEnds
  const leftMs = Date.parse(ends ?? '') - nowMs
  if (broker === undefined || ends === undefined || !(leftMs < CERTIFICATE_SOON_MS)) return []
  const at = { subject: selfSubject, ...seenAt(broker) }
  // What cannot be kept is not renewed.
  if (leftMs <= 0) {
    const seen = `it ended at ${ends}`
    return [{ reason: 'CertificateExpired', severity: 'degraded', seen, ...at, because: [IDENTITY_MISSING] }]
  }
  const because = [IDENTITY_MISSING, { reason: 'BrokerUnreached' as const }, { reason: 'MemberEvicted' as const }]
  const seen = `it ends at ${ends}, in ${durationText(leftMs)}`
  return [{ reason: 'CertificateEndsSoon', severity: 'degraded', seen, ...at, because }]
}
