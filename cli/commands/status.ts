/** `sealane status` and `sealane members`: one screen about this cluster, or about all members of a clusterset. */
import { type Command, Option } from 'commander'
import type { MemberSummary } from '../../protocol/admin/admin.ts'
import type { Diagnosis } from '../../explain/explain.ts'
import type { MemberReport } from '../../model/model.ts'
import { type Clock, SystemClock } from '../../reconcile/reconcile.ts'
import { ExitWith, UserError, messageOf, parseHostPort } from '../../runtime/runtime.ts'
import { unservedText, withBroker } from '../broker/broker.ts'
import {
  CLEAR_SCREEN,
  type CommandContext,
  type KubeTarget,
  LOCAL_BROKER,
  LOCAL_SITE,
  type OutputFormat,
  type TargetOptions,
  addKubeOptions,
  addTargetOptions,
  clustersetOption,
  collect,
  kubeTarget,
  lookTimeoutOption,
  outputOption,
  printItems,
  printOne,
  seenOtherwise,
  stateOption,
  subcommand,
  targetToSee,
  throwingUsageErrors,
} from '../context/context.ts'
import { EXIT_CODES, EXIT_UNKNOWN, statusDocument, statusScreen } from '../status/status.ts'

// Repeated output, as for `--watch`.

const WATCH_MS = 2000

/**
 * Calls `look` every two seconds, or every `everyMs`, until the signal aborts. An error is printed and does not end the loop, because the
 * user wants to see when the cluster works again.
 */
export async function lookAgain(
  { signal, output }: Pick<CommandContext, 'signal' | 'output'>,
  look: () => Promise<void>,
  clock: Clock = new SystemClock(),
  everyMs = WATCH_MS,
): Promise<void> {
  while (await pause(signal, clock, everyMs)) {
    try {
      await look()
    } catch (error) {
      // An interrupted look throws too.
      if (!signal.aborted) output.remark(`${messageOf(error)}\n`)
    }
  }
}

/** False if the signal aborted the pause. */
function pause(signal: AbortSignal, clock: Clock, ms: number): Promise<boolean> {
  return clock.sleep(ms, signal).then(
    () => true,
    () => false,
  )
}

/** The text before each repetition, for people. */
export function screenStart({ env }: Pick<CommandContext, 'env'>): string {
  return env === undefined && process.stdout.isTTY ? CLEAR_SCREEN : '\n'
}

interface StatusOptions extends TargetOptions {
  readonly output: OutputFormat
  readonly timeout: number
  readonly watch: boolean
  readonly ask?: readonly string[]
  readonly bundle?: string
}

const TEXT =
  'Shows the health of this cluster or site, and its problems. Exit code 0: healthy, 1: degraded, 2: down, 3: unknown.'
/** The address of the status page of `sealane up`. */
export const STANDARD_PAGE = '127.0.0.1:9471'

/** `sealane status`: one screen about this cluster or site, and an exit code for programs. */
export function addStatusCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'status', TEXT, 'sealane status --context c1 --watch')
  const command = addTargetOptions(throwingUsageErrors(made, EXIT_UNKNOWN), seenOtherwise(LOCAL_SITE))
  command
    .option('--watch', 'repeat every two seconds until interrupted', false)
    .addOption(pagesOption())
    .addOption(
      new Option('--bundle <file>', 'show a file written by "sealane gather" instead of the live state').conflicts([
        ...['context', 'kubeconfig', 'site', 'ask', 'watch'],
      ]),
    )
    .addOption(lookTimeoutOption(5000))
    .addOption(outputOption())
    .action(async (options: StatusOptions) => {
      try {
        const health = await show(options, context, command)
        if (EXIT_CODES[health] !== 0) throw new ExitWith(EXIT_CODES[health])
      } catch (error) {
        throw unknownError(error)
      }
    })
}

