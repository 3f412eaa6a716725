/** Creates or deletes a ServiceExport among the objects of a site or in a cluster. */
import { removeUserObject, writeUserObject } from '../../kubeapi/files/files.ts'
import { refOf } from '../../kubeapi/kube/kube.ts'
import type { ServiceExport } from '../../model/model.ts'
import { type MemberIdentity, readMemberIdentity } from '../../protocol/membership/membership.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
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
  if (!removed) return `service ${namespace}/${name} was not exported\n`
  const gone = `service ${namespace}/${name} is no longer exported\n`
  if (admin !== undefined || (await brokerAnswers(config.identity, signal))) return gone
  const until = 'until the agent of this site reaches the broker again'
  return `${gone}the broker cannot be reached from here: other members may still call it ${until}\n`
}

const CALL_MS = 3000

/**
 * Whether the broker answers at any known address, by the way that the agent takes: through the proxy of the
 * environment, and with a valid certificate. True for a site that is no member.
 */
async function brokerAnswers(directory: string, signal: AbortSignal): Promise<boolean> {
  const known = await readMemberIdentity(directory).catch(() => undefined)
  if (known === undefined) return true
  const addresses = new Set([...known.brokerAddresses, ...(known.learnedAddresses ?? [])])
  const answers = await Promise.all([...addresses].map((address) => answersAt(address, known, signal)))
  return answers.includes(true)
}

/** Throws the signal's reason. */
async function answersAt(
  text: string,
  { caBundle: ca, clusterset }: MemberIdentity,
  signal: AbortSignal,
): Promise<boolean> {
  // gRPC is loaded only by the commands that call a broker.
  const { parseBrokerAddress } = await import('../../protocol/broker-addresses.ts')
  const { BrokerBusyError } = await import('../../protocol/broker-client.ts')
  const { probeServer } = await import('../../protocol/transport/probe-server.ts')
  try {
    const address = parseBrokerAddress(text)
    await probeServer({ address, ca, clusterset, clock: new SystemClock(), timeoutMs: CALL_MS }, signal)
    return true
  } catch (error) {
    signal.throwIfAborted()
    return error instanceof BrokerBusyError
  }
}

/** The ServiceExport of a service, without labels or annotations. */
export function serviceExport({ namespace, name }: ServiceName): ServiceExport {
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name, namespace } }
}
