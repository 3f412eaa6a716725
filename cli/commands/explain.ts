/** `sealane explain`: the way of one call, from the name to the backend and back, and where it ends. */
import { type Command, Option } from 'commander'
import { type PathFrom, type PathSide, type PathTo, parseFrom, parseTo } from '../../explain/path/path.ts'
import { ExitWith, UserError } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  LOCAL_SITE,
  type OutputFormat,
  type TargetOptions,
  addTargetOptions,
  collect,
  lookTimeoutOption,
  outputOption,
  parsed,
  printOne,
  seenOtherwise,
  subcommand,
  targetToSee,
  throwingUsageErrors,
} from '../context/context.ts'
import { EXIT_UNKNOWN, type MemberInit } from '../status/status.ts'
import { pagesOption, pagesToAsk, unknownError } from './status.ts'

interface ExplainOptions extends TargetOptions {
  readonly toContext?: readonly string[]
  readonly toSite?: readonly string[]
  readonly bundle?: string
  readonly toBundle?: readonly string[]
  readonly machines: boolean
  readonly output: OutputFormat
  readonly timeout: number
  readonly ask?: readonly string[]
}

const TEXT =
  'Explains one call step by step, there and back: what DNS answers, which clusters get it, whether it may, the ' +
  'backends, how addresses are rewritten, the gateways and the link; and at which step it ends. Run it where the ' +
  'caller is. Exit code 0: REACHABLE, 1: UNREACHABLE, 2: AMBIGUOUS (some packets pass), 3: UNDETERMINED, or wrong usage.'

export function addExplainCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'explain', TEXT, 'sealane explain shop/front-0 db.shop:5432 --to-context paris')
  const command = throwingUsageErrors(made, EXIT_UNKNOWN)
    .argument('<from>', 'the caller, as NAMESPACE/POD, the name of a node, or an address', parsed(parseFrom))
    .argument(
      '<to>',
      'SERVICE.NAMESPACE, its full name, that of a headless pod, or an address; then :PORT, then /udp if it is UDP',
      parsed(parseTo),
    )
  const live = ['bundle', 'toBundle']
  addTargetOptions(command, seenOtherwise(LOCAL_SITE))
    .addOption(
      new Option('--to-context <name>', 'also ask the called cluster; may be given several times')
        .argParser(collect((name) => name))
        .conflicts(live),
    )
    .addOption(
      new Option('--to-site <file>', 'also ask the called site, by its site file; may be given several times')
        .argParser(collect((file) => file))
        .conflicts(live),
    )
    .addOption(
      new Option(
        '--bundle <file>',
        'explain by a file written by "sealane gather" instead of the live state, as far as it has the objects',
      ).conflicts(['context', 'kubeconfig', 'site', 'ask', 'machines']),
    )
    .addOption(
      new Option('--to-bundle <file>', 'the same for the called side; may be given several times').argParser(
        collect((file) => file),
      ),
    )
    .option('--machines', 'also examine kernels, firewalls and DNS servers, as diagnose does', false)
    .addOption(pagesOption())
    .addOption(lookTimeoutOption(5000))
    .addOption(outputOption())
    .action(async (from: PathFrom, to: PathTo, options: ExplainOptions) => {
      try {
        const code = await explain({ from, to }, options, context, command)
        if (code !== 0) throw new ExitWith(code)
      } catch (error) {
        throw unknownError(error)
      }
    })
}

interface Question {
  readonly from: PathFrom
  readonly to: PathTo
}

async function explain(
  question: Question,
  options: ExplainOptions,
  context: CommandContext,
  command: Command,
): Promise<number> {
  const [here, ...far] = await Promise.all([
    sideHere(question, options, context, command),
    ...sidesThere(question, options, context),
  ])
  const { explainPath } = await import('../../explain/path/path.ts')
  const found = explainPath(question, { here, far })
  if ('wrong' in found) throw new UserError(found.wrong, { hint: found.hint })
  const { PATH_EXIT_CODES, pathText } = await import('../status/path/path-text.ts')
  const { output: format } = options
  await printOne(context.output, format, found, pathText(found, format === 'wide'))
  return PATH_EXIT_CODES[found.outcome]
}

async function sideHere(
  question: Question,
  options: ExplainOptions,
  context: CommandContext,
  command: Command,
): Promise<PathSide> {
  const { bundle, site, ask, machines } = options
  if (bundle !== undefined) return sideOfBundle(bundle)
  const target = { kube: targetToSee(command, context, site), site }
  const { progressOn } = await import('../status/probes/progress.ts')
  const closer = machines ? { closer: { progress: progressOn(context.output) } } : {}
  const init = { ...target, pages: await pagesToAsk(ask), timeoutMs: options.timeout, quick: !machines, ...closer }
  return sideOf(init, { ...question, ...options }, context)
}

/** The members of the called end. Of each, only what it knows alone is used. */
function sidesThere({ to }: Question, options: ExplainOptions, context: CommandContext): Promise<PathSide>[] {
  const { toContext = [], toSite = [], toBundle = [], kubeconfig, timeout: timeoutMs } = options
  const base = { pages: [], timeoutMs, quick: true }
  const asked = { from: undefined, to, timeout: timeoutMs }
  const ofConfig = kubeconfig === undefined ? {} : { kubeconfig }
  return [
    ...toContext.map(async (name) => ({
      ...(await sideOf({ ...base, kube: { ...ofConfig, context: name }, site: '' }, asked, context)),
      title: `--to-context ${name}`,
    })),
    ...toSite.map(async (site) => ({
      ...(await sideOf({ ...base, kube: undefined, site }, asked, context)),
      title: `--to-site ${site}`,
    })),
    ...toBundle.map(async (file) => ({ ...(await sideOfBundle(file)), title: `--to-bundle ${file}` })),
  ]
}

async function sideOf(
  init: MemberInit,
  { from, to, timeout: timeoutMs }: Pick<ExplainOptions, 'timeout'> & { from: PathFrom | undefined; to: PathTo },
  context: CommandContext,
): Promise<PathSide> {
  const { openMember } = await import('../status/open-member.ts')
  const { gatherPath } = await import('../status/path/gather-path.ts')
  const { signal } = context
  return openMember(init, context, (gather, opened) => gatherPath(gather, opened, { from, to, timeoutMs, signal }))
}

async function sideOfBundle(file: string): Promise<PathSide> {
  const { readBundle } = await import('../bundle/read-bundle.ts')
  return { facts: await readBundle(file) }
}