/** An option of the commands that query the processes on this machine. */
export function pagesOption(): Option {
  return new Option(
    '--ask <host:port>',
    `of a site: status address of a part on this machine; may be given several times (default: those of the installed services, else ${STANDARD_PAGE})`,
  )
    .argParser(collect(parsePage))
    .conflicts(['context', 'kubeconfig'])
}

/** The pages that `--ask` names, else those of the services that `sealane site install` wrote, else the standard one. */
export async function pagesToAsk(given: readonly string[] | undefined): Promise<readonly string[]> {
  if (given !== undefined) return given
  const { installedPages } = await import('../site/unit-files.ts')
  const pages = installedPages()
  return pages.length === 0 ? [STANDARD_PAGE] : pages
}

export function parsePage(text: string): string {
  parseHostPort(text, '--ask')
  return text
}

/** Exit codes 1 and 2 describe the state of the cluster. So a command that could not look has a code of its own. */
/** Of a command that reads the objects of one cluster or site. */
export function bundleOption(): Option {
  const text = 'look into a file written by "sealane gather" instead of the live state'
  return new Option('--bundle <file>', text).conflicts(['context', 'kubeconfig', 'site', 'watch'])
}

export function unknownError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof ExitWith) return error
  if (!(error instanceof UserError)) return new UserError(messageOf(error), { exitCode: EXIT_UNKNOWN, cause: error })
  const { hint, reason, cause } = error
  return new UserError(error.message, {
    exitCode: EXIT_UNKNOWN,
    ...(hint === undefined ? {} : { hint }),
    ...(reason === undefined ? {} : { reason }),
    ...(cause === undefined ? {} : { cause }),
  })
}

async function show(options: StatusOptions, context: CommandContext, command: Command): Promise<Diagnosis['health']> {
  const { watch, bundle } = options
  if (bundle !== undefined) {
    const { readBundle } = await import('../bundle/read-bundle.ts')
    const { diagnoseMember } = await import('../../explain/diagnose-member.ts')
    const diagnosis = diagnoseMember(await readBundle(bundle))
    await print(options, context, diagnosis)
    return diagnosis.health
  }
  const { openMember } = await import('../status/open-member.ts')
  const { diagnoseMember } = await import('../../explain/diagnose-member.ts')
  const target = { kube: targetToSee(command, context, options.site), site: options.site }
  return openMember(
    { ...target, pages: await pagesToAsk(options.ask), timeoutMs: options.timeout, quick: true },
    context,
    async (gather) => {
      let health: Diagnosis['health'] = 'down'
      const look = async (): Promise<void> => {
        const diagnosis = diagnoseMember(await gather())
        health = diagnosis.health
        await print(options, context, diagnosis)
      }
      await look()
      if (watch) await lookAgain(context, look)
      return health
    },
  )
}

async function print(
  { output: format, watch }: StatusOptions,
  context: CommandContext,
  diagnosis: Diagnosis,
): Promise<void> {
  const { output } = context
  const document = statusDocument(diagnosis)
  // With --watch, programs get one JSON document per line.
  if (watch && format === 'json') {
    output.answer(`${JSON.stringify(document)}\n`)
    return
  }
  if (watch && format === 'yaml') output.answer('---\n')
  const isScreen = watch && (format === 'table' || format === 'wide')
  if (isScreen) output.answer(screenStart(context))
  await printOne(output, format, document, statusScreen(diagnosis, { wide: format === 'wide' }))
}

interface MembersOptions extends KubeTarget {
  readonly state: string
  readonly clusterset?: string
  readonly output: OutputFormat
  readonly timeout: number
  readonly watch: boolean
}

/** The facts about one member for programs. */
interface MemberLook {
  readonly id: string
  readonly state: MemberSummary['state']
  readonly lastHeardMs: number
  /** Undefined if the member has not reported, as a member of an earlier release. */
  readonly reported?: MemberReport
}

const MEMBERS_TEXT =
  'Shows the state that each member reports to the broker. "sealane status" on the member shows more.'
