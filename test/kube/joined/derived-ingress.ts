/**
 * An ingress that knows only Services and has no rights: HAProxy (examples/derived-service) routes to what another
 * cluster exports, by the cluster IP of one derived Service and by the SRV records of a headless one.
 */
import type { Test } from 'tap'
import { same } from '../mcs/expect.ts'
import { type Site, inRequestPod, openForCalls, readyPods } from '../support/callers.ts'
import { applyExample } from '../support/example-objects.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import { awaitImport, exportService, serviceImportPath, unexportService } from '../support/service-imports.ts'

const NAMESPACE = 'store'
const OF_IT = `namespaces/${NAMESPACE}`
/** Cluster DNS keeps an answer for 5 s, and HAProxy for one. */
const CALLS = 12

export async function derivedIngress(t: Test, { sites }: JoinedClusters): Promise<void> {
  const [c1, c2] = sites
  if (c1 === undefined || c2 === undefined) throw new Error('there are fewer than two clusters')
  await Promise.all([openForCalls(c1, NAMESPACE), openPages(c2)])
  const [first = ''] = [...(await readyPods(c2, NAMESPACE, 1)).keys()]
  for (const name of ['web', 'pods']) {
    await exportService(c2, NAMESPACE, name)
    await awaitImport(c1, NAMESPACE, name)
    const annotations = { 'sealane.io/derived-service': `${name}-clusterset` }
    await c1.api.merge(serviceImportPath(NAMESPACE, name), { metadata: { annotations } })
  }
  await same(t, () => derivedIn(c1), 'pods-clusterset None, web-clusterset 10.43', 'both Services are derived')
  await applyExample(c1, { file: 'derived-service/ingress.yaml', namespace: NAMESPACE })
  await readyPods(c1, NAMESPACE, 2)

  await t.test('it has no rights', async (t) => {
    const pods = await c1.api.list<IngressPod>(`/api/v1/${OF_IT}/pods?labelSelector=app%3Dingress`)
    t.strictSame(
      pods.flatMap(({ spec }) => spec.volumes?.map(({ name }) => name)),
      ['config'],
      'not even a token',
    )
  })

  await t.test('requests reach a pod of the other cluster', async (t) => {
    for (const path of ['/', '/pods']) await same(t, () => answers(c1, path), `200 ${first}`, path)
  })

  await t.test('and follow a change of endpoints', async (t) => {
    await scale(c2, 2)
    const both = [...(await readyPods(c2, NAMESPACE, 2)).keys()].sort().map((name) => `200 ${name}`)
    for (const path of ['/', '/pods']) await same(t, () => answers(c1, path), both.join(', '), path)
    await scale(c2, 1)
    const [left = ''] = [...(await readyPods(c2, NAMESPACE, 1)).keys()]
    for (const path of ['/', '/pods']) await same(t, () => answers(c1, path), `200 ${left}`, `${path}, one less`)
  })

  await t.test('and end with the export', async (t) => {
    for (const name of ['web', 'pods']) await unexportService(c2, NAMESPACE, name)
    for (const path of ['/', '/pods']) await same(t, () => answers(c1, path), '503', path)
    await same(t, () => derivedIn(c1), '', 'no derived Service is left')
  })
}

interface IngressPod extends KubeObject {
  readonly spec: { readonly volumes?: readonly { readonly name: string }[] }
}

interface ServiceObject extends KubeObject {
  readonly spec: { readonly clusterIP?: string }
}

/** Such as "web-clusterset 10.43": the name of each and how its cluster IP begins. */
async function derivedIn({ api }: Site): Promise<string> {
  const found = await api.list<ServiceObject>(`/api/v1/${OF_IT}/services?labelSelector=sealane.io%2Fderived%3Dtrue`)
  const texts = found.map(({ metadata, spec }) => `${metadata.name} ${(spec.clusterIP ?? '').split('.', 2).join('.')}`)
  return texts.sort().join(', ')
}

/** What the ingress answers to several requests, each kind once and in order: such as "200 page-a, 200 page-b". */
async function answers(site: Site, path: string): Promise<string> {
  const ask = `curl -s -m 3 -o - -w ' %{http_code}\\n' http://ingress.${NAMESPACE}.svc.cluster.local${path}`
  const output = await inRequestPod(site, NAMESPACE, `for i in $(seq ${CALLS}); do ${ask} | tr '\\n' ' '; echo; done`)
  const lines = output.split('\n').filter((line) => line.trim() !== '')
  // Words of HAProxy's own pages are left out: the status says it all.
  const texts = lines.map((line) => {
    const [status = ''] = /\d{3}(?= *$)/.exec(line) ?? []
    return status === '200' ? `200 ${line.split(' ')[0] ?? ''}` : status
  })
  return [...new Set(texts)].sort().join(', ')
}

/** One pod that answers with its own name by HTTP, behind two Services. */
async function openPages({ api }: Site): Promise<void> {
  const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } }
  await api.apply(`/api/v1/${OF_IT}`, namespace)
  const labels = { app: 'page' }
  const script = 'mkdir -p /tmp/www && hostname > /tmp/www/index.html && exec busybox httpd -f -p 8080 -h /tmp/www'
  const container = {
    name: 'page',
    image: 'nicolaka/netshoot:v0.15',
    command: ['sh', '-c', script],
    readinessProbe: { httpGet: { path: '/', port: 8080 }, periodSeconds: 1 },
  }
  const template = { metadata: { labels }, spec: { terminationGracePeriodSeconds: 0, containers: [container] } }
  const spec = { replicas: 1, selector: { matchLabels: labels }, template }
  const body = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'page' }, spec }
  await api.apply(`/apis/apps/v1/${OF_IT}/deployments/page`, body)
  const port = { name: 'http', port: 80, targetPort: 8080 }
  await api.apply(`/api/v1/${OF_IT}/services/web`, service('web', { selector: labels, ports: [port] }))
  const headless = { selector: labels, ports: [{ ...port, port: 8080 }], clusterIP: 'None' }
  await api.apply(`/api/v1/${OF_IT}/services/pods`, service('pods', headless))
}

function service(name: string, spec: Json): Json {
  return { apiVersion: 'v1', kind: 'Service', metadata: { name }, spec }
}

async function scale({ api }: Site, replicas: number): Promise<void> {
  await api.merge(`/apis/apps/v1/${OF_IT}/deployments/page`, { spec: { replicas } })
}
