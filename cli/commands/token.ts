/**
 * `sealane token create|list|revoke`, on the broker's host, whether or not the broker runs, or for a broker in a
 * cluster.
 */
import type { Command } from 'commander'
import { parseClusterId } from '../../model/model.ts'
import { formatPrefix, parsePrefix } from '../../model/addresses/addresses.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { TokenSummary } from '../../protocol/admin/admin.ts'
import {
  type BrokerOptions,
  type CommandContext,
  LOCAL_BROKER,
  addBrokerOptions,
  addKubeOptions,
  clustersetOption,
  collect,
  durationOption,
  lookTimeoutOption,
  otherContexts,
  outputOption,
  parsed,
  printItems,
  printOne,
  quoted,
  seenOtherwise,
  stateOption,
  subcommand,
  targetToChange,
  targetToSee,
} from '../context/context.ts'
import { tokenText, withBroker, writeTokenFile } from '../broker/broker.ts'

interface CreateOptions extends BrokerOptions {
  readonly ttl: number
  readonly uses: number
  readonly clusterId?: string
  readonly allowCidr?: readonly string[]
  readonly label?: readonly string[]
  readonly approve: boolean
  readonly out?: string
}

const MAX_USES = 1000
const MAX_TTL_MS = 30 * 24 * 3_600_000

export function addTokenCommand(program: Command, context: CommandContext): void {
  const token = subcommand(
    program,
    'token',
    'Creates, lists and revokes join tokens.',
    'sealane token create --ttl 15m',
  )
  addCreate(token, context)
  addList(token, context)
  addRevoke(token, context)
}

function addCreate(token: Command, context: CommandContext): void {
  const { output } = context
  const command = subcommand(
    token,
    'create',
    'Creates a join token, and prints the shell commands that use it.',
    'sealane token create --cluster-id paris',
  )
  addKubeOptions(command, LOCAL_BROKER)
    .addOption(stateOption())
    .addOption(clustersetOption())
    .addOption(durationOption('--ttl', 'how long the token is valid', 900_000, { minMs: 1000, maxMs: MAX_TTL_MS }))
    .option('--uses <count>', 'how many clusters can join with the token', parsed(parseUses), 1)
    .option(
      '--cluster-id <id>',
      'the id of the only cluster that can join with the token',
      parsed((text: string) => parseClusterId(text, '--cluster-id')),
    )
    .option(
      '--allow-cidr <cidr>',
      'public range that a cluster which joins with the token may claim, besides private ranges; may be given several times',
      collect(parseAllowed),
    )
    .option(
      '--label <key=value>',
      'label of the cluster, which access policies of others may name and it cannot change; may be given several times',
      collect(parseLabel),
    )
    .option('--approve', 'a cluster that joins with the token waits for "sealane cluster accept"', false)
    .option('--out <file>', 'write the token into this new file, and print only the join command')
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: CreateOptions) => {
      const kube = targetToChange(command, context)
      const { ttl, uses, clusterId, allowCidr: allowedCIDRs = [], label = [], approve, out, output: format } = options
      const labels = label.length === 0 ? undefined : labelsOf(label)
      const make = () =>
        withBroker({ ...options, kube }, context, async (broker) => {
          const token = await broker.createToken({
            ttlMs: ttl,
            uses,
            allowedCIDRs,
            ...(approve ? { approve } : {}),
            ...(labels === undefined ? {} : { labels }),
            ...(clusterId === undefined ? {} : { cluster: clusterId }),
          })
          if (labels === undefined || token.labels !== undefined) return token
          // Without its labels the token would admit a cluster that states them itself.
          await broker.revokeToken({ id: token.id })
          throw new UserError('--label: this broker is of an earlier release, which has no labels of tokens')
        })
      const made = out === undefined ? await make() : await writeTokenFile(out, make)
      const expires = new Date(made.expiresAtMs).toISOString()
      const value = { id: made.id, ...(out === undefined ? { token: made.text } : { file: out }), expires }
      output.remark(`token ${made.id}, ${uses === 1 ? 'for one join' : `for ${uses} joins`}, until ${expires}\n`)
      const others = kube === undefined || format !== 'table' ? [] : await otherContexts(kube)
      const text = tokenText({ token: made.text, broker: kube, others, cluster: clusterId, file: out })
      if (format === 'table') output.remark(text.remark + (out === undefined ? historyRemark(uses) : ''))
      await printOne(output, format, value, text.answer)
    })
}

