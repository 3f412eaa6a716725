/** A token as a pod on a node gets it: it says which node that is. */
import type { KubeRequest } from './kube-request.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

export interface BoundTo {
  readonly node: string
  readonly namespace: string
  readonly account: string
}

/** Makes the Node where there is none, and a Pod on it that nobody runs. */
export async function boundToken(api: KubeRequest, { node, namespace, account }: BoundTo): Promise<string> {
  await api.apply(`/api/v1/nodes/${node}`, nodeObject(node))
  // No DaemonSet made it, and in our namespace policy sealane-pods wants such a pod to be harmless.
  const securityContext = { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } }
  const containers = [{ name: 'c', image: 'localhost/none', securityContext }]
  const harmless = { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } }
  const pod = await api.post(`/api/v1/namespaces/${namespace}/pods`, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { generateName: 'bound-', namespace },
    spec: { nodeName: node, serviceAccountName: account, securityContext: harmless, containers },
  })
  const boundObjectRef = { apiVersion: 'v1', kind: 'Pod', name: pod.metadata.name, uid: pod.metadata.uid }
  const { status } = await api.post<{ status: { token: string } }>(
    `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`,
    { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { boundObjectRef } },
  )
  return status.token
}
