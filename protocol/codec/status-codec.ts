/** What a member reports about itself, between the wire and the model. */
import {
  MAX_NOT_IMPORTED,
  type MemberStatus,
  NOT_IMPORTED_REASONS,
  type NotImported,
} from '../../model/member-status.ts'
import type { OpenConnections } from '../../model/open-connections.ts'
import { count, keyPart, list, optional, present, text } from './codec-checks.ts'
import type * as wire from '../gen/broker.ts'
import { MAX_NAME } from '../limits.ts'

export function statusToWire({ notImported, leftOut, openConnections }: MemberStatus): wire.MemberStatus {
  return { notImported: notImported.map((one) => ({ ...one })), leftOut, openConnections: copied(openConnections) }
}

/** Throws CodecError. Findings with a reason of a later version are counted with those that were left out. */
export function statusFromWire(status: wire.MemberStatus | undefined, field: string): MemberStatus {
  const { notImported, leftOut, openConnections } = present(status, field)
  const findings = list(notImported, `${field}.notImported`, MAX_NOT_IMPORTED, findingFromWire)
  const known = findings.filter((one) => one !== undefined)
  const unknown = findings.length - known.length
  const all = Math.min(count(leftOut, `${field}.leftOut`) + unknown, Number.MAX_SAFE_INTEGER)
  return { notImported: known, leftOut: all, ...optional('openConnections', copied(openConnections)) }
}

/** Without what a later release may add. What the number may be is admission's matter. */
export function copied(one: OpenConnections | undefined): wire.OpenConnections | undefined {
  return one === undefined ? undefined : { count: one.count, atLeast: one.atLeast }
}

function findingFromWire(one: wire.MemberStatus_NotImported, field: string): NotImported | undefined {
  text(one.reason, `${field}.reason`, MAX_NAME, 1)
  const where = {
    namespace: keyPart(one.namespace, `${field}.namespace`, 0),
    name: keyPart(one.name, `${field}.name`, 0),
    cluster: keyPart(one.cluster, `${field}.cluster`, 0),
  }
  const reason = NOT_IMPORTED_REASONS.find((known) => known === one.reason)
  return reason === undefined ? undefined : { reason, ...where }
}
