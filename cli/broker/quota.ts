/** Parses and prints the quotas of members. Pure. */
import type { Command } from 'commander'
import type { MemberSummary } from '../../protocol/admin/admin.ts'
import { DEFAULT_MAX_MEMBERS, MOST_MEMBERS } from '../../model/addresses/addresses.ts'
import { DEFAULT_MEMBER_QUOTA, QUOTA_BOUNDS, QUOTA_FIELDS, type QuotaField } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import { parsed, quoted } from '../context/context.ts'

const UNITS = ['', 'Ki', 'Mi', 'Gi'] as const

/** Parses a whole number; for bytes also with the suffix Ki, Mi or Gi. Throws UserError, which names the flag. */
export function parseQuota(flag: string, field: QuotaField): (text: string) => number {
  const { min, max } = QUOTA_BOUNDS[field]
  return (text) => {
    const [, number = '', unit = ''] = /^(\d{1,15})(Ki|Mi|Gi)?$/.exec(text) ?? []
    const value = Number(number) * 1024 ** UNITS.indexOf(unit as (typeof UNITS)[number])
    if (number !== '' && (unit === '' || field === 'bytes') && value >= min && value <= max) return value
    const bounds = `${quotaText(field, min)} to ${quotaText(field, max)}`
    throw new UserError(`${flag} ${quoted(text)}: expected ${bounds}`, { exitCode: 2 })
  }
}

/** Like parseQuota(), and also accepts `default`, which restores the limit of all members. */
export function parseOwnQuota(flag: string, field: QuotaField): (text: string) => number | 'default' {
  const parse = parseQuota(flag, field)
  return (text) => {
    if (text === 'default') return text
    try {
      return parse(text)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      throw new UserError(`${error.message}, or default`, { exitCode: 2 })
    }
  }
}

/**
 * Formats bytes with the largest unit in which the value is at least 1, with one decimal place if it is not a whole
 * number.
 */
export function quotaText(field: QuotaField, value: number): string {
  if (field !== 'bytes') return String(value)
  const power = Math.min(UNITS.length - 1, value < 1 ? 0 : Math.floor(Math.log2(value) / 10))
  const scaled = value / 1024 ** power
  return `${Number.isInteger(scaled) ? scaled : scaled.toFixed(1)}${UNITS[power]}`
}

/** `12/50000`. For a broker of an earlier release without the limit. */
export function recordsCell({ records, quota }: MemberSummary): string {
  const limit = (quota as MemberSummary['quota'] | undefined)?.limit.records
  return limit === undefined ? String(records) : `${records}/${limit}`
}

/** `1.2Mi/16Mi` */
export function bytesCell(row: MemberSummary): string {
  const quota = row.quota as MemberSummary['quota'] | undefined
  if (quota === undefined) return '-'
  return `${quotaText('bytes', quota.used.bytes)}/${quotaText('bytes', quota.limit.bytes)}`
}

/** The limit alone, for quotas whose use is not recorded. */
export function limitCell(field: 'changes' | 'streams'): (row: MemberSummary) => string {
  return ({ quota }) => String((quota as MemberSummary['quota'] | undefined)?.limit[field] ?? '-')
}

/** One line about each quota of the member that leaves no room for new exports. */
export function fullRemarks({ id, quota }: MemberSummary): string[] {
  const known = quota as MemberSummary['quota'] | undefined
  if (known === undefined) return []
  const { limit, used } = known
  const full = (['records', 'bytes'] as const).filter((field) => used[field] > 0 && used[field] >= limit[field])
  return full.map(
    (field) =>
      `${id}: its quota of ${quotaText(field, limit[field])} ${field} is used up, so its new exports are not distributed; ` +
      `raise it: sealane cluster quota ${id} --${field} N\n`,
  )
}

/** One line about each limit of a member, with its current use if it is recorded. */
export function quotaLines({ quota }: MemberSummary): string {
  const { limit, used, own } = quota
  const lines = QUOTA_FIELDS.map((field) => {
    const use = field === 'records' || field === 'bytes' ? `${quotaText(field, used[field])} of ` : ''
    const unit = field === 'changes' ? ' per second' : ''
    return `${field.padEnd(8)} ${use}${quotaText(field, limit[field])}${unit}${own.includes(field) ? ', its own' : ''}\n`
  })
  return lines.join('')
}

// The options of `sealane broker serve` that limit each member and the number of members.

const FLAGS: readonly (readonly [field: QuotaField, value: string, help: string])[] = [
  ['records', '<count>', 'maximum number of records that a member can publish'],
  ['bytes', '<size>', 'maximum size of the records of a member, such as 32Mi'],
  ['changes', '<count>', 'maximum changes per second of a member, averaged over time'],
  ['streams', '<count>', 'maximum number of open streams of a member'],
]

/** These limits apply to each member for which "sealane cluster quota" sets no other. */
export function addQuotaOptions(serve: Command): Command {
  for (const [field, value, help] of FLAGS) {
    const standard = quotaText(field, DEFAULT_MEMBER_QUOTA[field])
    const flag = `--quota-${field}`
    serve.option(`${flag} ${value}`, `${help} (default: ${standard})`, parsed(parseQuota(flag, field)))
  }
  return serve.option(
    '--max-members <count>',
    `maximum number of members of the clusterset (default: ${DEFAULT_MAX_MEMBERS})`,
    parsed(parseMembers),
  )
}

function parseMembers(text: string): number {
  const value = Number(text)
  if (/^\d+$/.test(text) && value >= 1 && value <= MOST_MEMBERS) return value
  throw new UserError(`--max-members ${JSON.stringify(text)}: expected 1 to ${MOST_MEMBERS}`, { exitCode: 2 })
}
