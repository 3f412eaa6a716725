/** `sealane diagnose` and `sealane gather`, and the hidden command that they run in pods to examine a machine. */
import { Argument, type Command, Option } from 'commander'
import { AREAS, type Area, type Fact } from '../../explain/facts/facts.ts'
import { ExitWith, UserError } from '../../runtime/runtime.ts'
import {
  type CommandContext,
  LOCAL_SITE,
  type OutputFormat,
  type TargetOptions,
  addKubeOptions,
  addTargetOptions,
  collect,
  envOf,
  lookTimeoutOption,
  outputOption,
  parsed,
  printOne,
  quoted,
  seenOtherwise,
  siteOption,
  subcommand,
  targetToSee,
  throwingUsageErrors,
} from '../context/context.ts'
import {
  type AskedServer,
  EXIT_CODES,
  EXIT_UNKNOWN,
  MACHINE_COMMAND,
  MOST_SERVERS,
  type MachineFacts,
  type Several,
  type SeveralInit,
  parseAskedServer,
} from '../status/status.ts'
import { STANDARD_PAGE, pagesOption, pagesToAsk, parsePage, unknownError } from './status.ts'

interface DiagnoseOptions {
  readonly site: readonly string[]
  readonly kubeconfig?: string
  readonly context?: string
  readonly allContexts: boolean
  readonly bundle?: readonly string[]
  readonly output: OutputFormat
  readonly timeout: number
  readonly ask?: readonly string[]
}

const TEXT =
  'Examines this cluster or site, and shows the cause of each problem and what to do. Several members are also ' +
  'compared with each other. The exit codes are those of status.'

/** `sealane diagnose`: examines more than `status` does, and names the cause of each problem and the next step. */
export function addDiagnoseCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'diagnose', TEXT, 'sealane diagnose --site site.yaml dns')
  const command = addKubeOptions(
    throwingUsageErrors(made, EXIT_UNKNOWN).addOption(sitesOption()),
    seenOtherwise(LOCAL_SITE),
  )
  const alone = ['context', 'site', 'ask']
  command
    .addArgument(new Argument('[area]', AREA_TEXT).argParser(parsed(parseArea)))
    .addOption(
      new Option('--all-contexts', 'compare all clusters of the kubeconfig in which Sealane is installed')
        .default(false)
        .conflicts(alone),
    )
    .addOption(
      new Option(
        '--bundle <file>',
        'examine a file written by "sealane gather" instead of the live state; several files are compared',
      )
        .argParser(collect((file) => file))
        .conflicts([...alone, 'kubeconfig', 'allContexts']),
    )
    .addOption(pagesOption())
    .addOption(lookTimeoutOption(5000))
    .addOption(outputOption())
    .action(async (area: AskedArea | undefined, options: DiagnoseOptions) => {
      try {
        const code = await diagnose(area, options, context, command)
        if (code !== 0) throw new ExitWith(code)
      } catch (error) {
        throw unknownError(error)
      }
    })
}

/** The --site option that every command has, here repeatable so that several sites can be compared. */
function sitesOption(): Option {
  const option = siteOption()
  const standards = [String(option.defaultValue)]
  option.description = `${option.description}; several sites are compared`
  return option
    .argParser((file: string, before: readonly string[]) => [...(before === standards ? [] : before), file])
    .default(standards, standards[0])
}

/** What is asked for besides the areas of checks: a report, with what the checks of the lanes find as its exit code. */
const REACH = 'reach' as const
type AskedArea = Area | typeof REACH
const AREA_TEXT = `${AREAS.join(', ')}, or ${REACH}: how gateways reach the others, and why not better (default: all)`

function parseArea(text: string): AskedArea {
  const area = [...AREAS, REACH].find((candidate) => candidate === text)
  if (area === undefined) throw new UserError(`area ${quoted(text)}: expected ${[...AREAS, REACH].join(', ')}`)
  return area
}

async function diagnose(
  asked: AskedArea | undefined,
  options: DiagnoseOptions,
  context: CommandContext,
  command: Command,
): Promise<number> {
  const { bundle, site, allContexts, ask } = options
  const isOfSeveral = allContexts || site.length > 1 || (bundle?.length ?? 0) > 1
  if (isOfSeveral && asked !== undefined) throw new UserError('area: expected none when several members are compared')
  if (site.length > 1 && ask !== undefined)
    throw new UserError('--ask: expected one --site, because a status page belongs to one site')
  if (isOfSeveral) return compare(options, context)
  if (asked === REACH) return showReach(await factsOf('lanes', options, context, command), options, context)
  return show(await factsOf(asked, options, context, command), asked, options, context)
}

