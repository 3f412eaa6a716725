/** `sealane export` and `sealane unexport`: writes or removes one ServiceExport among the site's objects. */
import type { Command } from 'commander'
import { removeUserObject, writeUserObject } from '../../cluster/files/user-objects.ts'
import { parseDnsLabel } from '../../model/ids.ts'
import type { ServiceExport } from '../../model/objects.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, parsed, subcommand } from '../context.ts'
import { refOf } from '../../cluster/kube/object-ref.ts'
import type { OpenSite } from '../site.ts'
import { type TargetOptions, addTargetOptions, withTarget } from '../target.ts'

interface ExportOptions extends TargetOptions {
  readonly namespace: string
}

export function addExportCommands(program: Command, { signal, output }: CommandContext): void {
  const add = (
    name: string,
    description: string,
    work: (site: OpenSite, object: ServiceExport) => Promise<string>,
  ): void => {
    addTargetOptions(subcommand(program, name, description, `sealane ${name} web --namespace shop --site site.yaml`))
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
      .action(async (service: string, options: ExportOptions) => {
        const object = serviceExport(options.namespace, service)
        output.answer(await withTarget(options, { signal, output }, (open) => work(open, object)))
      })
  }
  add('export', 'Offers a Service of this site to all clusters.', async ({ config, cluster, admin }, object) => {
    const { name, namespace = '' } = object.metadata
    const services = cluster.cache('Service')
    await services.whenSynced(signal)
    if (services.get(name, namespace) === undefined) {
      const where = admin === undefined ? `among the objects of this site (${config.objects})` : `in ${admin.title}`
      throw new UserError(`service ${namespace}/${name}: not found ${where}`)
    }
    if (admin === undefined) await writeUserObject(config.objects, object)
    else await admin.apply({ ...object }, { dryRun: false }, signal)
    return `service ${namespace}/${name} exported\n`
  })
  add('unexport', 'Withdraws a Service from the clusterset.', async ({ config, admin }, object) => {
    const { name, namespace = '' } = object.metadata
    const removed =
      admin === undefined
        ? removeUserObject(config.objects, 'ServiceExport', name, namespace) !== undefined
        : await admin.remove(refOf({ ...object }), signal)
    return `service ${namespace}/${name} ${removed ? 'no longer exported' : 'was not exported'}\n`
  })
}

function serviceExport(namespace: string, name: string): ServiceExport {
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name, namespace } }
}
