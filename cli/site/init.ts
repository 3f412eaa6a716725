/** `sealane site init`: asks at most five questions, and writes the folder of a site. */
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { hostname, networkInterfaces } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { DEFAULT_CLUSTERSET_RANGES, planSiteCheck } from '../../kubeapi/files/files.ts'
import { InvalidAddressError } from '../../model/addresses/addresses.ts'
import { InvalidNameError } from '../../model/model.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import { type CommandContext, type Terminal, lineFromTerminal, shellWord, terminalOf } from '../context/context.ts'
import {
  type AllAnswers,
  type Answers,
  QUESTIONS,
  type Question,
  type SiteMachine,
  type SitePlan,
  checkAnswer,
  planSiteFiles,
  questionText,
  suggestion,
} from './plan-site-files.ts'
import { unitPathProblem } from './plan-units.ts'

export interface SiteInitOptions {
  /** The folder to write to. It is created if it does not exist. */
  readonly folder: string
  /** The answers that were given as flags. */
  readonly given: Answers
  /** Names of nodes. The first node if it is empty. */
  readonly gateways: readonly string[]
  /** What was not given takes the suggestion of the machine, without a question. */
  readonly yes: boolean
}

/**
 * Writes site.yaml and objects/nodes.yaml so that `sealane site check` has no finding. Throws UserError with exit code
 * 2, and writes nothing: if one of the files exists, if an answer cannot be used, if the files would have a finding,
 * and if there is no terminal to ask for what was not given.
 */
export async function initSite(
  { folder, given, gateways, yes }: SiteInitOptions,
  context: CommandContext,
  machine: SiteMachine = readMachine(),
): Promise<void> {
  const [site, nodes] = [resolve(folder, 'site.yaml'), resolve(folder, 'objects', 'nodes.yaml')]
  for (const path of [site, nodes]) refuseExisting(path)
  const answers = await answersOf(given, yes, { context, machine })
  const plan = usable(() => planSiteFiles(answers, gateways))
  const texts = await textsOf(plan)
  const files = { site: { file: site, text: texts.site }, objects: [{ file: nodes, text: texts.nodes }] }
  const { problems } = planSiteCheck(files, DEFAULT_CLUSTERSET_RANGES)
  if (problems.length > 0) {
    throw new UserError(problems.map(({ reason }) => reason).join('\n'), {
      ...{ exitCode: 2, reason: 'InvalidValue' },
      hint: 'nothing was written; answer again',
    })
  }
  writeBoth([
    { path: nodes, text: texts.nodes },
    { path: site, text: texts.site },
  ])
  context.output.answer(`${site}\n${nodes}\n`)
  context.output.remark(nextText(site, plan))
}

/** Throws UserError, and leaves none of the files then: the next run would refuse the folder. */
function writeBoth(files: readonly { readonly path: string; readonly text: string }[]): void {
  const made: string[] = []
  try {
    for (const { path, text } of files) {
      mkdirSync(dirname(path), { recursive: true })
      // Made before it is filled: on a full disk the empty file stays.
      writeFileSync(path, '', { flag: 'wx' })
      made.push(path)
      writeFileSync(path, text)
    }
  } catch (cause) {
    for (const path of made) rmSync(path, { force: true })
    throw new UserError(`the site cannot be written: ${messageOf(cause)}`, { cause })
  }
}

function refuseExisting(path: string): void {
  if (statSync(path, { throwIfNoEntry: false }) === undefined) return
  throw new UserError(`${path} exists: expected a folder without a site`, {
    exitCode: 2,
    hint: 'name another folder, or edit the files and see: sealane site check',
  })
}

interface Asking {
  readonly context: CommandContext
  readonly machine: SiteMachine
}