/** The facts about one cluster or site. */
async function factsOf(
  area: Area | undefined,
  options: DiagnoseOptions,
  context: CommandContext,
  command: Command,
): Promise<unknown> {
  const { timeout: timeoutMs, site: sites, ask, bundle: [bundle] = [] } = options
  if (bundle !== undefined) {
    const { readBundle } = await import('../bundle/read-bundle.ts')
    return readBundle(bundle)
  }
  const pages = await pagesToAsk(ask)
  const { openMember } = await import('../status/open-member.ts')
  const { progressOn } = await import('../status/probes/progress.ts')
  const [site = ''] = sites
  const target = { kube: targetToSee(command, context, site), site }
  const closer = { area, progress: progressOn(context.output) }
  return openMember({ ...target, pages, timeoutMs, closer }, context, (gather) => gather())
}

async function showReach(
  facts: unknown,
  { output: format }: DiagnoseOptions,
  context: CommandContext,
): Promise<number> {
  const { reachReport } = await import('../../explain/reach-report.ts')
  const { reachDocument, reachText } = await import('../status/reach-text.ts')
  const report = reachReport(facts)
  await printOne(context.output, format, reachDocument(report), reachText(report, format === 'wide'))
  return EXIT_CODES[report.health]
}

async function show(
  facts: unknown,
  area: Area | undefined,
  { output: format }: DiagnoseOptions,
  context: CommandContext,
): Promise<number> {
  const { diagnoseMember } = await import('../../explain/diagnose-member.ts')
  const { diagnosisDocument, diagnosisText } = await import('../status/diagnosis.ts')
  const diagnosis = diagnoseMember(facts, area)
  const wide = format === 'wide'
  await printOne(context.output, format, diagnosisDocument(diagnosis, area), diagnosisText(diagnosis, area, wide))
  return EXIT_CODES[diagnosis.health]
}

async function compare(options: DiagnoseOptions, context: CommandContext): Promise<number> {
  const { compareMembers } = await import('../../explain/compare-members.ts')
  const { comparisonDocument, comparisonText } = await import('../status/diagnosis.ts')
  const { output: format } = options
  const { sets, missing } = await factsOfSeveral(options, context)
  if (sets.length === 0) {
    const why = missing.map(({ target, why: text }) => `${target}: ${text}`).join('; ')
    throw new UserError(
      `no member could be examined: ${why === '' ? 'Sealane is installed in none of the clusters' : why}`,
    )
  }
  const comparison = compareMembers(sets)
  const text = comparisonText(comparison, missing, format === 'wide')
  await printOne(context.output, format, comparisonDocument(comparison, missing), text)
  const code = EXIT_CODES[comparison.health]
  return code === 0 && missing.length > 0 ? EXIT_UNKNOWN : code
}

interface SetsOfSeveral extends Omit<Several, 'sets'> {
  readonly sets: readonly unknown[]
}

async function factsOfSeveral(options: DiagnoseOptions, context: CommandContext): Promise<SetsOfSeveral> {
  const { bundle, site: sites, allContexts, kubeconfig, timeout: timeoutMs } = options
  if (bundle !== undefined) {
    const { readBundle } = await import('../bundle/read-bundle.ts')
    const sets: unknown[] = []
    // Bundles are read one after another, because each may be large.
    for (const file of bundle) sets.push(await readBundle(file))
    return { sets, missing: [] }
  }
  const { lookAtSeveral } = await import('../status/diagnosis.ts')
  const { progressOn } = await import('../status/probes/progress.ts')
  const targets = allContexts
    ? await everyContext(kubeconfig, context)
    : sites.map((site) => ({ title: site, site, kube: undefined }))
  return lookAtSeveral({ targets, timeoutMs, progress: progressOn(context.output) }, context)
}

async function everyContext(kubeconfig: string | undefined, context: CommandContext): Promise<SeveralInit['targets']> {
  const { contextNames } = await import('../../kubeapi/kube/kubeconfig.ts')
  const file = kubeconfig === undefined ? {} : { kubeconfig }
  const { names } = contextNames({ ...file, env: envOf(context) })
  if (names.length === 0) throw new UserError('--all-contexts: there is no kubeconfig, or it has no context')
  return names.map((name) => ({ title: `context ${quoted(name)}`, site: '', kube: { ...file, context: name } }))
}

interface GatherOptions extends TargetOptions {
  readonly output?: string
  readonly force: boolean
  readonly timeout: number
  readonly ask?: readonly string[]
  readonly log?: readonly string[]
}

const GATHER_TEXT = 'Writes the state of this cluster or site into one file, for support. Secrets are left out.'

