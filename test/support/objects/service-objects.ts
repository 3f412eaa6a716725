/** Services as objects for tests: of users, exported, and imported. */
import type {
  EndpointSlice,
  Namespace,
  ObjectMeta,
  Service,
  ServiceExport,
  ServiceImport,
} from '../../../model/objects.ts'

const MCS = 'multicluster.x-k8s.io/v1beta1'

/** Of namespace shop, unless it says so. */
type Named = Partial<ObjectMeta> & Pick<ObjectMeta, 'name'>

export function namespaceObject(name: string, change: Pick<Namespace, 'status'> = {}): Namespace {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name }, ...change }
}

export function serviceObject(metadata: Named, spec: NonNullable<Service['spec']> = {}): Service {
  return { apiVersion: 'v1', kind: 'Service', metadata: { namespace: 'shop', ...metadata }, spec }
}

/** Of IPv4, and without endpoints and ports, unless `change` says so. */
export function sliceObject(
  metadata: Named,
  change: Partial<Pick<EndpointSlice, 'addressType' | 'endpoints' | 'ports'>> = {},
): EndpointSlice {
  const named = { namespace: 'shop', ...metadata }
  return { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata: named, addressType: 'IPv4', ...change }
}

export function exportObject(metadata: Named): ServiceExport {
  return { apiVersion: MCS, kind: 'ServiceExport', metadata: { namespace: 'shop', ...metadata } }
}

/** Headless, and without ports, unless the spec says so. */
export function importObject(metadata: Named, spec: Partial<ServiceImport['spec']> = {}): ServiceImport {
  return {
    apiVersion: MCS,
    kind: 'ServiceImport',
    metadata: { namespace: 'shop', ...metadata },
    spec: { type: 'Headless', ports: [], ...spec },
  }
}
