/** What runs in each cluster: web behind a Service, db with names of its own, and a pod to call from. */
import { type Site, REQUEST_POD, readyPods } from '../../test/kube/support/callers.ts'
import { CORE_DNS_PODS } from '../../test/kube/support/core-dns-objects.ts'
import { readyEndpoints } from '../../test/kube/support/installing-world.ts'
import { execInPod } from '../../test/kube/support/node.ts'
import { until } from '../until.ts'

export const NAMESPACE = 'shop'
export const ZONE = `${NAMESPACE}.svc.clusterset.local`

type Body = Readonly<Record<string, unknown>>

const REPLICAS = 2
/** web, db and the pod to call from. */
const PODS = REPLICAS + 2
export const CALLERS = ['request', 'db-0'] as const

/**
 * Answers HTTP with where it runs and who calls. A client's header ends with a line of nothing but a carriage return.
 */
const ANSWER = `while read -r line && [ "\${#line}" -gt 1 ]; do :; done
printf 'HTTP/1.0 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\n%s/%s sees %s\\n' "$CLUSTER" "$(hostname)" "$SOCAT_PEERADDR"
`

/** Makes it, and waits until all of it is ready. */
export async function openShop(site: Site): Promise<void> {
  const { api } = site
  await api.apply(`/api/v1/namespaces/${NAMESPACE}`, {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: NAMESPACE },
  })
  // Pods are refused until the namespace has its ServiceAccount.
  await until(`the ServiceAccount of ${NAMESPACE} in ${site.name}`, 30_000, async () => {
    return (await api.find(`/api/v1/namespaces/${NAMESPACE}/serviceaccounts/default`)) !== undefined
  })
  const core = `/api/v1/namespaces/${NAMESPACE}`
  const apps = `/apis/apps/v1/namespaces/${NAMESPACE}`
  const answer = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'answer' }, data: { 'answer.sh': ANSWER } }
  await api.apply(`${core}/configmaps/answer`, answer)
  for (const [name, app, spec] of [
    ['web', 'web', {}],
    [ownService(site.name), 'web', {}],
    ['db', 'db', { clusterIP: 'None' }],
  ] as const) {
    await api.apply(`${core}/services/${name}`, service(name, app, spec))
  }
  await api.apply(`${apps}/deployments/web`, workload(site.name, 'Deployment', 'web', { replicas: REPLICAS }))
  await api.apply(
    `${apps}/statefulsets/db`,
    workload(site.name, 'StatefulSet', 'db', { replicas: 1, serviceName: 'db' }),
  )
  await api.apply(`${core}/pods/request`, REQUEST_POD)
  await readyPods(site, NAMESPACE, PODS)
  await readyPods(site, 'kube-system', CORE_DNS_PODS)
  await readyEndpoints(site, NAMESPACE, 'web', REPLICAS)
  await readyEndpoints(site, NAMESPACE, ownService(site.name), REPLICAS)
  await readyEndpoints(site, NAMESPACE, 'db', 1)
  await readyEndpoints(site, 'kube-system', 'kube-dns', CORE_DNS_PODS)
}

/** The Service that this cluster alone exports. */
export function ownService(cluster: string): string {
  return `web-${cluster}`
}

/** What a cluster exports. */
export function exportsOf(cluster: string): readonly string[] {
  return ['web', ownService(cluster), 'db']
}

function service(name: string, app: string, spec: Body): Body {
  const ports = [{ name: 'http', port: 80, protocol: 'TCP' }]
  return { apiVersion: 'v1', kind: 'Service', metadata: { name }, spec: { selector: { app }, ports, ...spec } }
}

function workload(cluster: string, kind: 'Deployment' | 'StatefulSet', app: string, spec: Body): Body {
  const container = {
    name: app,
    image: 'alpine/socat:1.7.4.4',
    command: ['socat', 'TCP4-LISTEN:80,reuseaddr,fork', 'EXEC:sh /answer/answer.sh'],
    env: [{ name: 'CLUSTER', value: cluster }],
    volumeMounts: [{ name: 'answer', mountPath: '/answer' }],
  }
  const volumes = [{ name: 'answer', configMap: { name: 'answer' } }]
  const template = {
    metadata: { labels: { app } },
    spec: { terminationGracePeriodSeconds: 0, containers: [container], volumes },
  }
  const selector = { matchLabels: { app } }
  return { apiVersion: 'apps/v1', kind, metadata: { name: app }, spec: { selector, template, ...spec } }
}

/** Runs a shell script in a pod of the shop; gives its output, whatever its code. Throws when it cannot be run. */
export async function inPod(site: Site, pod: (typeof CALLERS)[number], script: string): Promise<string> {
  const what = { namespace: NAMESPACE, pod, argv: ['sh', '-c', script], timeoutSeconds: 60 }
  const { code, stdout, stderr } = await execInPod(site.kubeconfig, what)
  if (code === 255) throw new Error(`the script did not run in ${pod} of ${site.name}: ${stderr}`)
  return stdout
}
