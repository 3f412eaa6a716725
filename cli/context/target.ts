/**
 * What a command is about: a real cluster, or a site file or broker on this machine. One rule for all: flags, then
 * KUBECONFIG, then what is on this machine; a command that only looks takes ~/.kube/config where there is nothing else.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type Command, Option } from 'commander'
import { UserError } from '../../runtime/runtime.ts'
import { type CommandContext, siteOption } from './command-context.ts'

export interface TargetOptions {
  readonly site: string
  readonly kubeconfig?: string
  readonly context?: string
}

/** A cluster that is meant, of a kubeconfig or of KUBECONFIG. */
export interface KubeTarget {
  readonly kubeconfig?: string
  readonly context?: string
  /** Where nobody named it with a flag: what was taken instead, for people. */
  readonly by?: 'KUBECONFIG' | '~/.kube/config'
}

export function addTargetOptions(command: Command, otherwise = LOCAL_SITE): Command {
  return addKubeOptions(command.addOption(siteOption()), otherwise)
}

/** What says where the broker, or the site, is on this machine. */
const SITE = ['site', 'state']

/** `otherwise` is what the command is about without any of them; absent where it is about a cluster all the same. */
export function addKubeOptions(command: Command, otherwise?: string): Command {
  const without = otherwise === undefined ? '' : `; without --context, --kubeconfig and KUBECONFIG: ${otherwise}`
  return command
    .addOption(
      new Option('--kubeconfig <file>', 'a kubeconfig, for a real cluster (default: as kubectl)').conflicts(SITE),
    )
    .addOption(new Option('--context <name>', `its context (default: its current one)${without}`).conflicts(SITE))
}

/** Of the commands that are about a site. */
export const LOCAL_SITE = 'the site of --site'

/** Of the commands that are about a broker. */
export const LOCAL_BROKER = "this machine's broker"

/** As targetToSee() has it. */
export const seenOtherwise = (local: string): string => `${local}, else ~/.kube/config`

/** The cluster that the flags name; undefined where there are none. */
export function kubeTarget({ kubeconfig, context }: Omit<TargetOptions, 'site'>): KubeTarget | undefined {
  if (kubeconfig === undefined && context === undefined) return undefined
  return { ...(kubeconfig === undefined ? {} : { kubeconfig }), ...(context === undefined ? {} : { context }) }
}

type Env = Readonly<Record<string, string | undefined>>

export function envOf({ env }: CommandContext): Env {
  return env ?? process.env
}

/** A cluster by KUBECONFIG, for who has named nothing; undefined where it is not set. */
function byEnvironment(env: Env): KubeTarget | undefined {
  return (env['KUBECONFIG'] ?? '') === '' ? undefined : { by: 'KUBECONFIG' }
}

function isGiven(command: Command, names: readonly string[]): boolean {
  return names.some((name) => command.getOptionValueSource(name) === 'cli')
}

/**
 * Of a command that changes something and can be taken back (a token, an export): flags, then KUBECONFIG. Undefined:
 * what is on this machine.
 */
export function targetToChange(command: Command, context: CommandContext): KubeTarget | undefined {
  const named = kubeTarget(command.opts())
  if (named !== undefined || isGiven(command, SITE)) return named
  return byEnvironment(envOf(context))
}

/** Of a command that only looks; `local` is the file of this machine that it is about otherwise. */
export function targetToSee(command: Command, context: CommandContext, local: string): KubeTarget | undefined {
  const target = targetToChange(command, context)
  if (target !== undefined || isGiven(command, SITE) || existsSync(local)) return target
  return atHome(envOf(context))
}

/** Of `version` and `broker deploy`, which are about no file. */
export function targetToAsk(command: Command, context: CommandContext): KubeTarget | undefined {
  return targetToChange(command, context) ?? atHome(envOf(context))
}

function atHome(env: Env): KubeTarget | undefined {
  const home = env['HOME'] ?? ''
  return home !== '' && existsSync(join(home, '.kube', 'config')) ? { by: '~/.kube/config' } : undefined
}

/**
 * Of a command that brings a cluster in or takes it out: never one that nobody named. Undefined: the site of --site.
 * Throws UserError where both a cluster and a site could be meant.
 */
export function targetToJoin(command: Command, context: CommandContext): KubeTarget | undefined {
  const target = targetToChange(command, context)
  if (target?.by === undefined) return target
  const { site } = command.opts<{ site?: string }>()
  if (site === undefined || !existsSync(site)) return target
  throw new UserError(`${command.name()}: ${target.by} is set and ${site} is here: expected one of them to be named`, {
    exitCode: 2,
    hint: `say --site ${site} for the site, or --context NAME for the cluster`,
  })
}

/**
 * The flags that name it, as a person would type them: for the command to run next. `current` is the name of the
 * kubeconfig's current context, where that is known: it counts where no flag was given.
 */
export function targetFlags({ kubeconfig, context }: KubeTarget, current = 'NAME'): string {
  const flags = [
    ...(kubeconfig === undefined ? [] : [`--kubeconfig ${shellWord(kubeconfig)}`]),
    ...(context === undefined ? [] : [`--context ${shellWord(context)}`]),
  ]
  return flags.length === 0 ? `--context ${shellWord(current)}` : flags.join(' ')
}

/** As a shell reads it back: names of clouds' contexts have characters of their own. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** Of the clusters that could join: those that this kubeconfig has beside the broker's own. */
export async function otherContexts(broker: KubeTarget): Promise<readonly string[]> {
  const { contextNames } = await import('../../kubeapi/kube/kubeconfig.ts')
  const { names, current } = contextNames(broker)
  return names.filter((name) => name !== (broker.context ?? current))
}
