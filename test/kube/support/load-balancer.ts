/**
 * A load balancer as small as can be: gives Services of that type an address, and makes it reach a node. With
 * externalTrafficPolicy Local that is a node with a ready pod of the Service, else the first node. The node's
 * kube-proxy does the rest, as where addresses are announced by ARP.
 */
import { execFileSync } from 'node:child_process'
import { eventually } from '../../support/eventually.ts'
import type { TestCluster } from './two-clusters.ts'

interface ServiceObject {
  readonly spec: { readonly type: string; readonly externalTrafficPolicy?: string }
}

interface SliceObject {
  readonly endpoints?: readonly { readonly nodeName?: string; readonly conditions?: { readonly ready?: boolean } }[]
}

/** Waits for the Service, and gives it the address. Rejects after a minute without one. */
export async function balanceLoad(
  { plane: { api }, nodes }: TestCluster,
  namespace: string,
  name: string,
  address: string,
): Promise<void> {
  const path = `/api/v1/namespaces/${namespace}/services/${name}`
  const service = await eventually(
    async () => {
      const found = await api.find<ServiceObject>(path)
      return found?.spec.type === 'LoadBalancer' ? found : undefined
    },
    { deadlineMs: 60_000, say: `Service ${namespace}/${name} of type LoadBalancer` },
  )
  // Whoever deploys may wait for the address before there is a pod.
  await api.merge(`${path}/status`, { status: { loadBalancer: { ingress: [{ ip: address }] } } })
  const ready = async (): Promise<string | undefined> => {
    if (service.spec.externalTrafficPolicy !== 'Local') return nodes[0]?.name
    const slices = await api.list<SliceObject>(
      `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D${name}`,
    )
    const endpoints = slices.flatMap((slice) => slice.endpoints ?? [])
    return endpoints.find(({ conditions }) => conditions?.ready === true)?.nodeName
  }
  const chosen = await eventually(ready, { deadlineMs: 60_000, say: 'a node with a ready pod' })
  const netns = nodes.find((node) => node.name === chosen)?.netns
  if (netns === undefined) throw new Error(`no node ${chosen}`)
  execFileSync('ip', ['-n', netns, 'address', 'replace', `${address}/32`, 'dev', 'eth0'])
}
