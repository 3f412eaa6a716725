/** Creates or deletes a ServiceExport among the objects of a site or in a cluster. */
import { connect } from 'node:net'
import { removeUserObject, writeUserObject } from '../../kubeapi/files/files.ts'
import { refOf } from '../../kubeapi/kube/kube.ts'
import type { ServiceExport } from '../../model/model.ts'
import { readMemberIdentity } from '../../protocol/membership/membership.ts'
import { UserError, parseHostPort } from '../../runtime/runtime.ts'
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
  if (!removed) return `service ${namespace}/${name} was not exported\n`
  const gone = `service ${namespace}/${name} is no longer exported\n`
  if (admin !== undefined || (await brokerAnswers(config.identity, signal))) return gone
  const until = 'until the agent of this site reaches the broker again'
  return `${gone}the broker cannot be reached from here: other members may still call it ${until}\n`
}

const CONNECT_MS = 1000

/** Whether any known address of the broker accepts a connection. True for a site that is no member. */
async function brokerAnswers(identity: string, signal: AbortSignal): Promise<boolean> {
  const known = await readMemberIdentity(identity).catch(() => undefined)
  if (known === undefined) return true
  const addresses = [...known.brokerAddresses, ...(known.learnedAddresses ?? [])]
  const answers = await Promise.all([...new Set(addresses)].map((address) => accepts(address, signal)))
  return answers.includes(true)
}

function accepts(address: string, signal: AbortSignal): Promise<boolean> {
  const { host, port } = parseHostPort(address, 'broker address')
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: CONNECT_MS, signal })
    const done = (answers: boolean): void => {
      socket.destroy()
      resolve(answers)
    }
    socket.once('connect', () => done(true))
    socket.once('timeout', () => done(false))
    socket.once('error', () => done(false))
  })
}

/** The ServiceExport of a service, without labels or annotations. */
export function serviceExport({ namespace, name }: ServiceName): ServiceExport {
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name, namespace } }
}
