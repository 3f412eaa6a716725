/** `sealane status` and `sealane members`: one screen about this cluster, or about all members of a clusterset. */
import { type Command, Option } from 'commander'
import type { Diagnosis } from '../../../explain/diagnose-member.ts'
import { parseHostPort } from '../../../runtime/host-port.ts'
import { messageOf } from '../../../runtime/thrown.ts'
import { ExitWith, UserError } from '../../../runtime/user-error.ts'
import { type CommandContext, collect, outputOption, subcommand } from '../../context.ts'
import { type OutputFormat, printOne } from '../../output.ts'
import { throwingUsageErrors } from '../../parse-command-line.ts'
import { EXIT_CODES, EXIT_UNKNOWN, statusDocument } from '../../status/status-document.ts'
import { statusScreen } from '../../status/status-screen.ts'
import { LOCAL_SITE, type TargetOptions, addTargetOptions, seenOtherwise, targetToSee } from '../../target.ts'
import { lookTimeoutOption } from '../../within-time.ts'
import { lookAgain, screenStart } from './watch.ts'

interface StatusOptions extends TargetOptions {
  readonly output: OutputFormat
  readonly timeout: number
  readonly watch: boolean
  readonly ask?: readonly string[]
  readonly bundle?: string
}

const TEXT = 'Shows what this cluster is, reaches and lacks. Exit code 0: healthy, 1: degraded, 2: down, 3: not known.'
/** Of the status page of `sealane up`. */
export const STANDARD_PAGE = '127.0.0.1:9471'

/** `sealane status`: one screen about this cluster or site, and an exit code for programs. */
export function addStatusCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'status', TEXT, 'sealane status --context c1 --watch')
  const command = addTargetOptions(throwingUsageErrors(made, EXIT_UNKNOWN), seenOtherwise(LOCAL_SITE))
  command
    .option('--watch', 'again every two seconds, until it is interrupted', false)
    .addOption(pagesOption())
    .addOption(
      new Option('--bundle <file>', 'of a file that sealane gather wrote, instead of what is there now').conflicts([
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

/** Of the commands that ask what runs on this machine. */
export function pagesOption(): Option {
  return new Option(
    '--ask <host:port>',
    `of a site: where its parts on this machine say how they do; may be given several times (default: ${STANDARD_PAGE})`,
  )
    .argParser(collect(parsePage))
    .conflicts(['context', 'kubeconfig'])
}

export function parsePage(text: string): string {
  parseHostPort(text, '--ask')
  return text
}

/** 1 and 2 say something about the cluster: a command that could not look has a code of its own. */
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
    const { readBundle } = await import('../../bundle/read-bundle.ts')
    const { diagnoseMember } = await import('../../../explain/diagnose-member.ts')
    const diagnosis = diagnoseMember(await readBundle(bundle))
    await print(options, context, diagnosis)
    return diagnosis.health
  }
  const { openMember } = await import('../../status/open-member.ts')
  const { diagnoseMember } = await import('../../../explain/diagnose-member.ts')
  const target = { kube: targetToSee(command, context, options.site), site: options.site }
  return openMember(
    { ...target, pages: options.ask ?? [STANDARD_PAGE], timeoutMs: options.timeout, quick: true },
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
  // A program that follows reads one document a line.
  if (watch && format === 'json') {
    output.answer(`${JSON.stringify(document)}\n`)
    return
  }
  if (watch && format === 'yaml') output.answer('---\n')
  const isScreen = watch && (format === 'table' || format === 'wide')
  if (isScreen) output.answer(screenStart(context))
  await printOne(output, format, document, statusScreen(diagnosis, { wide: format === 'wide' }))
}
