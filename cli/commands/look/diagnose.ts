/** `sealane diagnose` and `sealane gather`, and what they run in pods to look at a machine. */
import { type Command, Argument, Option } from 'commander'
import { AREAS, type Area } from '../../../explain/finding.ts'
import { ExitWith, UserError } from '../../../runtime/user-error.ts'
import { type CommandContext, collect, outputOption, parsed, quoted, siteOption, subcommand } from '../../context.ts'
import { type OutputFormat, printOne } from '../../output.ts'
import { throwingUsageErrors } from '../../parse-command-line.ts'
import type { Several, SeveralInit } from '../../diagnose/several-members.ts'
import { EXIT_CODES, EXIT_UNKNOWN } from '../../status/status-document.ts'
import { LOCAL_SITE, addKubeOptions, envOf, seenOtherwise, targetToSee } from '../../target.ts'
import { lookTimeoutOption } from '../../within-time.ts'
import { STANDARD_PAGE, pagesOption, unknownError } from './status.ts'

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
  'Looks closely at this cluster, names what is wrong by its cause, and says what to do; of several also what only ' +
  'their ends together show. Exit codes as of status.'

/** `sealane diagnose`: looks closer than `status` does, and names the cause of what is wrong with the next step. */
export function addDiagnoseCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'diagnose', TEXT, 'sealane diagnose --site site.yaml dns')
  const command = addKubeOptions(
    throwingUsageErrors(made, EXIT_UNKNOWN).addOption(sitesOption()),
    seenOtherwise(LOCAL_SITE),
  )
  const alone = ['context', 'site', 'ask']
  command
    .addArgument(new Argument('[area]', `${AREAS.join(', ')} (default: all)`).argParser(parsed(parseArea)))
    .addOption(
      new Option('--all-contexts', 'all clusters of the kubeconfig that have Sealane, compared')
        .default(false)
        .conflicts(alone),
    )
    .addOption(
      new Option(
        '--bundle <file>',
        'of a file that sealane gather wrote, instead of what is there now; several are compared',
      )
        .argParser(collect((file) => file))
        .conflicts([...alone, 'kubeconfig', 'allContexts']),
    )
    .addOption(pagesOption())
    .addOption(lookTimeoutOption(5000))
    .addOption(outputOption())
    .action(async (area: Area | undefined, options: DiagnoseOptions) => {
      try {
        const code = await diagnose(area, options, context, command)
        if (code !== 0) throw new ExitWith(code)
      } catch (error) {
        throw unknownError(error)
      }
    })
}

/** The one of every command, as often as there are sites to compare. */
function sitesOption(): Option {
  const option = siteOption()
  const standards = [String(option.defaultValue)]
  option.description = `${option.description}; several are compared`
  return option
    .argParser((file: string, before: readonly string[]) => [...(before === standards ? [] : before), file])
    .default(standards, standards[0])
}

function parseArea(text: string): Area {
  const area = AREAS.find((candidate) => candidate === text)
  if (area === undefined) throw new UserError(`area ${quoted(text)}: expected ${AREAS.join(', ')}`)
  return area
}

async function diagnose(
  area: Area | undefined,
  options: DiagnoseOptions,
  context: CommandContext,
  command: Command,
): Promise<number> {
  const { bundle, site, allContexts, ask } = options
  const isOfSeveral = allContexts || site.length > 1 || (bundle?.length ?? 0) > 1
  if (isOfSeveral && area !== undefined) throw new UserError('area: expected none where several are compared')
  if (site.length > 1 && ask !== undefined) throw new UserError('--ask: expected one --site: whose page it is')
  if (isOfSeveral) return compare(options, context)
  return show(await factsOf(area, options, context, command), area, options, context)
}

/** Of one. */
async function factsOf(
  area: Area | undefined,
  options: DiagnoseOptions,
  context: CommandContext,
  command: Command,
): Promise<unknown> {
  const { timeout: timeoutMs, site: sites, ask: pages = [STANDARD_PAGE], bundle: [bundle] = [] } = options
  if (bundle !== undefined) {
    const { readBundle } = await import('../../bundle/read-bundle.ts')
    return readBundle(bundle)
  }
  const { openMember } = await import('../../status/open-member.ts')
  const { progressOn } = await import('../../diagnose/progress.ts')
  const [site = ''] = sites
  const target = { kube: targetToSee(command, context, site), site }
  const closer = { area, progress: progressOn(context.output) }
  return openMember({ ...target, pages, timeoutMs, closer }, context, (gather) => gather())
}

async function show(
  facts: unknown,
  area: Area | undefined,
  { output: format }: DiagnoseOptions,
  context: CommandContext,
): Promise<number> {
  const { diagnoseMember } = await import('../../../explain/diagnose-member.ts')
  const { diagnosisDocument, diagnosisText } = await import('../../diagnose/diagnosis-text.ts')
  const diagnosis = diagnoseMember(facts, area)
  const wide = format === 'wide'
  await printOne(context.output, format, diagnosisDocument(diagnosis, area), diagnosisText(diagnosis, area, wide))
  return EXIT_CODES[diagnosis.health]
}

async function compare(options: DiagnoseOptions, context: CommandContext): Promise<number> {
  const { compareMembers } = await import('../../../explain/between/compare-members.ts')
  const { comparisonDocument, comparisonText } = await import('../../diagnose/diagnosis-text.ts')
  const { output: format } = options
  const { sets, missing } = await factsOfSeveral(options, context)
  if (sets.length === 0) {
    const why = missing.map(({ target, why: text }) => `${target}: ${text}`).join('; ')
    throw new UserError(`nothing could be looked at${why === '' ? ': no cluster has Sealane' : `: ${why}`}`)
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
    const { readBundle } = await import('../../bundle/read-bundle.ts')
    const sets: unknown[] = []
    // One after another: each may be large.
    for (const file of bundle) sets.push(await readBundle(file))
    return { sets, missing: [] }
  }
  const { lookAtSeveral } = await import('../../diagnose/several-members.ts')
  const { progressOn } = await import('../../diagnose/progress.ts')
  const targets = allContexts
    ? await everyContext(kubeconfig, context)
    : sites.map((site) => ({ title: site, site, kube: undefined }))
  return lookAtSeveral({ targets, timeoutMs, progress: progressOn(context.output) }, context)
}

async function everyContext(kubeconfig: string | undefined, context: CommandContext): Promise<SeveralInit['targets']> {
  const { contextNames } = await import('../../../kubeapi/kube/access/kubeconfig.ts')
  const file = kubeconfig === undefined ? {} : { kubeconfig }
  const { names } = contextNames({ ...file, env: envOf(context) })
  if (names.length === 0) throw new UserError('--all-contexts: there is no kubeconfig, or no context in it')
  return names.map((name) => ({ title: `context ${quoted(name)}`, site: '', kube: { ...file, context: name } }))
}
