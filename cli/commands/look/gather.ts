/** `sealane gather`: one file about this cluster or site for who looks at it elsewhere, without its secrets. */
import { type Command, Option } from 'commander'
import { type CommandContext, collect, subcommand } from '../../context.ts'
import { LOCAL_SITE, type TargetOptions, addTargetOptions, seenOtherwise, targetToSee } from '../../target.ts'
import { lookTimeoutOption } from '../../within-time.ts'
import { STANDARD_PAGE, parsePage } from './status.ts'

interface GatherOptions extends TargetOptions {
  readonly output?: string
  readonly force: boolean
  readonly timeout: number
  readonly ask?: readonly string[]
  readonly log?: readonly string[]
}

const GATHER_TEXT = 'Writes one file with what there is to know here, for help from elsewhere. Secrets are taken out.'

export function addGatherCommand(program: Command, context: CommandContext): void {
  const made = subcommand(program, 'gather', GATHER_TEXT, 'sealane gather --context c1 -o c1.tar.gz')
  const command = addTargetOptions(made, seenOtherwise(LOCAL_SITE))
  const ofSite = (flags: string, text: string): Option => new Option(flags, text).conflicts(['context', 'kubeconfig'])
  command
    .option('-o, --output <file>', 'the new file (default: sealane-gather-TIME.tar.gz in this folder)')
    .option('--force', 'also where there is a file of that name', false)
    .addOption(
      ofSite(
        '--ask <host:port>',
        `of a site: where its parts on this machine answer (default: ${STANDARD_PAGE})`,
      ).argParser(collect(parsePage)),
    )
    .addOption(
      ofSite('--log <file>', "of a site: a file with its parts' log, beside the journal; several times").argParser(
        collect((file) => file),
      ),
    )
    .addOption(lookTimeoutOption(10_000))
    .action(async (options: GatherOptions) => {
      const { gather } = await import('../../bundle/gather.ts')
      const at = new Date()
      const { output, force, timeout, site, ask = [STANDARD_PAGE], log = [] } = options
      const file = output ?? `sealane-gather-${at.toISOString().replaceAll(/[-:]|\.\d+/g, '')}.tar.gz`
      const target = { kube: targetToSee(command, context, site), site }
      const { bytes, missing, count } = await gather(
        { ...target, file, force, at, pages: ask, logs: log, timeout },
        context,
      )
      context.output.answer(`${file}\n`)
      context.output.remark(`${count} items, ${Math.ceil(bytes / 1024)} KiB, readable by you alone\n`)
      for (const { item, why } of missing) context.output.remark(`not in it: ${item}: ${why}\n`)
      context.output.remark(`look at it: sealane status --bundle ${file}\n`)
    })
}
