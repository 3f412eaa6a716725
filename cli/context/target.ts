/**
 * Decides what a command is about: a real cluster, or a site file or a broker on this machine. All commands follow one
 * rule: flags first, then KUBECONFIG, then what is on this machine. A read-only command falls back to ~/.kube/config.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type Command, Option } from 'commander'
import { parseDnsLabel } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type CommandContext, collect, outputOption, parsed, siteOption } from './command-context.ts'
import type { OutputFormat } from './output.ts'
import { lookTimeoutOption } from './timeout.ts'

export interface TargetOptions {
  readonly site: string
  readonly kubeconfig?: string
  readonly context?: string
}

/** A cluster that was selected by flags or by KUBECONFIG. */
export interface KubeTarget {
  readonly kubeconfig?: string
  readonly context?: string
  /** Set if no flag selected the cluster: the source that did, for messages. */
  readonly by?: 'KUBECONFIG' | '~/.kube/config'
}

/** With `isSeveral`, --context may be given several times: its value is a list. */
export function addTargetOptions(command: Command, otherwise = LOCAL_SITE, isSeveral = false): Command {
  return addKubeOptions(command.addOption(siteOption()), otherwise, isSeveral)
}

/** What addShowOptions() adds. */
export interface ShowOptions extends TargetOptions {
  readonly namespace?: string
  readonly output: OutputFormat
  /** Milliseconds. */
  readonly timeout: number
}

interface ShowOptionsInit {
  /** What `--namespace` does. */
  readonly namespace?: string
  /** Options of this command alone. */
  readonly more?: readonly Option[]
}

/** The options of a command that shows a list: where it looks, which namespace it shows, how long it waits, and the format. */
export function addShowOptions(command: Command, init: ShowOptionsInit = {}): Command {
  const { namespace = 'show only this namespace (default: all)', more = [] } = init
  addTargetOptions(command, seenOtherwise(LOCAL_SITE))
  const chosen = new Option('-n, --namespace <name>', namespace)
  chosen.argParser(parsed((text: string) => parseDnsLabel(text, '--namespace')))
  for (const option of [chosen, ...more, lookTimeoutOption(), outputOption()]) command.addOption(option)
  return command
}

/** The flags that locate a site or a broker on this machine. */
const SITE = ['site', 'state']

/**
 * `otherwise` names what the command is about if no cluster is selected. Undefined if it is about a cluster in any
 * case. With `isSeveral`, --context may be given several times.
 */
export function addKubeOptions(command: Command, otherwise?: string, isSeveral = false): Command {
  const without = otherwise === undefined ? '' : `; without --context, --kubeconfig and KUBECONFIG: ${otherwise}`
  const rights = otherwise?.startsWith(LOCAL_BROKER) === true ? BROKER_RIGHTS : ''
  return command
    .addOption(
      new Option('--kubeconfig <file>', 'the kubeconfig of a Kubernetes cluster (default: as for kubectl)').conflicts(
        SITE,
      ),
    )
    .addOption(contextOption(`${without}${rights}`, isSeveral).conflicts(SITE))
}

function contextOption(more: string, isSeveral: boolean): Option {
  const several = isSeveral ? '; may be given several times' : ''
  const option = new Option(
    '--context <name>',
    `a context of the kubeconfig (default: the current one)${several}${more}`,
  )
  return isSeveral ? option.argParser(collect((name) => name)) : option
}

/** The fallback of commands that are about a site. */
export const LOCAL_SITE = 'the site of --site'

/** The fallback of commands that are about a broker. */
export const LOCAL_BROKER = "this machine's broker"

/** docs/reference.md lists what `broker status` and `broker restore` need besides. */
const BROKER_RIGHTS =
  '; on a cluster you need the rights to list pods, and to get and create pods/portforward, in namespace sealane-broker'

/** The fallback text of a command that uses targetToSee(). */
export const seenOtherwise = (local: string): string => `${local}, else ~/.kube/config`

