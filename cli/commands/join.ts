/** `sealane join`: makes a key, trades a token for a certificate, writes both into the site's state. */
import type { Command } from 'commander'
import { parseClusterId } from '../../model/ids.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { type CommandContext, parsed, siteOption, subcommand } from '../context.ts'
import { type TokenOptions, readTokenText } from '../read-token.ts'
import { withSite } from '../site.ts'

interface JoinOptions extends TokenOptions {
  readonly site: string
  readonly clusterId?: string
}

export function addJoinCommand(program: Command, { signal, output }: CommandContext): void {
  subcommand(
    program,
    'join',
    'Joins this site to a clusterset.',
    'sealane join --site site.yaml --token-file token.txt',
  )
    .addOption(siteOption())
    .option('--token <token>', 'the token itself; --token-file keeps it off the process list')
    .option('--token-file <file>', 'a file with the token, - for standard input')
    .option(
      '--cluster-id <id>',
      "this cluster's id (default: the site's name)",
      parsed((text: string) => parseClusterId(text, '--cluster-id')),
    )
    .action(async (options: JoinOptions) => {
      const token = await readTokenText(options, { env: process.env, stdin: process.stdin, signal })
      await withSite(options.site, { signal, output }, async (site) => {
        const { joinClusterset } = await import('../join.ts')
        const joined = await joinClusterset(site, {
          token,
          clusterId: parseClusterId(options.clusterId ?? site.config.name, 'site name'),
          clock: new SystemClock(),
          signal,
          say: (text) => output.remark(`${text}\n`),
        })
        const global =
          joined.globalCIDRs.length === 0 ? 'its own addresses' : `global addresses ${joined.globalCIDRs.join(', ')}`
        output.answer(`${joined.cluster} has joined clusterset ${joined.clusterset} with ${global}\n`)
        output.remark(`next, on each node: sealane up --site ${options.site} --node NAME\n`)
      })
    })
}
