/** `sealane broker deploy`: the broker on a hub cluster, under an address that the members can reach. */
import { objectName } from '../../install/names.ts'
import { planBroker } from '../../install/plan-broker.ts'
import type { ManifestObject } from '../../install/manifest-object.ts'
import { BROKER_PORT } from '../../install/ports.ts'
import type { InstallValues, ServiceType } from '../../install/values.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { formatHostPort } from '../../runtime/host-port.ts'
import { UserError } from '../../runtime/user-error.ts'
import { refOf } from '../../cluster/kube/object-ref.ts'
import type { ClusterAdmin } from './admin.ts'
import { type Change, applyObjects } from './apply-join.ts'
import { brokerRights, checkRights } from './check-rights.ts'
import { type Missing, waitUntil } from './wait-until.ts'
import { rolloutProgress } from './watch-join.ts'
import { listOf } from './object-status.ts'
import { isReady } from './node-rollout.ts'
import { selectorText } from './pod-trouble.ts'

export interface DeployBrokerInit {
  readonly values: InstallValues
  /** host:port each; empty: found out from the Service. */
  readonly advertise: readonly string[]
  readonly dryRun: boolean
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  readonly tell: (change: Change) => void
}

/** Gives the addresses that tokens will carry. Throws UserError. */
export async function deployBroker(admin: ClusterAdmin, init: DeployBrokerInit): Promise<readonly string[]> {
  const { values, dryRun, signal, tell } = init
  await checkRights(admin, brokerRights(values.broker.namespace), signal)
  const context = { admin, dryRun, signal, tell }
  const early = brokerObjects(values).filter(({ kind }) => kind === 'Namespace' || kind === 'Service')
  await applyObjects(early, context)
  const advertise = init.advertise.length > 0 || dryRun ? init.advertise : await findAddress(admin, init)
  const objects = brokerObjects({ ...values, broker: { ...values.broker, advertise } })
  await applyObjects(
    objects.filter(({ kind }) => kind !== 'Namespace' && kind !== 'Service'),
    context,
  )
  if (!dryRun) {
    const look = async () => (await rolloutProgress(admin, values.broker.namespace, signal)).missing
    await wait(init, 'parts to be ready', look)
  }
  return advertise
}

function brokerObjects(values: InstallValues): readonly ManifestObject[] {
  return planBroker(values).flatMap((part) => part.objects)
}

/** A NodePort is on all nodes; some of them are enough to be told, so that one may go. */
const MAX_NODES = 3

/** The Service says it, sooner or later; of a NodePort any node's address will do. */
async function findAddress(admin: ClusterAdmin, init: DeployBrokerInit): Promise<readonly string[]> {
  const { values, signal } = init
  const type = values.broker.service.type as ServiceType
  const service = serviceRef(values)
  if (type === 'ClusterIP') return [`${service.name}.${service.namespace}.svc:${BROKER_PORT}`]
  if (type === 'NodePort') {
    const port = ((await admin.get(service, signal))?.['spec'] as ServiceSpec | undefined)?.ports?.[0]?.nodePort
    const hosts = nodeAddresses(await admin.list('v1', 'Node', {}, signal))
    if (port === undefined || hosts.length === 0) {
      throw new UserError('no node of this cluster has an address to reach the broker at', { hint: SAY_ADVERTISE })
    }
    return hosts.slice(0, MAX_NODES).map((host) => formatHostPort({ host, port }))
  }
  let address: string | undefined
  await wait(init, 'an address of the load balancer', async () => {
    const status = (await admin.get(service, signal))?.['status'] as ServiceStatus | undefined
    const ingress = status?.loadBalancer?.ingress?.[0]
    address = ingress?.ip ?? ingress?.hostname
    return address === undefined ? { what: `Service ${service.namespace}/${service.name} has none yet` } : undefined
  })
  return [formatHostPort({ host: address ?? '', port: BROKER_PORT })]
}

const SAY_ADVERTISE = 'say --advertise HOST:PORT, or choose another --service-type'

interface ServiceSpec {
  readonly ports?: readonly { readonly nodePort?: number }[]
}
interface ServiceStatus {
  readonly loadBalancer?: { readonly ingress?: readonly { readonly ip?: string; readonly hostname?: string }[] }
}

function serviceRef({ broker: { namespace } }: InstallValues) {
  return { apiVersion: 'v1', kind: 'Service', name: objectName('broker'), namespace }
}

/** Those that the world can reach, if there are any; else those of the nodes' own network. */
function nodeAddresses(nodes: readonly ManifestObject[]): readonly string[] {
  const of = (type: string): string[] =>
    nodes.flatMap((node) => {
      const addresses = listOf(node, 'addresses') as readonly { readonly type: string; readonly address: string }[]
      return addresses.find((one) => one.type === type)?.address ?? []
    })
  const outside = of('ExternalIP')
  return outside.length > 0 ? outside : of('InternalIP')
}

function wait(init: DeployBrokerInit, what: string, look: () => Promise<Missing | undefined>): Promise<void> {
  const { timeoutMs, clock, signal, say } = init
  return waitUntil(look, { what, timeoutMs, clock, signal, say, hint: SAY_ADVERTISE })
}

/** The one pod of the broker that is ready. Throws UserError when there is none; `flags` name the cluster in it. */
export async function brokerPod(
  admin: Pick<ClusterAdmin, 'title' | 'list'>,
  { namespace, flags }: { readonly namespace: string; readonly flags: string },
  signal: AbortSignal,
): Promise<string> {
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText('broker') }, signal)
  const ready = pods.find(isReady)
  if (ready !== undefined) return refOf(ready).name
  const state = pods.length === 0 ? 'there is none' : 'it is not ready'
  throw new UserError(`${admin.title}: no broker to ask: ${state}`, {
    hint: `first: sealane broker deploy ${flags}`,
  })
}
