/** `sealane site invite|revoke`: machines of a plain site that do not see its folder. */
import type { Command } from 'commander'
import { InvalidNameError, isDnsSubdomain } from '../../model/model.ts'
import { type CommandContext, durationOption, parsed, siteOption, subcommand } from '../context/context.ts'

interface InviteOptions {
  readonly site: string
  readonly ttl: number
  readonly out?: string
  readonly hub?: boolean
}

const MAX_TTL_MS = 7 * 24 * 3_600_000

export function addSiteNodeCommands(program: Command, context: CommandContext): void {
  const site =
    program.commands.find((command) => command.name() === 'site') ??
    subcommand(
      program,
      'site',
      'Lets machines without the folder of this site be its nodes.',
      'sealane site invite gw2 --site site.yaml',
    )
  subcommand(
    site,
    'invite',
    'Writes the one file with which a machine becomes a node of this site. It can be used once.',
    'sealane site invite gw2 --out gw2.yaml',
  )
    .argument('<node>', 'the name of its Node', parsed(nodeName))
    .addOption(siteOption())
    .addOption(durationOption('--ttl', 'how long the file can be used', 3_600_000, { minMs: 1000, maxMs: MAX_TTL_MS }))
    .option('--hub', 'the machine becomes one of several hubs: spec.hub.listen has an address of it')
    .option('--out <file>', 'the file to write, mode 0600; - for standard output (default: <node>.yaml)')
    .action(async (node: string, options: InviteOptions) => {
      const { inviteNode } = await import('../site/site-nodes.ts')
      await inviteNode(node, options, context)
    })
  subcommand(
    site,
    'revoke',
    'From now on the hub of this site refuses a node. What runs there goes on until it is stopped.',
    'sealane site revoke gw2',
  )
    .argument('<node>', 'the name of its Node', parsed(nodeName))
    .addOption(siteOption())
    .action(async (node: string, options: Pick<InviteOptions, 'site'>) => {
      const { revokeNode } = await import('../site/site-nodes.ts')
      await revokeNode(node, options, context)
    })
  subcommand(
    site,
    'promote',
    'Makes the hub of this machine act, where the other one of two hubs is lost.',
    'sealane site promote --site gw2.yaml',
  )
    .addOption(siteOption())
    .action(async (options: Pick<InviteOptions, 'site'>) => {
      const { promoteHub } = await import('../site/site-nodes.ts')
      await promoteHub(options, context)
    })
}

function nodeName(text: string): string {
  if (!isDnsSubdomain(text)) throw new InvalidNameError('node', text, 'the name of a Node: RFC 1123 labels and dots')
  return text
}