/** The flags first, so that a wrong one is refused before a question. */
async function answersOf(given: Answers, yes: boolean, { context, machine }: Asking): Promise<AllAnswers> {
  const terminal = yes ? undefined : terminalOf(context)
  const answers: Partial<Record<Question, readonly string[] | undefined>> = { ...given }
  const missing = QUESTIONS.filter((question) => given[question] === undefined)
  if (terminal === undefined && !yes && missing.length > 0) {
    throw new UserError(`there is no terminal to ask at: expected ${missing.map((one) => `--${one}`).join(', ')}`, {
      exitCode: 2,
      hint: 'give the flags, or take what the machine suggests: --yes',
    })
  }
  for (const question of QUESTIONS) {
    const words = given[question]
    if (words !== undefined) {
      usable(() => checkAnswer(question, words, answers))
      continue
    }
    const suggested = suggestion(question, machine, answers)
    answers[question] =
      terminal === undefined
        ? suggestedWords(question, suggested)
        : await ask(question, suggested, { before: answers, terminal, signal: context.signal })
  }
  return answers as AllAnswers
}

/** Turns the error of a wrong answer into one about usage. */
function usable<T>(work: () => T): T {
  try {
    return work()
  } catch (cause) {
    const isWrong = cause instanceof InvalidNameError || cause instanceof InvalidAddressError
    if (!isWrong) throw cause
    throw new UserError(cause.message, { exitCode: 2, hint: 'see: sealane site init --help', cause })
  }
}

function suggestedWords(question: Question, suggested: string | undefined): readonly string[] {
  if (suggested !== undefined) return [suggested]
  throw new UserError(`this machine suggests no value: expected --${question}`, {
    exitCode: 2,
    hint: 'see: sealane site init --help',
  })
}

interface AskInit {
  readonly before: Answers
  readonly terminal: Terminal
  readonly signal: AbortSignal
}

/** Asks until the answer can be used. */
async function ask(
  question: Question,
  suggested: string | undefined,
  { before, terminal, signal }: AskInit,
): Promise<readonly string[]> {
  const offer = suggested === undefined ? '' : ` [${suggested}]`
  let complaint = ''
  for (;;) {
    const said = await lineFromTerminal(`${complaint}${questionText(question)}${offer}: `, signal, terminal)
    const typed = said.split(/[\s,]+/).filter((word) => word !== '')
    const words = typed.length === 0 && suggested !== undefined ? [suggested] : typed
    try {
      checkAnswer(question, words, before)
      return words
    } catch (error) {
      complaint = `${messageOf(error)}\n`
    }
  }
}

/** Loaded on demand, because the YAML package is large. */
async function textsOf({ site, nodes }: SitePlan): Promise<{ readonly site: string; readonly nodes: string }> {
  const { formatYaml } = await import('../../kubeapi/yaml.ts')
  return {
    site: `# All fields: docs/reference.md, "The site file". After a change: sealane site check\n${commented(formatYaml(site))}`,
    nodes: nodes.map(formatYaml).join('---\n'),
  }
}

function commented(text: string): string {
  const about = 'what other clusters may call: exports (exported services only), pods (all pods) or nothing'
  return text.replace(/^ {2}exposure: /m, `  # ${about}\n$&`)
}

function nextText(site: string, { nodes }: SitePlan): string {
  const file = shellWord(site)
  const lines = [
    'next:',
    `  sealane join --site ${file} --token-file token.txt`,
    ...nodes.map(
      ({ metadata: { name } }) => `  sealane site install --site ${file} --node ${name}    # as root on ${name}`,
    ),
  ]
  const problem = unitPathProblem(site)
  const moved =
    problem === undefined
      ? ''
      : `services cannot use this folder (${problem}): move it first, for example to /etc/sealane\n`
  return `${lines.join('\n')}\n${moved}`
}

function readMachine(): SiteMachine {
  const addresses = Object.entries(networkInterfaces()).flatMap(([device, all = []]) =>
    all.flatMap(({ family, internal, address }) => (family === 'IPv4' && !internal ? [{ device, address }] : [])),
  )
  return { hostname: hostname(), addresses, routes: readRoutes() }
}

function readRoutes(): string {
  try {
    return readFileSync(join('/proc', 'net', 'route'), 'utf8')
  } catch {
    return ''
  }
}
