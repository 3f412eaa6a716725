/** Creates or deletes a ServiceExport among the objects of a site or in a cluster. */
import { removeUserObject, writeUserObject } from '../../kubeapi/files/files.ts'
import { refOf } from '../../kubeapi/kube/kube.ts'
import type { ServiceExport } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { OpenSite } from '../context/context.ts'

export interface ServiceName {
  readonly namespace: string
  readonly name: string
}

/** Returns a message for people. Throws UserError if there is no such Service, and the errors of the driver. */
export async function exportService(site: OpenSite, service: ServiceName, signal: AbortSignal): Promise<string> {
  const { config, api, admin } = site
  const { namespace, name } = service
  const services = api.cache('Service')
  await services.whenSynced(signal)
  if (services.get(name, namespace) === undefined) {
    const where = admin === undefined ? `among the objects of this site (${config.objects})` : `in ${admin.title}`
    throw new UserError(`service ${namespace}/${name}: not found ${where}`)
  }
  if (admin === undefined) await writeUserObject(config.objects, serviceExport(service))
  else await admin.apply({ ...serviceExport(service) }, { dryRun: false }, signal)
  return `service ${namespace}/${name} exported\n`
}

/** Returns a message for people. A missing ServiceExport is no error. */
export async function unexportService(site: OpenSite, service: ServiceName, signal: AbortSignal): Promise<string> {
  const { config, admin } = site
  const { namespace, name } = service
  const removed =
    admin === undefined
      ? removeUserObject(config.objects, 'ServiceExport', name, namespace) !== undefined
      : await admin.remove(refOf({ ...serviceExport(service) }), signal)
  return `service ${namespace}/${name} ${removed ? 'is no longer exported' : 'was not exported'}\n`
}

function serviceExport({ namespace, name }: ServiceName): ServiceExport {
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name, namespace } }
}
