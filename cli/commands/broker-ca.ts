/** `sealane broker ca status|rotate|finish|abort`, for the broker on this machine or one in a cluster. */
import type { Command } from 'commander'
import type { AuthorityFacts, AuthorityStatus, AuthorityStep, BrokerAdmin } from '../../protocol/admin/admin.ts'
import { withBroker } from '../broker/broker.ts'
import {
  type BrokerOptions,
  type CommandContext,
  LOCAL_BROKER,
  type OutputFormat,
  addBrokerOptions,
  printOne,
  renderTable,
  seenOtherwise,
  subcommand,
  targetToChange,
  targetToSee,
} from '../context/context.ts'

// Prints the certificate authorities of a clusterset for people. Pure.

/** The maximum number of members in the table. `-o json` has all of them. */
const MAX_ROWS = 50

/** Two tables: the authorities, and during a rotation the members with what the rotation waits for. */
function authorityText(status: AuthorityStatus): string {
  const { current, next, members, waitsFor } = status
  const rows: (readonly [string, AuthorityFacts])[] = [
    ['current', current],
    ...(next === undefined ? [] : [['next', next] as const]),
  ]
  const authorities = renderTable(
    [
      { title: 'AUTHORITY', cell: ([role]) => role },
      { title: 'FINGERPRINT', cell: ([, { fingerprint }]) => fingerprint.slice(0, 16) },
      { title: 'SIGNS', cell: ([, { signs }]) => (signs ? 'yes' : 'no') },
      { title: 'FROM', cell: ([, { notBefore }]) => notBefore },
      { title: 'UNTIL', cell: ([, { notAfter }]) => notAfter },
    ],
    rows,
  )
  if (next === undefined) return authorities
  const why = new Map(waitsFor.members.map((one) => [one.id, one.why]))
  const shown = [...members].sort((a, b) => Number(why.has(b.id)) - Number(why.has(a.id))).slice(0, MAX_ROWS)
  const table = renderTable(
    [
      { title: 'MEMBER', cell: ({ id }) => id },
      { title: 'KNOWS NEXT', cell: ({ knowsNext }) => (knowsNext ? 'yes' : 'no') },
      { title: 'USES', cell: ({ uses }) => uses },
      { title: 'LEARNS', cell: ({ follows }) => (follows ? 'at once' : 'when it renews') },
      { title: 'CERTIFICATE ENDS', cell: ({ certificateEnds }) => certificateEnds },
    ],
    shown,
  )
  const waits = waitsFor.members.slice(0, MAX_ROWS).map(({ id, why }) => `waits for ${id}: it ${why}\n`)
  const tokens = waitsFor.tokens.map((id) => `waits for token ${id}: it pins only the old authority\n`)
  const more = members.length > MAX_ROWS ? `and ${members.length - MAX_ROWS} more members; list all with -o json\n` : ''
  return `${authorities}\n${shown.length === 0 ? '' : table}${more}${[...waits, ...tokens].join('')}`
}

/** The next step, which happens by itself or by a command. */
function nextText({ phase, waitsFor }: AuthorityStatus): string {
  const isFree = waitsFor.members.length === 0 && waitsFor.tokens.length === 0
  switch (phase) {
    case 'steady':
      return 'none; start a rotation with "sealane broker ca rotate"'
    case 'announced':
      return isFree
        ? 'the running broker switches to the next authority for signing and serving'
        : 'members receive the next authority; it signs and serves when no member or token is left to wait for'
    case 'switched':
      return isFree
        ? '"sealane broker ca finish" removes the old authority; "sealane broker ca abort" returns to it'
        : 'members renew their certificates with the next authority; then run "sealane broker ca finish"'
    case 'withdrawn':
      return isFree
        ? 'the running broker removes the withdrawn authority'
        : 'members renew their certificates with the old authority; then the broker removes the withdrawn one'
  }
}

