/** `sealane site check`, and the same check before a join and before `sealane up`. */
import { statSync } from 'node:fs'
import {
  DEFAULT_CLUSTERSET_RANGES,
  type FileProblem,
  type ReservedRange,
  type SiteCheck,
  type SiteConfig,
  checkSite,
  formatProblem,
} from '../../kubeapi/files/files.ts'
import { ExitWith, UserError } from '../../runtime/runtime.ts'
import { type CommandContext, printOne } from '../context/context.ts'

export interface SiteCheckInit {
  /** The path of the site file. */
  readonly site: string
  readonly json: boolean
  /** CIDRs of the clusterset, if its broker does not have the default ones. */
  readonly ranges?: readonly string[] | undefined
}

/** The document of `--json`. Its fields never change their meaning. */
const CHECK_FORMAT = 1

/** Prints all findings. Throws ExitWith 2 if there are any. Changes nothing, and asks no broker. */
export async function runSiteCheck({ site, json, ranges }: SiteCheckInit, { output }: CommandContext): Promise<void> {
  const stated = ranges?.map((cidr): ReservedRange => ({ cidr, of: 'the clusterset' }))
  const { config, problems } = await checkSite(site, stated ?? DEFAULT_CLUSTERSET_RANGES)
  const findings = problems.map(({ file, line, column, reason: message }) => ({
    ...{ file, line, column },
    ...{ reason: 'InvalidValue', message },
  }))
  const name = config?.name === undefined ? {} : { name: config.name }
  const document = { format: CHECK_FORMAT, site, ...name, valid: problems.length === 0, findings }
  await printOne(output, json ? 'json' : 'table', document, checkText(site, { config, problems }))
  if (problems.length > 0) throw new ExitWith(2)
}

function checkText(site: string, { config, problems }: Pick<SiteCheck, 'config' | 'problems'>): string {
  if (problems.length === 0) return `${site}: site ${config?.name ?? ''} can join and start\n`
  const count = problems.length === 1 ? 'one problem' : `${problems.length} problems`
  return `${problems.map((one) => `${formatProblem(one)}\n`).join('')}${count}\n`
}

/**
 * Throws UserError with all findings about a site that cannot join. The ranges of the clusterset are left to the broker,
 * which knows them and refuses a join before it uses the token. A missing file is left to the caller.
 */
export async function requireSoundSite(site: string): Promise<void> {
  if (statSync(site, { throwIfNoEntry: false })?.isFile() !== true) return
  const { problems } = await checkSite(site)
  if (problems.length > 0) throw unsound(site, problems, 'the token was not used')
}

/**
 * Gives the site file and the names of the Nodes. Throws UserError with exit code 2 and all findings if there are any,
 * and if the site is a Kubernetes cluster. `stays` says in the hint what was not done.
 */
export async function soundSite(
  site: string,
  stays: string,
): Promise<{ readonly config: SiteConfig; readonly nodes: readonly string[] }> {
  const { config, nodes, problems } = await checkSite(site)
  if (config === undefined || problems.length > 0) throw unsound(site, problems, stays, 2)
  if (config.kubernetes === undefined) return { config, nodes }
  throw new UserError(`${site}: expected a site without spec.kubernetes`, {
    exitCode: 2,
    hint: 'a Kubernetes cluster gets its parts by: sealane join --context NAME',
  })
}

function unsound(site: string, problems: readonly FileProblem[], stays: string, exitCode: 1 | 2 = 1): UserError {
  return new UserError(problems.map(formatProblem).join('\n'), {
    hint: `${stays}; correct the files, and see: sealane site check --site ${site}`,
    reason: 'InvalidValue',
    exitCode,
  })
}
