/** From the result of a call to the row of a check: what was measured, and the reason code of a failure. Pure. */
import { type ReasonCode, reasonRow } from '../../../model/reasons/reasons.ts'
import { fitText, printable } from '../../../model/model.ts'
import {
  CHECKS,
  type CheckName,
  type CheckSeverity,
  LEAST_DATAGRAM,
  ONE_PACKET,
  type PlannedCheck,
} from './plan-checks.ts'
import type { Family, FailedCall, ProbeFailure, ProbeResult, ProbeResults } from './probe-wire.ts'

export interface CheckRow {
  readonly check: CheckName
  /** `c1 → c2`: who calls whom. */
  readonly way: string
  readonly family?: Family
  readonly result: 'pass' | 'fail' | 'skip'
  readonly severity: CheckSeverity
  /** What was seen, as text. */
  readonly measured: string
  readonly reason?: ReasonCode
  readonly todo?: string
  readonly ms: number
}

/** What a check came to. Without a reason it has passed. */
export interface Outcome {
  readonly measured: string
  readonly reason?: ReasonCode
  /** Whether the check could not be made, which is no failure. */
  readonly isSkipped?: boolean
}

const MOST_MEASURED = 160

export function rowOf(
  planned: Pick<PlannedCheck, 'check' | 'family'> & { readonly isSkipped: boolean },
  way: string,
  outcome: Outcome,
  ms: number,
): CheckRow {
  const { check, family, isSkipped } = planned
  const { measured, reason } = outcome
  const isLeftOut = isSkipped || outcome.isSkipped === true
  return {
    ...{ check, way, result: isLeftOut ? 'skip' : reason === undefined ? 'pass' : 'fail' },
    ...(family === undefined ? {} : { family }),
    severity: CHECKS[check],
    measured: fitText(printable(measured), MOST_MEASURED),
    ...(reason === undefined ? {} : { reason, todo: reasonRow(reason).todo }),
    ms: Math.round(ms),
  }
}

const FAILURE_REASONS: Readonly<Record<ProbeFailure, ReasonCode>> = {
  refused: 'VerifyNotAnswered',
  closed: 'VerifyNotAnswered',
  timeout: 'VerifyNotAnswered',
  unreachable: 'VerifyNotAnswered',
  'no-name': 'VerifyNameUnresolved',
  foreign: 'VerifyForeignAnswer',
  other: 'VerifyPodFailed',
}

export function failureOutcome({ failure, message }: FailedCall): Outcome {
  return { measured: message === '' ? failure : message, reason: FAILURE_REASONS[failure] }
}

/** A call that must be answered by the called member. */
export function answerOutcome(result: ProbeResult<'hello'>, member: string): Outcome {
  if (!result.ok) return failureOutcome(result)
  const { member: by, ms } = result.value
  if (by !== member) return { measured: `${by} answered`, reason: 'VerifyForeignAnswer' }
  return { measured: msText(ms) }
}

/** Failures that show that the other side lets nothing in. Those of the caller's own side show nothing. */
const KEPT_OUT: ReadonlySet<ProbeFailure> = new Set<ProbeFailure>(['refused', 'timeout', 'unreachable', 'closed'])

/** A call that must not be answered. */
export function refusalOutcome(result: ProbeResult<'hello' | 'connect'>): Outcome {
  if (result.ok) return { measured: 'answered', reason: 'VerifyAnswered' }
  return KEPT_OUT.has(result.failure) ? { measured: `no answer (${result.failure})` } : failureOutcome(result)
}

/** Calls that went on until one was not answered. */
export function refusedOutcome({ failure }: ProbeResults['refused']): Outcome {
  if (failure === undefined) return { measured: 'answered', reason: 'VerifyAnswered' }
  return refusalOutcome({ ok: false, failure, message: '' })
}

export function nameOutcome(found: readonly string[], wanted: readonly string[], family: Family): Outcome {
  const own = found.filter((one) => one.includes(':') === (family === 6))
  const shown = own.length === 0 ? 'no address' : own.join(', ')
  const isRight = own.length > 0 && (wanted.length === 0 || own.every((one) => wanted.includes(one)))
  return isRight ? { measured: shown } : { measured: shown, reason: 'VerifyNameUnresolved' }
}

