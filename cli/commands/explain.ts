/** `sealane explain`: the way of one call, from the name to the backend and back, and where it ends. */
import { type Command, Option } from 'commander'
import {
  type PathExplanation,
  type PathFrom,
  type PathSide,
  type PathTo,
  parseFrom,
  parseTo,
} from '../../explain/path/path.ts'
import { jsonForTerminal } from '../../model/model.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { ExitWith, UserError } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  type KubeTarget,
  LOCAL_SITE,
  type Output,
  type OutputFormat,
  type TargetOptions,
  addTargetOptions,
  collect,
  durationOption,
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
import { lookAgain, pagesOption, pagesToAsk, unknownError } from './status.ts'

interface ExplainOptions extends TargetOptions {
  readonly toContext?: readonly string[]
  readonly toSite?: readonly string[]
  readonly bundle?: string
  readonly toBundle?: readonly string[]
  readonly machines: boolean
  readonly probe: boolean
  readonly watch: boolean
  readonly interval: number
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
    .addOption(
      new Option(
        '--probe',
        'also send real packets, at most 10 in 5 s, follow them where they can be followed, and say where they end; ' +
          'for a pod of a cluster, a probe pod beside it sends them',
      )
        .default(false)
        .conflicts(live),
    )
    .addOption(
      new Option('--watch', 'repeat until interrupted, and print what has changed').default(false).conflicts('bundle'),
    )
    .addOption(
      durationOption('--interval', 'of --watch: the time between two looks; with --probe 15s or more', 5000, {
        minMs: 1000,
      }),
    )
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
  const target = options.bundle === undefined ? targetToSee(command, context, options.site) : undefined
  const { PATH_EXIT_CODES, pathText } = await import('../status/path/path-text.ts')
  const { output: format, watch } = options
  const interval = watch && options.probe ? intervalOfProbes(options, command) : options.interval
  const { output } = context
  let path = await explainOnce(question, options, context, target)
  const show = (): Promise<void> => printOne(output, format, path, pathText(path, format === 'wide'))
  if (!watch) {
    await show()
    return PATH_EXIT_CODES[path.outcome]
  }
  const { pathChanges } = await import('../status/path/plan-path-changes.ts')
  if (format === 'json' || format === 'yaml') await printAgain(output, format, path)
  else await show()
  // The name of the selected cluster is printed once.
  const again = target === undefined ? undefined : withoutSource(target)
  const look = async (): Promise<void> => {
    const before = path
    path = await explainOnce(question, options, context, again)
    const changes = pathChanges(before, path)
    if (changes.length === 0) return
    if (format === 'json' || format === 'yaml') await printAgain(output, format, path)
    else output.answer(changes.map((line) => `${path.takenAt} ${line}\n`).join(''))
  }
  await lookAgain(context, look, new SystemClock(), interval)
  return PATH_EXIT_CODES[path.outcome]
}

/** A probe makes the machines on the way trace packets, and in a cluster it makes a pod. */
const PROBES_MS = 15_000

function intervalOfProbes({ interval }: ExplainOptions, command: Command): number {
  if (command.getOptionValueSource('interval') === 'default') return PROBES_MS
  if (interval >= PROBES_MS) return interval
  throw new UserError(`--interval ${interval / 1000}s: expected 15s or more with --probe`, { exitCode: EXIT_UNKNOWN })
}

/** One line of JSON, or one document of YAML, for each explanation that differs from the one before. */
async function printAgain(output: Output, format: 'json' | 'yaml', path: PathExplanation): Promise<void> {
  if (format === 'json') {
    output.answer(`${jsonForTerminal(JSON.stringify(path))}\n`)
    return
  }
  output.answer('---\n')
  await printOne(output, format, path, '')
}

function withoutSource({ by: _by, ...target }: KubeTarget): KubeTarget {
  return target
}

async function explainOnce(
  question: Question,
  options: ExplainOptions,
  context: CommandContext,
  target: KubeTarget | undefined,
): Promise<PathExplanation> {
  const [here, ...far] = await Promise.all([
    sideHere(question, options, context, target),
    ...sidesThere(question, options, context),
  ])
  const { explainCall } = await import('../../explain/path/path.ts')
  const call = explainCall(question, { here, far })
  if ('wrong' in call) throw new UserError(call.wrong, { hint: call.hint })
  if (!options.probe) return call.path
  const { probePath } = await import('../status/path/probe-path.ts')
  const { toContext = [], toSite = [], kubeconfig } = options
  const file = kubeconfig === undefined ? {} : { kubeconfig }
  const sides = [
    ...toContext.map((name) => ({ title: `--to-context ${name}`, kube: { ...file, context: name } })),
    ...toSite.map((site) => ({ title: `--to-site ${site}`, kube: undefined })),
  ]
  const own = { title: 'this member', kube: target, facts: here.facts }
  return probePath({ call, from: question.from, here: own, far: sides }, context)
}

async function sideHere(
  question: Question,
  options: ExplainOptions,
  context: CommandContext,
  kube: KubeTarget | undefined,
): Promise<PathSide> {
  const { bundle, site, ask, machines } = options
  if (bundle !== undefined) return sideOfBundle(bundle)
  const target = { kube, site }
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
  const { readWholeBundle } = await import('../bundle/read-bundle.ts')
  const { facts, objects } = await readWholeBundle(file)
  const { EndpointSlice, Namespace, AccessPolicy, ClusterAccessPolicy, TrafficPolicy, ClusterTrafficPolicy } = objects
  return {
    facts,
    objects: {
      ...(EndpointSlice === undefined ? {} : { EndpointSlice }),
      ...(Namespace === undefined ? {} : { Namespace }),
      ...(AccessPolicy === undefined ? {} : { AccessPolicy }),
      ...(ClusterAccessPolicy === undefined ? {} : { ClusterAccessPolicy }),
      ...(TrafficPolicy === undefined ? {} : { TrafficPolicy }),
      ...(ClusterTrafficPolicy === undefined ? {} : { ClusterTrafficPolicy }),
    },
  }
}