/** The cluster that the flags select. Undefined if no flag is given. */
export function kubeTarget({ kubeconfig, context }: Omit<TargetOptions, 'site'>): KubeTarget | undefined {
  if (kubeconfig === undefined && context === undefined) return undefined
  return { ...(kubeconfig === undefined ? {} : { kubeconfig }), ...(context === undefined ? {} : { context }) }
}

type Env = Readonly<Record<string, string | undefined>>

export function envOf({ env }: CommandContext): Env {
  return env ?? process.env
}

/** The cluster of KUBECONFIG. Undefined if the variable is not set. */
function byEnvironment(env: Env): KubeTarget | undefined {
  return (env['KUBECONFIG'] ?? '') === '' ? undefined : { by: 'KUBECONFIG' }
}

function isGiven(command: Command, names: readonly string[]): boolean {
  return names.some((name) => command.getOptionValueSource(name) === 'cli')
}

/**
 * The target of a command whose change can be undone (a token, an export): flags, then KUBECONFIG. Undefined for the
 * broker or site on this machine.
 */
export function targetToChange(command: Command, context: CommandContext): KubeTarget | undefined {
  const named = kubeTarget(command.opts())
  if (named !== undefined || isGiven(command, SITE)) return named
  return byEnvironment(envOf(context))
}

/** The target of a read-only command. `local` is the file on this machine that the command is about otherwise. */
export function targetToSee(command: Command, context: CommandContext, local: string): KubeTarget | undefined {
  const target = targetToChange(command, context)
  if (target !== undefined || isGiven(command, SITE) || existsSync(local)) return target
  return atHome(envOf(context))
}

/** The target of `version` and `broker deploy`, which are not about a file. */
export function targetToAsk(command: Command, context: CommandContext): KubeTarget | undefined {
  return targetToChange(command, context) ?? atHome(envOf(context))
}

function atHome(env: Env): KubeTarget | undefined {
  const home = env['HOME'] ?? ''
  return home !== '' && existsSync(join(home, '.kube', 'config')) ? { by: '~/.kube/config' } : undefined
}

/**
 * The target of a command that adds a cluster to the clusterset or removes it; it never falls back to ~/.kube/config.
 * Undefined for the site of --site. Throws UserError if both a cluster and a site could be meant.
 */
export function targetToJoin(command: Command, context: CommandContext): KubeTarget | undefined {
  const target = targetToChange(command, context)
  if (target?.by === undefined) return target
  const { site } = command.opts<{ site?: string }>()
  if (site === undefined || !existsSync(site)) return target
  throw new UserError(
    `${command.name()}: ${target.by} is set and ${site} exists: expected a flag that names one of them`,
    {
      exitCode: 2,
      hint: `use --site ${site} for the site, or --context NAME for the cluster`,
    },
  )
}

/**
 * The flags that select this cluster, to print in the next command to run. `current` is the name of the kubeconfig's
 * current context, if it is known; it is used if no flag was given.
 */
export function targetFlags({ kubeconfig, context }: KubeTarget, current = 'NAME'): string {
  const flags = [
    ...(kubeconfig === undefined ? [] : [`--kubeconfig ${shellWord(kubeconfig)}`]),
    ...(context === undefined ? [] : [`--context ${shellWord(context)}`]),
  ]
  return flags.length === 0 ? `--context ${shellWord(current)}` : flags.join(' ')
}

/** Quotes a word for a POSIX shell if needed. The names of cloud providers' contexts contain special characters. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** The clusters that could join: the contexts of this kubeconfig other than the broker's own. */
export async function otherContexts(broker: KubeTarget): Promise<readonly string[]> {
  const { contextNames } = await import('../../kubeapi/kube/kubeconfig.ts')
  const { names, current } = contextNames(broker)
  return names.filter((name) => name !== (broker.context ?? current))
}