export function srvOutcome({ srv }: Pick<ProbeResults['resolve'], 'srv'>, port: number): Outcome {
  const [first] = srv
  if (first === undefined) return { measured: 'no record', reason: 'VerifyNameUnresolved' }
  const shown = `${srv.length} of port ${first.port}`
  return first.port === port ? { measured: shown } : { measured: shown, reason: 'VerifyForeignAnswer' }
}

/** What the search domains of the pod do to the name. */
export function searchOutcome({ before, ndots }: Pick<ProbeResults['resolve'], 'before' | 'ndots'>): Outcome {
  if (before.length === 0) return { measured: `ndots:${ndots}: the name is asked for at once` }
  const taken = before.find(({ addresses }) => addresses > 0)
  if (taken !== undefined) return { measured: `${taken.name} has an address`, reason: 'VerifySearchAnswers' }
  // Each name is asked for by IPv4 and IPv6.
  const queries = 2 * before.length
  return { measured: `ndots:${ndots}: ${queries} queries before the right one; a dot at the end avoids them` }
}

export function bulkOutcome({ bytes, ms, isSame }: ProbeResults['bulk']): Outcome {
  const measured = `${bytes} octets there and back in ${msText(ms)}`
  return isSame ? { measured } : { measured: `${measured}, changed on the way`, reason: 'VerifyDamaged' }
}

/** The MTU follows from the largest payload that fits one packet, with the headers of IP and UDP. */
export function datagramOutcome({ passed }: ProbeResults['datagrams'], family: Family): Outcome {
  const largest = Math.max(0, ...passed)
  const whole = Math.max(0, ...passed.filter((one) => one <= ONE_PACKET))
  if (whole < LEAST_DATAGRAM) {
    const measured = largest === 0 ? 'none passed' : `${largest} octets, but not ${LEAST_DATAGRAM}`
    return { measured, reason: 'VerifyDamaged' }
  }
  const mtu = whole + (family === 4 ? 28 : 48)
  return { measured: `largest ${largest} octets; unfragmented ${whole}, which is an MTU of ${mtu} or a little more` }
}

export function sourceOutcome(seen: string, wanted: readonly string[]): Outcome {
  const measured = `seen as ${seen}`
  if (wanted.includes(seen)) return { measured }
  return { measured: `${measured}, not as ${wanted.join(' or ')}`, reason: 'VerifySourceChanged' }
}

export function throughputOutcome(value: ProbeResults['throughput'], leastBits: number | undefined): Outcome {
  const bits = bitsPerSecond(value)
  const measured = rateText(bits)
  if (leastBits === undefined || bits >= leastBits) return { measured }
  return { measured: `${measured}, less than ${rateText(leastBits)}`, reason: 'VerifySlow' }
}

export function steadyOutcome({ sent, lost, longestMs }: ProbeResults['steady']): Outcome {
  const measured = `${lost} of ${sent} calls lost, the longest took ${msText(longestMs)}`
  return lost === 0 ? { measured } : { measured, reason: 'VerifyCallsLost' }
}

export function bitsPerSecond({ bytes, ms }: ProbeResults['throughput']): number {
  return (8000 * bytes) / ms
}

/** `1.2 Gbit/s` */
export function rateText(bits: number): string {
  const [unit, size] = bits >= 1e9 ? (['Gbit/s', 1e9] as const) : (['Mbit/s', 1e6] as const)
  return `${(bits / size).toFixed(bits / size < 10 ? 2 : 0)} ${unit}`
}

export function msText(ms: number): string {
  return ms < 10 ? `${ms.toFixed(2)} ms` : ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`
}

/**
 * Exit codes of `status`: 0 all passed, 1 only lesser checks failed, 2 others failed, 3 for `unknown`: nothing failed,
 * but no call was made that shows anything. An import is no call.
 */
export function healthOf(rows: readonly CheckRow[]): 'healthy' | 'unknown' | CheckSeverity {
  const failed = rows.filter(({ result }) => result === 'fail').map(({ severity }) => severity)
  if (failed.length > 0) return failed.includes('down') ? 'down' : 'degraded'
  return rows.some(({ check, result }) => result === 'pass' && check !== 'import') ? 'healthy' : 'unknown'
}
