/**
 * What other tools do with our objects, request for request. kubectl: server-side apply as manager `kubectl`, without
 * force, so that a field that somebody else wants otherwise is a conflict; and `kubectl apply -k` of today's default,
 * which patches what is there to what the files say. Helm 3: creates what is missing; an upgrade with --take-ownership
 * patches what is there to what the chart says and to its own labels, as manager `helm`.
 */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { parseAllDocuments } from 'yaml'
import { formatYaml } from '../../../kubeapi/yaml.ts'
import { eventually } from '../../support/eventually.ts'
import { pathOf } from './object-path.ts'
import { MANIFESTS } from './installed-objects.ts'
import type { KubeObject, KubeRequest } from './kube-request.ts'
import { renderPrograms } from './render-programs.ts'

const APPLY = 'application/apply-patch+yaml'
const STRATEGIC = 'application/strategic-merge-patch+json'
const MERGE = 'application/merge-patch+json'

/** `kubectl apply --server-side -f -`. Gives what conflicts, one line for each object; empty when all was taken. */
export async function kubectlApply(api: KubeRequest, yaml: string): Promise<readonly string[]> {
  const conflicts: string[] = []
  for (const object of objectsIn(yaml)) {
    const path = `${pathOf(object)}?fieldManager=kubectl&force=false`
    const { status, text } = await api.raw('PATCH', path, { body: object, contentType: APPLY })
    if (status > 299) conflicts.push(`${object.kind} ${object.metadata.name}: ${status} ${messageOf(text)}`)
  }
  return conflicts
}

function objectsIn(yaml: string): readonly KubeObject[] {
  return parseAllDocuments(yaml).map((document) => document.toJS() as KubeObject)
}

function messageOf(text: string): string {
  return (JSON.parse(text) as { message?: string }).message ?? text
}

/** What `kubectl kustomize` makes of a kustomization in a folder. */
export async function renderKustomization(folder: string): Promise<readonly KubeObject[]> {
  const { render } = await renderPrograms()
  const { stdout } = await promisify(execFile)(render, ['kustomize', folder], { maxBuffer: 64 << 20 })
  return JSON.parse(stdout) as KubeObject[]
}

/** `kubectl apply -k`: without --server-side it keeps what it applied as an annotation. */
export async function kubectlApplyFiles(api: KubeRequest, objects: readonly KubeObject[]): Promise<void> {
  for (const object of [...objects].sort((a, b) => rank(a) - rank(b))) {
    const applied = { 'kubectl.kubernetes.io/last-applied-configuration': JSON.stringify(object) }
    const annotations = { ...object.metadata.annotations, ...applied }
    await patchOrCreate(api, { ...object, metadata: { ...object.metadata, annotations } }, 'kubectl-client-side-apply')
  }
}

/** The chart as Helm renders it, with Helm's labels on each object; CRDs come first, as they are. */
export async function renderChart(directory: string, values: object): Promise<readonly KubeObject[]> {
  const { render } = await renderPrograms()
  const file = join(directory, 'values.yaml')
  writeFileSync(file, formatYaml(values))
  const options = { maxBuffer: 64 << 20 }
  const { stdout } = await promisify(execFile)(render, ['helm', join(MANIFESTS, 'chart'), file], options)
  const objects = JSON.parse(stdout) as KubeObject[]
  const isCrd = ({ kind }: KubeObject): boolean => kind === 'CustomResourceDefinition'
  // Helm's own order matters here only where a namespace has to be first.
  const others = objects.filter((object) => !isCrd(object)).sort((a, b) => rank(a) - rank(b))
  return [...objects.filter(isCrd), ...others.map(ownedByHelm)]
}

function rank({ kind }: KubeObject): number {
  return kind === 'Namespace' ? 0 : kind === 'ServiceAccount' ? 1 : 2
}

function ownedByHelm(object: KubeObject): KubeObject {
  const { metadata } = object
  const labels = { ...metadata.labels, 'app.kubernetes.io/managed-by': 'Helm' }
  const release = { 'meta.helm.sh/release-name': 'sealane', 'meta.helm.sh/release-namespace': 'default' }
  return { ...object, metadata: { ...metadata, labels, annotations: { ...metadata.annotations, ...release } } }
}

/** `helm install`: everything is new. */
export async function helmInstall(api: KubeRequest, objects: readonly KubeObject[]): Promise<void> {
  for (const object of objects) {
    await eventually(() => create(api, object), {
      deadlineMs: 30_000,
      say: `${object.kind} ${object.metadata.name} is made`,
    })
  }
}

function create(api: KubeRequest, object: KubeObject, manager = 'helm'): Promise<KubeObject> {
  return api.post(`${pathOf(object).replace(/\/[^/]+$/, '')}?fieldManager=${manager}`, object)
}

/** `helm upgrade --install --take-ownership`. Helm leaves the CRDs that are there alone. */
export async function helmUpgrade(api: KubeRequest, objects: readonly KubeObject[]): Promise<void> {
  for (const object of objects.filter(({ kind }) => kind !== 'CustomResourceDefinition')) {
    await patchOrCreate(api, object, 'helm')
  }
}

async function patchOrCreate(api: KubeRequest, object: KubeObject, manager: string): Promise<void> {
  const path = `${pathOf(object)}?fieldManager=${manager}`
  // A strategic merge is for the kinds that the server is built with.
  const isPlain = object.kind === 'Service' || object.kind === 'PodMonitor'
  const contentType = isPlain ? MERGE : STRATEGIC
  const { status, text } = await api.raw('PATCH', path, { body: withoutPodPorts(object), contentType })
  if (status === 404) await create(api, object, manager)
  else if (status > 299) throw new Error(`${manager}: ${object.kind} ${object.metadata.name}: ${messageOf(text)}`)
}

/**
 * Both send only what differs, and nothing here changes a port. Sent whole, a strategic merge takes two ports
 * of one number and two protocols for one; so Services are sent as a plain merge, and pods without theirs.
 */
function withoutPodPorts(object: KubeObject): KubeObject {
  if (object.kind !== 'Deployment' && object.kind !== 'DaemonSet') return object
  const text = JSON.stringify(object, (key, value: unknown) => (key === 'ports' ? undefined : value))
  return JSON.parse(text) as KubeObject
}
