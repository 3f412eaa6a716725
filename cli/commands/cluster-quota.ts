/** `sealane cluster quota`: how much of the broker one member may have. */
import type { Command } from 'commander'
import { parseClusterId } from '../../model/ids.ts'
import { QUOTA_FIELDS, type QuotaField } from '../../model/quota/member-quota.ts'
import { UserError } from '../../runtime/user-error.ts'
import { parseOwnQuota, quotaLines } from '../broker/quota-text.ts'
import { withMembers } from '../broker/with-members.ts'
import { type CommandContext, clustersetOption, outputOption, parsed, stateOption, subcommand } from '../context.ts'
import { type OutputFormat, printOne } from '../output.ts'
import { type KubeTarget, LOCAL_BROKER, addKubeOptions, targetToChange } from '../target.ts'
import { lookTimeoutOption } from '../within-time.ts'

type OwnQuota = { readonly [field in QuotaField]?: number | 'default' }

interface QuotaOptions extends KubeTarget, OwnQuota {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
}

const FLAGS: Readonly<Record<QuotaField, readonly [value: string, help: string]>> = {
  records: ['<count>', 'records that it may publish'],
  bytes: ['<size>', 'their size, such as 32Mi'],
  changes: ['<count>', 'changes a second in the long run'],
  streams: ['<count>', 'streams open at once'],
}

export function addClusterQuota(cluster: Command, context: CommandContext): void {
  const { output } = context
  const text = 'Shows the quota of a member, and changes what a flag names; "default": as for all members.'
  const quota = subcommand(cluster, 'quota', text, 'sealane cluster quota paris --records 100000')
  addKubeOptions(quota, LOCAL_BROKER).argument(
    '<id>',
    'as cluster list prints it',
    parsed((id: string) => parseClusterId(id, 'cluster')),
  )
  for (const field of QUOTA_FIELDS) {
    const [value, help] = FLAGS[field]
    quota.option(`--${field} ${value}`, help, parsed(parseOwnQuota(`--${field}`, field)))
  }
  quota
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (id: string, options: QuotaOptions, command: Command) => {
      const kube = targetToChange(command, context)
      const named = QUOTA_FIELDS.filter((field) => options[field] !== undefined)
      const change = Object.fromEntries(named.map((field) => [field, options[field]])) as OwnQuota
      const { row, changed } = await withMembers({ ...options, kube }, context, async (members) => {
        const changed = named.length > 0 && (await members.changeQuota({ cluster: id, change }))
        return { row: (await members.members()).find((one) => one.id === id), changed }
      })
      if (row === undefined || row.state === 'left' || row.state === 'evicted') {
        throw new UserError(`cluster "${id}" is not a member: sealane cluster list`, { reason: 'MemberUnknown' })
      }
      await printOne(output, options.output, { id, changed, ...row.quota }, quotaLines(row))
      if (named.length > 0) output.remark(changed ? 'changed\n' : 'that was so already: nothing was done\n')
    })
}
