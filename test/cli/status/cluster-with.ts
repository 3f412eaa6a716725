/** An API server with the objects of a healthy member, whose heartbeats are recent. */
import type { Test } from 'tap'
import { KIND_PLACES } from '../../../kubeapi/kube/kinds.ts'
import type { Gateway } from '../../../model/objects.ts'
import { type FakeApiServer, type Fault, fakeApiServer } from '../../support/fake-api-server.ts'
import { HEALTHY_BROKER, type ObjectsByKind, healthyObjects } from '../../support/objects/member-facts.ts'

const PLACES: Readonly<Record<string, { readonly apiVersion: string; readonly plural: string }>> = {
  ...KIND_PLACES,
  Deployment: { apiVersion: 'apps/v1', plural: 'deployments' },
  DaemonSet: { apiVersion: 'apps/v1', plural: 'daemonsets' },
  NetworkPolicy: { apiVersion: 'networking.k8s.io/v1', plural: 'networkpolicies' },
}

const REPORT = { version: '0.1.0', ready: true }
const BROKER = { ...HEALTHY_BROKER, certificateEnds: '2036-01-01T00:00:00Z' }

/** Matches a pod's status page: `/api/v1/namespaces/sealane-system/pods/sealane-agent-0:9471/proxy/status`. */
export const PROXY = /\/namespaces\/sealane-system\/pods\/(sealane-(agent|dns)-\d):(9471|9474)\/proxy\/status$/

/** The default answers of pods. */
export const pods: NonNullable<Fault> = ({ path }) => {
  const [, name = '', part = ''] = PROXY.exec(path) ?? []
  if (name === '') return undefined
  return { status: 200, body: { part, ...REPORT, ...(name === 'sealane-agent-0' ? { broker: BROKER } : {}) } }
}

/** Returns the answers of pods(), with an agent that checked all imported services five seconds ago. */
export function podsThatLooked(withoutBackends = 0, agoMs = 5000): NonNullable<Fault> {
  return (request) => {
    const answer = pods(request)
    const { body } = (typeof answer === 'object' ? answer : {}) as { body?: object }
    if (body === undefined || !('broker' in body)) return answer
    const [now, at] = [new Date().toISOString(), new Date(Date.now() - agoMs).toISOString()]
    return { status: 200, body: { ...body, now, imports: { withoutBackends, at } } }
  }
}

export async function clusterWith(
  t: Pick<Test, 'teardown'>,
  objects: ObjectsByKind = healthyObjects(),
  heard = new Date(),
): Promise<FakeApiServer> {
  const server = await fakeApiServer(t)
  const now = heard.toISOString()
  for (const [kind, items] of Object.entries(objects)) {
    const { apiVersion = '', plural = '' } = PLACES[kind] ?? {}
    for (const item of items as { metadata: { name: string; namespace?: string } }[]) {
      const { name, namespace } = item.metadata
      const { status } = item as unknown as Gateway
      const heard = kind === 'Gateway' ? { status: { ...status, heartbeatTime: now } } : {}
      const renewed = kind === 'Lease' ? { spec: { holderIdentity: 'sealane-agent-0', renewTime: now } } : {}
      const place = { resource: `${apiVersion}/${plural}`, apiVersion, kind, namespace, name }
      const object = { apiVersion, kind, ...item, ...heard, ...renewed }
      server.objects.put(place, object)
      if ('status' in object) server.objects.apply(place, object, { manager: 'x', force: true, status: true })
    }
  }
  server.fault = pods
  return server
}
