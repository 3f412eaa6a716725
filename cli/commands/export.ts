/** `sealane export` and `sealane unexport`: writes or removes one ServiceExport among the site's objects. */
import type { Command } from 'commander'
import { removeUserObject, writeUserObject } from '../../cluster/files/user-objects.ts'
import { parseDnsLabel } from '../../model/ids.ts'
import type { ServiceExport } from '../../model/objects.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, parsed, siteOption, subcommand } from '../context.ts'
import { type OpenSite, withSite } from '../site.ts'

interface ExportOptions {
  readonly site: string
  readonly namespace: string
}

export function addExportCommands(program: Command, { signal, output }: CommandContext): void {
  const add = (
    name: string,
    description: string,
    work: (site: OpenSite, object: ServiceExport) => Promise<string>,
  ): void => {
    subcommand(program, name, description, `sealane ${name} web --namespace shop --site site.yaml`)
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
      .addOption(siteOption())
      .action(async (service: string, { site, namespace }: ExportOptions) => {
        output.answer(await withSite(site, { signal, output }, (open) => work(open, serviceExport(namespace, service))))
      })
  }
  add('export', 'Offers a Service of this site to all clusters.', async ({ config, cluster }, object) => {
    const { name, namespace = '' } = object.metadata
    const services = cluster.cache('Service')
    await services.whenSynced(signal)
    if (services.get(name, namespace) === undefined) {
      throw new UserError(`service ${namespace}/${name}: not found among the objects of this site (${config.objects})`)
    }
    await writeUserObject(config.objects, object)
    return `service ${namespace}/${name} exported\n`
  })
  add('unexport', 'Withdraws a Service from the clusterset.', ({ config }, object) => {
    const { name, namespace = '' } = object.metadata
    const removed = removeUserObject(config.objects, 'ServiceExport', name, namespace)
    const state = removed === undefined ? 'was not exported' : 'no longer exported'
    return Promise.resolve(`service ${namespace}/${name} ${state}\n`)
  })
}

function serviceExport(namespace: string, name: string): ServiceExport {
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name, namespace } }
}
