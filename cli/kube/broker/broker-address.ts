/** Where members reach a broker on a cluster, as its Service and the nodes say it. */
import { objectName } from '../../../install/names.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { BROKER_PORT } from '../../../install/ports.ts'
import type { InstallValues, ServiceType } from '../../../install/values.ts'
import { formatHostPort } from '../../../runtime/host-port.ts'
import { UserError } from '../../../runtime/user-error.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { listOf } from '../access/object-status.ts'
import { type WaitInit, waitUntil } from '../wait/wait-until.ts'

/** A NodePort is on all nodes; tokens name some of them, so that one may go. */
const MAX_NODES = 3

const SAY_ADVERTISE = 'say --advertise HOST:PORT, or --service-type NodePort'

/** Of a NodePort any node's address will do; one of a load balancer is waited for. Throws UserError. */
export async function findAddress(
  admin: Pick<ClusterAdmin, 'get' | 'list'>,
  values: InstallValues,
  init: Omit<WaitInit, 'what' | 'hint'>,
): Promise<readonly string[]> {
  const { signal } = init
  const type = values.broker.service.type as ServiceType
  const service = { apiVersion: 'v1', kind: 'Service', name: objectName('broker'), namespace: values.broker.namespace }
  if (type === 'ClusterIP') return [`${service.name}.${service.namespace}.svc:${BROKER_PORT}`]
  if (type === 'NodePort') {
    const port = ((await admin.get(service, signal))?.['spec'] as ServiceSpec | undefined)?.ports?.[0]?.nodePort
    const hosts = nodeAddresses(await admin.list('v1', 'Node', {}, signal))
    if (port === undefined || hosts.length === 0) {
      throw new UserError('no node of this cluster has an address to reach the broker at', {
        hint: 'say --advertise HOST:PORT',
      })
    }
    return hosts.slice(0, MAX_NODES).map((host) => formatHostPort({ host, port }))
  }
  let address: string | undefined
  const look = async () => {
    const status = (await admin.get(service, signal))?.['status'] as ServiceStatus | undefined
    const ingress = status?.loadBalancer?.ingress?.[0]
    address = ingress?.ip ?? ingress?.hostname
    return address === undefined ? { what: `Service ${service.namespace}/${service.name} has none yet` } : undefined
  }
  await waitUntil(look, { ...init, what: 'an address of the load balancer', hint: SAY_ADVERTISE })
  return [formatHostPort({ host: address ?? '', port: BROKER_PORT })]
}

interface ServiceSpec {
  readonly ports?: readonly { readonly nodePort?: number }[]
}
interface ServiceStatus {
  readonly loadBalancer?: { readonly ingress?: readonly { readonly ip?: string; readonly hostname?: string }[] }
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
