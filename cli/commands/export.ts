/** `sealane export` and `sealane unexport`: writes or removes one ServiceExport among the site's objects. */
import type { Command } from 'commander'
import { guardedNamespace, parseDnsLabel } from '../../model/ids.ts'
import { type CommandContext, parsed, subcommand } from '../context.ts'
import { withTarget } from '../open-target.ts'
import { type TargetOptions, addTargetOptions, targetToChange } from '../target.ts'
import { lookTimeoutOption, withinTime } from '../within-time.ts'

interface ExportOptions extends TargetOptions {
  readonly timeout: number
  readonly namespace: string
}

export function addExportCommands(program: Command, context: CommandContext): void {
  add(program, context, 'export', 'Offers a Service of this site to all clusters.')
  add(program, context, 'unexport', 'Withdraws a Service from the clusterset.')
}

function add(program: Command, context: CommandContext, verb: 'export' | 'unexport', description: string): void {
  addTargetOptions(subcommand(program, verb, description, `sealane ${verb} web --namespace shop --site site.yaml`))
    .argument(
      '<service>',
      'name of the Service',
      parsed((text) => parseDnsLabel(text, 'service')),
    )
    .option(
      '-n, --namespace <name>',
      'its namespace',
      parsed((text: string) => parseDnsLabel(text, 'namespace')),
      'default',
    )
    .addOption(lookTimeoutOption())
    .action(async (name: string, options: ExportOptions, command: Command) => {
      const { exportService, unexportService } = await import('../site/export.ts')
      const work = verb === 'export' ? exportService : unexportService
      const target = { kube: targetToChange(command, context), site: options.site }
      const service = { namespace: options.namespace, name }
      const said = await withinTime(context.signal, options.timeout, (signal) =>
        withTarget(target, { ...context, signal }, (site) => work(site, service, signal)),
      )
      context.output.answer(said)
      const guard = verb === 'export' ? guardedNamespace(options.namespace) : undefined
      if (guard !== undefined) context.output.remark(guardRemark(options.namespace, guard))
    })
}

function guardRemark(namespace: string, guard: string): string {
  return (
    `namespace ${namespace} ${guard}: the broker takes it with --allow-namespace ${namespace} only, ` +
    'and so does each cluster that is to import it; sealane show exports says what came of it\n'
  )
}
