/** What came of calls to the broker at each of its addresses, and whether this member's own certificate can be used. */
import { type ReasonCode, knownReason } from '../../../model/reasons/reasons.ts'
import type { BrokerCall } from '../../facts/probe-shapes.ts'
import type { Seen } from '../../facts/read-facts.ts'
import type { Finding } from '../../finding.ts'
import { type World, named, seenAt } from '../../world.ts'

type Call = Seen<BrokerCall>

const BROKER = { kind: 'Broker', name: '-' }

export function brokerCalls(world: World): readonly Finding[] {
  return [...own(world), ...calls(world), ...ahead(world)]
}

/** The broker's certificate is good by the clock here, and ours is not by the broker's: its clock is ahead of this one. */
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
  const seen = `the broker takes the certificate of this cluster as ended; it ends at ${ends}, and the clock here says ${isoOf(nowMs)}`
  return [{ reason: 'ClockDiffers', severity: 'degraded', subject: selfSubject, seen, ...seenAt(broker) }]
}

/** A clock that is behind is seen by a certificate that begins in the future; nothing else is issued so. */
function own({ probes: { identity = [] }, nowMs, selfSubject }: World): readonly Finding[] {
  return identity.flatMap((one): readonly Finding[] => {
    const { begins, ends } = one.object
    const at = seenAt(one)
    if (Date.parse(begins) > nowMs) {
      const seen = `the certificate of this cluster begins at ${begins}, and the clock here says ${isoOf(nowMs)}`
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

/** Where one address answers, the others are remarks. */
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
  // What the agent does counts; from here the way may be another.
  const severity = isLive ? 'notice' : 'degraded'
  const because = [{ reason: 'ClockDiffers' as const, subject: selfSubject }]
  const base = { severity, subject: BROKER, seen: named(failed.map(textOf), 3), ...seenAt(first), because } as const
  // One that answers says more of the broker than one that does not, and one that says something more than a late one.
  const reasons = failed.map(({ object }) => knownReason(object.reason) ?? unnamed(object))
  const reason = reasons.sort((a, b) => SAYS_LESS.indexOf(a) - SAYS_LESS.indexOf(b))[0] ?? 'BrokerSilent'
  if (reason === 'CertificateNotYetValid') return [{ ...base, reason: 'ClockDiffers', because: [] }]
  return [{ ...base, reason }]
}

/** What is not among them says the most. */
const SAYS_LESS: readonly ReasonCode[] = ['BrokerNoTls', 'BrokerLate', 'BrokerSilent']

function unnamed({ stage }: BrokerCall): ReasonCode {
  return stage === 'nothing' ? 'BrokerSilent' : 'BrokerNoTls'
}

function textOf({ object: { address, stage, message = '' } }: Call): string {
  return `${address}: ${stage === 'tcp' ? 'TCP is answered, TLS is not: ' : ''}${message}`
}
