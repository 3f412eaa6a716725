/** `sealane up`: runs the parts of a site, all in one process or each on its own. */
import type { Command } from 'commander'
import { InvalidNameError, isDnsSubdomain } from '../../model/model.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import { UserError } from '../../runtime/runtime.ts'
import { COMPONENTS, type ComponentName } from '../../compose/site/site.ts'
import {
  type CommandContext,
  collect,
  logLevelOption,
  parsed,
  quoted,
  siteOption,
  statusListenOption,
  subcommand,
} from '../context/context.ts'

interface UpOptions {
  readonly site: string
  readonly node: string
  readonly component?: readonly ComponentName[]
  readonly statusListen: readonly string[]
  readonly dryRun: boolean
  readonly logLevel: LogThreshold
}

export function addUpCommand(program: Command, context: CommandContext): void {
  subcommand(
    program,
    'up',
    'Runs the parts of this site on this node until stopped.',
    'sealane up --site site.yaml --node gw --component gateway',
  )
    .addOption(siteOption())
    .requiredOption('--node <name>', "this machine's Node in the site", parsed(parseNodeName))
    .option(
      '--component <name>',
      `part to run: ${COMPONENTS.join(', ')}; may be given several times (default: all that this node needs)`,
      collect(parseComponent),
    )
    .addOption(
      statusListenOption(
        'address of /readyz, /metrics and, on loopback, /debug/plan; may be given several times',
        '127.0.0.1:9471',
      ),
    )
    .option('--dry-run', 'print the nft, ip and wg text that would be applied, and exit', false)
    .addOption(logLevelOption())
    .action(async ({ component: components, ...options }: UpOptions) => {
      const { upSite } = await import('../site/up.ts')
      await upSite({ ...options, components }, context)
    })
}

function parseComponent(text: string): ComponentName {
  const component = COMPONENTS.find((candidate) => candidate === text)
  if (component === undefined) throw new UserError(`--component ${quoted(text)}: expected ${COMPONENTS.join(', ')}`)
  return component
}

/** Names of Nodes may contain dots. */
function parseNodeName(text: string): string {
  if (!isDnsSubdomain(text)) throw new InvalidNameError('--node', text, 'the name of a Node: RFC 1123 labels and dots')
  return text
}