export function addBrokerCaCommands(broker: Command, context: CommandContext): void {
  const text = 'Shows and rotates the certificate authority of the clusterset without interrupting members.'
  const ca = subcommand(broker, 'ca', text, 'sealane broker ca status')
  addStatus(ca, context)
  addRotate(ca, context)
  addFinish(ca, context)
  addAbort(ca, context)
}

function addStatus(ca: Command, context: CommandContext): void {
  const text = 'Shows the authorities, and the members and tokens that block the next step.'
  const command = subcommand(ca, 'status', text, 'sealane broker ca status --context hub')
  addBrokerOptions(command, seenOtherwise(LOCAL_BROKER)).action(async (options: BrokerOptions) => {
    const kube = targetToSee(command, context, options.state)
    const status = await withBroker({ ...options, kube }, context, (broker) => broker.authority())
    await show(status, options.output, context)
  })
}

function addRotate(ca: Command, context: CommandContext): void {
  const text =
    'Announces a second authority. It starts to sign when all members trust it; until then nothing changes for them.'
  const command = subcommand(ca, 'rotate', text, 'sealane broker ca rotate')
  addBrokerOptions(command, LOCAL_BROKER)
    .option(
      '--certificate <file>',
      'certificate of an authority whose key is in --ca-dir; a path on the machine or pod of the broker',
    )
    .option(
      '--force',
      'let the announced authority sign now, even if that cuts off members, which then have to join again',
      false,
    )
    .action(async (options: BrokerOptions & { readonly certificate?: string; readonly force: boolean }) => {
      const { certificate, force } = options
      const init = { force, ...(certificate === undefined ? {} : { certificate }) }
      const done = force ? 'the second authority now signs and serves' : 'second authority announced'
      await step(done, (broker) => broker.rotateAuthority(init), {
        ...{ command, context, options },
      })
    })
}

function addFinish(ca: Command, context: CommandContext): void {
  const text = 'Removes the old authority. Fails while members or tokens depend on it, and names them.'
  const command = subcommand(ca, 'finish', text, 'sealane broker ca finish')
  addBrokerOptions(command, LOCAL_BROKER)
    .option('--force', 'remove it even if that cuts off members, which then have to join again', false)
    .action(async (options: BrokerOptions & { readonly force: boolean }) => {
      const { force } = options
      await step('old authority removed: its certificates are refused', (broker) => broker.finishRotation({ force }), {
        ...{ command, context, options },
      })
      if (options.output === 'table')
        context.output.remark(
          'take a new backup: earlier backups contain the removed authority, which members no longer trust\n',
        )
    })
}

function addAbort(ca: Command, context: CommandContext): void {
  const text = 'Returns to the old authority. Members keep working; the second one is removed when no member uses it.'
  const command = subcommand(ca, 'abort', text, 'sealane broker ca abort')
  addBrokerOptions(command, LOCAL_BROKER).action(async (options: BrokerOptions) => {
    await step('the old authority signs and serves again', (broker) => broker.abortRotation(), {
      ...{ command, context, options },
    })
  })
}

interface StepInit {
  readonly command: Command
  readonly context: CommandContext
  readonly options: BrokerOptions
}

async function step(
  done: string,
  work: (broker: BrokerAdmin) => Promise<AuthorityStep>,
  { command, context, options }: StepInit,
): Promise<void> {
  const kube = targetToChange(command, context)
  const result = await withBroker({ ...options, kube }, context, work)
  if (options.output === 'table' || options.output === 'wide')
    context.output.answer(result.repeated ? 'already done: nothing was changed\n' : `${done}\n`)
  await show(result, options.output, context)
}

async function show(status: AuthorityStatus, format: OutputFormat, { output }: CommandContext): Promise<void> {
  await printOne(output, format, status, authorityText(status))
  if (format === 'table' || format === 'wide') output.remark(`next: ${nextText(status)}\n`)
}