const HINT = 'start it (sealane broker serve), or find out why it ended: sealane broker status'
/** The maximum number of problems of one member in a table that is not wide. */
const MAX_PROBLEMS = 3

/** `sealane members`: every member of a clusterset on one screen, as each reports itself to the broker. */
export function addMembersCommand(program: Command, context: CommandContext): void {
  addKubeOptions(
    subcommand(program, 'members', MEMBERS_TEXT, 'sealane members --context hub --watch'),
    seenOtherwise(LOCAL_BROKER),
  )
    .addOption(
      stateOption(
        'state directory of a broker on this machine; if it is stopped, its last state is shown, with exit code 1',
      ),
    )
    .addOption(clustersetOption())
    .option('--watch', 'repeat every two seconds until interrupted', false)
    .addOption(lookTimeoutOption())
    .addOption(outputOption())
    .action(async (options: MembersOptions, command: Command) => {
      const kube = targetToSee(command, context, options.state)
      const look = async (at: KubeTarget | undefined) => {
        const [all, unserved] = await withBroker({ ...options, kube: at }, context, async (broker, reached) => {
          const members = await broker.members()
          return [members, unservedText(options.state, reached, members)] as const
        })
        await printMembers(options, context, unserved === undefined ? all : all.map(asSilent))
        if (unserved !== undefined) throw new UserError(unserved, { hint: HINT, reason: 'BrokerSilent' })
      }
      await look(kube)
      // The name of the selected cluster is printed once.
      const again = kube && (kubeTarget(kube) ?? {})
      if (options.watch) await lookAgain(context, () => look(again))
    })
}

/** While the broker does not run, no member is in contact with it, whatever its stored data says. */
function asSilent(member: MemberSummary): MemberSummary {
  return member.state === 'in contact' ? { ...member, state: 'silent' } : member
}

async function printMembers(
  { output: format, watch }: MembersOptions,
  context: CommandContext,
  all: readonly MemberSummary[],
): Promise<void> {
  const { output } = context
  const looks = all.filter(({ state }) => state === 'in contact' || state === 'silent').map(lookOf)
  // With --watch, programs get one JSON document per line.
  if (watch && format === 'json') {
    output.answer(`${JSON.stringify({ items: looks })}\n`)
    return
  }
  if (watch) output.answer(format === 'yaml' ? '---\n' : screenStart(context))
  await printItems(output, format, looks, [
    { title: 'CLUSTER', cell: ({ id }) => id },
    { title: 'STATE', cell: ({ state }) => state },
    { title: 'VERSIONS', cell: ({ reported }) => reported?.versions.join(',') ?? '-' },
    { title: 'LANES', cell: ({ reported }) => (reported ? `${reported.lanes.up}/${reported.lanes.of}` : '-') },
    { title: 'EXPORTS', cell: ({ reported }) => exportsCell(reported) },
    { title: 'PROBLEMS', cell: ({ reported }) => problemsCell(reported, format === 'wide' ? Infinity : MAX_PROBLEMS) },
    { title: 'LAST HEARD', cell: ({ lastHeardMs }) => new Date(lastHeardMs).toISOString() },
  ])
}

function lookOf({ id, state, lastSeenMs, reported }: MemberSummary): MemberLook {
  return { id, state, lastHeardMs: lastSeenMs, ...(reported === undefined ? {} : { reported }) }
}

function exportsCell(reported: MemberReport | undefined): string {
  if (reported === undefined) return '-'
  const { count, failed } = reported.exports
  return failed === 0 ? `${count}` : `${count} (${failed} failed)`
}

/** The problems come sorted, the most severe first. */
function problemsCell(reported: MemberReport | undefined, most: number): string {
  if (reported === undefined) return '-'
  const { problems } = reported
  const named = problems.slice(0, most).map(({ code, severity, count }) => `${code} x${count} (${severity})`)
  const more = problems.length > most ? [`${problems.length - most} more`] : []
  return [...named, ...more].join(', ') || 'none'
}