/** `sealane gather`: writes one file about this cluster or site, without its secrets, for support elsewhere. */
export function addGatherCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'gather', GATHER_TEXT, 'sealane gather --context c1 -o c1.tar.gz')
  const command = addTargetOptions(made, seenOtherwise(LOCAL_SITE))
  const ofSite = (flags: string, text: string): Option => new Option(flags, text).conflicts(['context', 'kubeconfig'])
  command
    .option('-o, --output <file>', 'the file to write (default: sealane-gather-TIME.tar.gz in this folder)')
    .option('--force', 'overwrite an existing file', false)
    .addOption(
      ofSite(
        '--ask <host:port>',
        `of a site: status address of a part on this machine; may be given several times (default: those of the installed services, else ${STANDARD_PAGE})`,
      ).argParser(collect(parsePage)),
    )
    .addOption(
      ofSite(
        '--log <file>',
        'of a site: a log file to include besides the journal; may be given several times',
      ).argParser(collect((file) => file)),
    )
    .addOption(lookTimeoutOption(10_000))
    .action(async (options: GatherOptions) => {
      const { gather } = await import('../bundle/gather.ts')
      const at = new Date()
      const { output, force, timeout, site, ask, log = [] } = options
      const file = output ?? `sealane-gather-${at.toISOString().replaceAll(/[-:]|\.\d+/g, '')}.tar.gz`
      const target = { kube: targetToSee(command, context, site), site }
      const { bytes, missing, count } = await gather(
        { ...target, file, force, at, pages: await pagesToAsk(ask), logs: log, timeout },
        context,
      )
      context.output.answer(`${file}\n`)
      context.output.remark(`${count} items, ${Math.ceil(bytes / 1024)} KiB, readable only by you\n`)
      for (const { item, why } of missing) context.output.remark(`not included: ${item}: ${why}\n`)
      context.output.remark(`to view it: sealane status --bundle ${file}\n`)
    })
}

interface MachineOptions {
  readonly node?: string
  readonly folder?: readonly string[]
  readonly broker: boolean
  readonly dns?: readonly AskedServer[]
}

/**
 * `sealane machine-facts`: the hidden command that `sealane diagnose` runs in a pod. It reports about the machine whose
 * network namespace the pod shares, or about the broker and DNS servers as pods reach them. Help does not list it,
 * because users run `diagnose`.
 */
export function addMachineCommand(program: Command, context: CommandContext): void {
  throwingUsageErrors(program.command(MACHINE_COMMAND, { hidden: true }))
    .description('Prints facts about this machine, or as seen from this pod, as JSON for diagnose.')
    .helpCommand(false)
    .option('--node <name>', 'the name of its Node; without it the kernel is not examined')
    .option(
      '--folder <path>',
      'a folder whose disk is examined; may be given several times',
      collect((path) => path),
    )
    .option('--broker', 'call the broker with the identity of this cluster', false)
    .option(
      '--dns <role=address:port>',
      'query this server for the zone; may be given several times',
      collect(parseAskedServer),
    )
    .action(async (options: MachineOptions) => {
      const { dns = [] } = options
      if (dns.length > MOST_SERVERS)
        throw new UserError(`--dns: ${dns.length} servers: expected ${MOST_SERVERS} at most`)
      const facts = await Promise.all([hostFacts(options, context), networkFacts(options, context)])
      const said: MachineFacts = { facts: facts.flat(), ...(dns.length === 0 ? {} : await resolverSettings()) }
      context.output.answer(`${JSON.stringify(said)}\n`)
    })
}

async function resolverSettings(): Promise<Pick<MachineFacts, 'resolvConf'>> {
  const { readResolvConf } = await import('../status/probes/dns-probe.ts')
  const text = await readResolvConf()
  return text === undefined ? {} : { resolvConf: text }
}

async function hostFacts({ node, folder = [] }: MachineOptions, { signal }: CommandContext): Promise<readonly Fact[]> {
  if (node === undefined) return []
  const { probeHost } = await import('../status/probes/host-probe.ts')
  const { nodePages } = await import('../status/probes/node-pages.ts')
  const found = [probeHost({ node, nodes: () => [], folders: folder }, signal), nodePages(signal)]
  return (await Promise.all(found)).flat()
}

async function networkFacts({ broker, dns = [] }: MachineOptions, context: CommandContext): Promise<readonly Fact[]> {
  if (!broker && dns.length === 0) return []
  const { lookFromPod } = await import('../status/probes/look-from-pod.ts')
  return lookFromPod({ broker, servers: dns }, context)
}