function historyRemark(uses: number): string {
  const end = uses === 1 ? 'its join' : 'its last join'
  return `a shell keeps pasted lines in its history; the token is valid only until ${end}. To write it into a file instead, use --out FILE\n`
}

function addList(token: Command, context: CommandContext): void {
  const { output } = context
  addBrokerOptions(
    subcommand(
      token,
      'list',
      'Lists join tokens, without their secrets, which the broker does not store.',
      'sealane token list -o yaml',
    ),
    seenOtherwise(LOCAL_BROKER),
  ).action(async (options: BrokerOptions, command: Command) => {
    const format = options.output
    const kube = targetToSee(command, context, options.state)
    const rows = await withBroker({ ...options, kube }, context, (broker) => broker.tokens())
    await printItems(output, format, rows, [
      { title: 'ID', cell: (row) => row.id },
      { title: 'STATE', cell: (row) => row.state },
      { title: 'USES LEFT', cell: (row) => String(row.usesLeft), align: 'right' },
      { title: 'CLUSTER', cell: (row) => row.cluster ?? 'any' },
      { title: 'ALLOWS', cell: allowedCell },
      { title: 'LABELS', cell: labelsCell, wide: true },
      { title: 'CREATED', cell: (row) => new Date(row.createdAtMs).toISOString(), wide: true },
      { title: 'WAITING', cell: heldCell, wide: true },
      { title: 'USED BY', cell: (row) => row.usedBy.join(',') || '-' },
      { title: 'EXPIRES', cell: (row) => new Date(row.expiresAtMs).toISOString() },
    ])
  })
}

function addRevoke(token: Command, context: CommandContext): void {
  const { output } = context
  addBrokerOptions(
    subcommand(token, 'revoke', 'Revokes a join token immediately.', 'sealane token revoke 4f0c2a9b11'),
    LOCAL_BROKER,
  )
    .argument('<id>', 'the id of the token, as shown by "token list"')
    .action(async (id: string, options: BrokerOptions, command: Command) => {
      const kube = targetToChange(command, context)
      await withBroker({ ...options, kube }, context, (broker) => broker.revokeToken({ id }))
      await printOne(output, options.output, { id, revoked: true }, `token ${id} revoked\n`)
    })
}

function allowedCell({ allowedCIDRs }: TokenSummary): string {
  return allowedCIDRs.join(',') || '-'
}

function labelsCell({ labels = {} }: TokenSummary): string {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  return pairs.join(',') || '-'
}

/** The broker checks key and value. Throws UserError. */
function parseLabel(text: string): string {
  if (!/^[^=]+=[^=]*$/.test(text)) throw new UserError(`--label ${quoted(text)}: expected KEY=VALUE`)
  return text
}

function labelsOf(pairs: readonly string[]): Readonly<Record<string, string>> {
  const labels = Object.fromEntries(
    pairs.map((pair): [string, string] => {
      const at = pair.indexOf('=')
      return [pair.slice(0, at), pair.slice(at + 1)]
    }),
  )
  if (Object.keys(labels).length < pairs.length) throw new UserError('--label: expected each key once')
  return labels
}

function heldCell({ heldBy }: TokenSummary): string {
  return heldBy.join(',') || '-'
}

function parseAllowed(text: string): string {
  return formatPrefix(parsePrefix(text, '--allow-cidr'))
}

function parseUses(text: string): number {
  const uses = Number(text)
  if (!Number.isInteger(uses) || uses < 1 || uses > MAX_USES) {
    throw new UserError(`--uses ${quoted(text)}: expected 1 to ${MAX_USES}`)
  }
  return uses
}
