/** `sealane token create|list|revoke`, on the broker's host, beside a running broker or not. */
import type { Command } from 'commander'
import { parseClusterId } from '../../model/ids.ts'
import { UserError } from '../../runtime/user-error.ts'
import type { TokenStore } from '../compose-broker.ts'
import {
  type CommandContext,
  durationOption,
  outputOption,
  parsed,
  quoted,
  stateOption,
  subcommand,
} from '../context.ts'
import { type OutputFormat, printItems, printOne } from '../output.ts'

interface CreateOptions {
  readonly state: string
  readonly ttl: number
  readonly uses: number
  readonly clusterId?: string
  readonly output: OutputFormat
}

interface CommonOptions {
  readonly state: string
  readonly output: OutputFormat
}

const MAX_USES = 1000
const MAX_TTL_MS = 30 * 24 * 3_600_000

export function addTokenCommand(program: Command, context: CommandContext): void {
  const token = subcommand(program, 'token', 'Makes, lists and revokes join tokens.', 'sealane token create --ttl 15m')
  addCreate(token, context)
  addList(token, context)
  addRevoke(token, context)
}

function addCreate(token: Command, { output }: CommandContext): void {
  subcommand(
    token,
    'create',
    'Makes a token and prints the command that uses it.',
    'sealane token create --cluster-id paris',
  )
    .addOption(stateOption())
    .addOption(durationOption('--ttl', 'how long it can be used', 900_000, { minMs: 1000, maxMs: MAX_TTL_MS }))
    .option('--uses <count>', 'how many clusters may use it', parsed(parseUses), 1)
    .option(
      '--cluster-id <id>',
      'the only cluster that may use it',
      parsed((text: string) => parseClusterId(text, '--cluster-id')),
    )
    .addOption(outputOption())
    .action(async ({ state, ttl, uses, clusterId, output: format }: CreateOptions) => {
      const made = await withTokenStore(state, (store) =>
        store.create({ ttlMs: ttl, uses, ...(clusterId === undefined ? {} : { cluster: clusterId }) }),
      )
      const expires = new Date(made.expiresAtMs).toISOString()
      const value = { id: made.id, token: made.text, expires }
      output.remark(`token ${made.id}, ${uses === 1 ? 'for one join' : `for ${uses} joins`}, until ${expires}\n`)
      printOne(output, format, value, `sealane join --site site.yaml --token ${value.token}\n`)
    })
}

function addList(token: Command, { output }: CommandContext): void {
  subcommand(token, 'list', 'Lists tokens; their secrets are not kept.', 'sealane token list -o yaml')
    .addOption(stateOption())
    .addOption(outputOption())
    .action(async ({ state, output: format }: CommonOptions) => {
      const rows = await withTokenStore(state, (store) => store.list())
      printItems(output, format, rows, [
        { title: 'ID', cell: (row) => row.id },
        { title: 'STATE', cell: (row) => row.state },
        { title: 'USES LEFT', cell: (row) => String(row.usesLeft), align: 'right' },
        { title: 'CLUSTER', cell: (row) => row.cluster ?? 'any' },
        { title: 'USED BY', cell: (row) => row.usedBy.join(',') || '-' },
        { title: 'EXPIRES', cell: (row) => new Date(row.expiresAtMs).toISOString() },
      ])
    })
}

function addRevoke(token: Command, { output }: CommandContext): void {
  subcommand(token, 'revoke', 'Makes a token worthless at once.', 'sealane token revoke 4f0c2a9b11')
    .argument('<id>', 'as token list prints it')
    .addOption(stateOption())
    .action(async (id: string, { state }: { state: string }) => {
      await withTokenStore(state, (store) => store.revoke(id))
      output.answer(`token ${id} revoked\n`)
    })
}

/** Loaded only when a token command runs: the store brings the broker's database along. */
async function withTokenStore<T>(state: string, work: (store: TokenStore) => Promise<T>): Promise<T> {
  const composed = await import('../compose-broker.ts')
  return composed.withTokenStore(state, work)
}

function parseUses(text: string): number {
  const uses = Number(text)
  if (!Number.isInteger(uses) || uses < 1 || uses > MAX_USES) {
    throw new UserError(`--uses ${quoted(text)}: expected 1 to ${MAX_USES}`)
  }
  return uses
}
