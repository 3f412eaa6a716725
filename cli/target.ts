/** Which site a command is about: a site file, or a real cluster by its kubeconfig. */
import { type Command, Option } from 'commander'
import { SystemClock } from '../reconcile/clock.ts'
import { siteOption } from './context.ts'
import type { OpenSite, OpenSiteInit } from './site.ts'

export interface TargetOptions {
  readonly site: string
  readonly kubeconfig?: string
  readonly context?: string
}

/** A cluster that is meant, of a kubeconfig or of KUBECONFIG. */
export interface KubeTarget {
  readonly kubeconfig?: string
  readonly context?: string
}

export function addTargetOptions(command: Command): Command {
  return addKubeOptions(command.addOption(siteOption()), 'the site of --site')
}

/** What says where the broker, or the site, is on this machine. */
const SITE = ['site', 'state']

/** `otherwise` is what the command is about without either flag; absent where it is about a cluster all the same. */
export function addKubeOptions(command: Command, otherwise?: string): Command {
  const without = otherwise === undefined ? '' : `; without --context and --kubeconfig: ${otherwise}`
  return command
    .addOption(
      new Option('--kubeconfig <file>', 'a kubeconfig, for a real cluster (default: as kubectl)').conflicts(SITE),
    )
    .addOption(new Option('--context <name>', `its context (default: its current one)${without}`).conflicts(SITE))
}

/** Of the commands that are about a broker. */
export const LOCAL_BROKER = "this machine's broker"

/** Undefined when the command is about a site file. */
export function kubeTarget({ kubeconfig, context }: Omit<TargetOptions, 'site'>): KubeTarget | undefined {
  if (kubeconfig === undefined && context === undefined) return undefined
  return { ...(kubeconfig === undefined ? {} : { kubeconfig }), ...(context === undefined ? {} : { context }) }
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

/**
 * Opens what the options name, works, closes. Only the driver that is meant is loaded. Throws what the site file, the
 * kubeconfig or the cluster have to say.
 */
export async function withTarget<T>(
  options: TargetOptions,
  init: OpenSiteInit,
  work: (site: OpenSite) => Promise<T>,
): Promise<T> {
  const target = kubeTarget(options)
  if (target === undefined) {
    const { withSite } = await import('./site.ts')
    return withSite(options.site, init, work)
  }
  const { withInstalledSite } = await import('./kube/installed-site.ts')
  return withInstalledSite(target, new SystemClock(), init, work)
}
