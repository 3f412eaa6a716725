/** Which checks `sealane verify` makes in one direction, in which order, and which it leaves out and why. Pure. */
import type { Exposure } from '../../../model/access/access.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import type { Family } from './probe-wire.ts'

/** down: what users rely on does not work. degraded: it works, but less well than it should. */
export type CheckSeverity = 'down' | 'degraded'

/** The names of the checks, with the severity of a failure. */
export const CHECKS = {
  import: 'down',
  name: 'down',
  srv: 'down',
  search: 'degraded',
  tcp: 'down',
  udp: 'down',
  headless: 'down',
  'large-tcp': 'down',
  'large-udp': 'degraded',
  source: 'degraded',
  'pod-to-pod': 'down',
  'node-to-pod': 'down',
  throughput: 'degraded',
  failover: 'degraded',
  'policy-allowed': 'down',
  'policy-refused': 'down',
} as const satisfies Readonly<Record<string, CheckSeverity>>
export type CheckName = keyof typeof CHECKS

/** One row of the plan: a check, for one family if the family matters. */
export interface PlannedCheck {
  readonly check: CheckName
  readonly family?: Family
  /** What the call must come to, where that depends on the members. */
  readonly expects: 'answer' | 'refusal'
  /** A check of the same family that must have passed: without it the outcome shows nothing. */
  readonly after?: CheckName
  /** Set if the check is left out. */
  readonly skip?: { readonly reason: ReasonCode; readonly why: string }
}

export interface PlanInit {
  /** A site calls from this machine, and has no pods of probes. */
  readonly caller: 'cluster' | 'site'
  /** What the called member lets in. */
  readonly exposure: Exposure
  /** The families that both members have. */
  readonly families: readonly Family[]
  readonly failover: boolean
  /** The active gateways of the called member; of the caller, where that has more and one may be drained. */
  readonly gateways: number
  /** Whether the called cluster knows AccessPolicy. */
  readonly knowsPolicies: boolean
}

/** The order is that of the run: what later checks build on comes first, and what takes something away comes last. */
export function planChecks(init: PlanInit): readonly PlannedCheck[] {
  const { exposure, families } = init
  if (exposure === 'nothing') {
    const why = 'the called member exposes nothing'
    return [{ check: 'import', expects: 'answer', skip: { reason: 'VerifySkipped', why } }]
  }
  const each = (check: CheckName, rest: Partial<PlannedCheck> = {}): readonly PlannedCheck[] =>
    families.map((family) => ({ check, family, expects: 'answer', after: 'import', ...rest }))
  return [
    { check: 'import', expects: 'answer' },
    ...each('name'),
    { check: 'srv', expects: 'answer', after: 'import' },
    { check: 'search', expects: 'answer', after: 'import', ...searchSkip(init) },
    ...each('tcp'),
    ...each('udp'),
    ...each('headless'),
    ...each('large-tcp', { after: 'tcp' }),
    ...each('large-udp', { after: 'udp' }),
    ...each('source', { after: 'tcp' }),
    ...each('pod-to-pod', exposure === 'pods' ? {} : { expects: 'refusal', after: 'headless' }),
    ...each('node-to-pod', nodeSkip(init)),
    ...each('throughput', { after: 'tcp' }),
    { check: 'failover', expects: 'answer', after: 'tcp', ...failoverSkip(init) },
    { check: 'policy-allowed', expects: 'answer', after: 'import', ...policySkip(init) },
    { check: 'policy-refused', expects: 'refusal', after: 'policy-allowed', ...policySkip(init) },
  ]
}

type Skip = Pick<PlannedCheck, 'skip'>

function notPossible(why: string): Skip {
  return { skip: { reason: 'VerifySkipped', why } }
}

function searchSkip({ caller }: PlanInit): Skip {
  return caller === 'site' ? notPossible("the site's own DNS server is asked, which has no search domains") : {}
}

function nodeSkip({ caller }: PlanInit): Skip {
  return caller === 'site' ? notPossible('all calls of a site come from this machine: see tcp') : {}
}

function policySkip({ knowsPolicies }: PlanInit): Skip {
  return knowsPolicies ? {} : notPossible('the called cluster knows no AccessPolicy: its release is older')
}

function failoverSkip({ failover, gateways }: PlanInit): Skip {
  if (!failover) return { skip: { reason: 'VerifySkipped', why: '--failover drains a gateway' } }
  return gateways > 1
    ? {}
    : { skip: { reason: 'OneGatewayOnly', why: 'no side has two active gateways that may be drained' } }
}

/** Payloads in octets. The largest one is in many fragments; 1472 fills an IPv4 packet of Ethernet. */
export const DATAGRAM_SIZES = [32_000, 8192, 1472, 1452, 1432, 1412, 1392, 1372, 1352, 1312, 1280, 1200] as const
/** The payload that QUIC must be able to send (RFC 9000, 14). */
export const LEAST_DATAGRAM = 1200
/** What fits an Ethernet frame without fragments. */
export const ONE_PACKET = 1472
export const LARGE_BYTES = 1 << 20
