/** The flags of `sealane broker serve` that limit each member, and how many there are. */
import type { Command } from 'commander'
import { DEFAULT_MEMBER_QUOTA, type QuotaField } from '../../model/quota/member-quota.ts'
import { DEFAULT_MAX_MEMBERS, MOST_MEMBERS } from '../../model/quota/most-members.ts'
import { UserError } from '../../runtime/user-error.ts'
import { parsed } from '../context.ts'
import { parseQuota, quotaText } from './quota-text.ts'

const FLAGS: readonly (readonly [field: QuotaField, value: string, help: string])[] = [
  ['records', '<count>', 'records that a member may publish'],
  ['bytes', '<size>', 'their size, such as 32Mi'],
  ['changes', '<count>', 'changes of a member a second, in the long run'],
  ['streams', '<count>', 'streams that a member has open at once'],
]

/** They hold for each member that "sealane cluster quota" gives no other. */
export function addQuotaOptions(serve: Command): Command {
  for (const [field, value, help] of FLAGS) {
    const standard = quotaText(field, DEFAULT_MEMBER_QUOTA[field])
    const flag = `--quota-${field}`
    serve.option(`${flag} ${value}`, `${help} (default: ${standard})`, parsed(parseQuota(flag, field)))
  }
  return serve.option(
    '--max-members <count>',
    `members that the clusterset may have (default: ${DEFAULT_MAX_MEMBERS})`,
    parsed(parseMembers),
  )
}

function parseMembers(text: string): number {
  const value = Number(text)
  if (/^\d+$/.test(text) && value >= 1 && value <= MOST_MEMBERS) return value
  throw new UserError(`--max-members ${JSON.stringify(text)}: expected 1 to ${MOST_MEMBERS}`, { exitCode: 2 })
}
