/** One API server for a file of tests, with our kinds installed and emptied between tests, and writes as a user. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { parse } from 'yaml'
import { KIND_PLACES, kindPath } from '../../../kubeapi/kube/kinds.ts'
import { type KubeApi, type KubeApiInit, openKubeApi } from '../../../kubeapi/kube/kube-api.ts'
import type { Kind, KubeObject } from '../../../model/objects.ts'
import { type Clock, SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { ROOT } from '../../support/source-tree.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type ControlPlane, startControlPlane } from '../support/control-plane.ts'
import type { KubeRequest } from '../support/kube-request.ts'

/** The namespaces that stories use. */
const NAMESPACES = ['shop', 'aaa', 'sealane-system']
/** The kinds of objects that stories make; they are removed between two stories. */
const EMPTIED: readonly Kind[] = [
  'Service',
  'EndpointSlice',
  'ServiceExport',
  'ServiceImport',
  'Cluster',
  'Gateway',
  'RouteAgent',
  'Membership',
]

/** Starts it without controllers, so that only a test changes objects. */
export async function startApiServer(t: Test): Promise<ControlPlane> {
  const plane = await startControlPlane({
    name: 'c1',
    directory: temporaryFolder(t),
    serviceCIDR: '10.43.0.0/16',
    controllers: false,
  })
  t.teardown(() => plane.stop())
  await installKinds(plane.api)
  for (const name of NAMESPACES) {
    await plane.api.apply(`/api/v1/namespaces/${name}`, { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
  }
  return plane
}

/** Installs those of our kinds that these stories use. */
async function installKinds(api: KubeRequest): Promise<void> {
  const folder = join(ROOT, 'manifests', 'crds')
  const names = EMPTIED.map((kind) => `${KIND_PLACES[kind].plural}.${KIND_PLACES[kind].apiVersion.split('/')[0] ?? ''}`)
  for (const name of names.filter((name) => existsSync(join(folder, `${name}.yaml`)))) {
    const crd = parse(readFileSync(join(folder, `${name}.yaml`), 'utf8')) as Record<string, unknown>
    await api.apply(`/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`, crd)
  }
  await eventually(
    async () => {
      for (const kind of EMPTIED) if ((await api.raw('GET', kindPath(kind))).status !== 200) return false
      return true
    },
    { deadlineMs: 30_000, say: 'all kinds are served' },
  )
}

export async function empty(api: KubeRequest): Promise<void> {
  for (const kind of EMPTIED) {
    for (const object of await api.list<KubeObject>(kindPath(kind))) {
      const { name, namespace } = object.metadata
      if (kind === 'Service' && name === 'kubernetes') continue
      await api.delete(kindPath(kind, namespace, name))
    }
  }
  for (const event of await api.list<KubeObject>('/apis/events.k8s.io/v1/namespaces/shop/events')) {
    await api.delete(`/apis/events.k8s.io/v1/namespaces/shop/events/${event.metadata.name}`)
  }
}

/** Creates or replaces an object, as kubectl does. */
export async function put(api: KubeRequest, object: KubeObject): Promise<void> {
  const { kind, metadata } = object
  const body = { ...object, apiVersion: KIND_PLACES[kind].apiVersion }
  const path = kindPath(kind, metadata.namespace, metadata.name)
  const present = await api.find<KubeObject>(path)
  if (present === undefined) await api.post(kindPath(kind, metadata.namespace), body)
  else await api.put(path, { ...body, metadata: { ...present.metadata, ...metadata } })
}

export interface OpenedCluster {
  readonly api: KubeApi
  readonly logger: CapturingLogger
}

export async function open(
  t: Test,
  init: Partial<KubeApiInit> & { kubeconfig: string },
  clock: Clock = new SystemClock(),
): Promise<OpenedCluster> {
  const logger = new CapturingLogger()
  const deps = { clock, logger }
  const api = await openKubeApi(deps, { namespace: 'sealane-system', ...init })
  t.teardown(() => api.close())
  return { api, logger }
}
