/** Services as objects for tests: those of users, exported ones, and imported ones. */
import type {
  EndpointSlice,
  Namespace,
  ObjectMeta,
  Service,
  ServiceExport,
  ServiceImport,
} from '../../../model/objects.ts'

const MCS = 'multicluster.x-k8s.io/v1beta1'

/** The metadata of an object in namespace shop, unless it names another. */
type Named = Partial<ObjectMeta> & Pick<ObjectMeta, 'name'>

/** The metadata in the usual order, with the name first. */
const named = ({ name, ...rest }: Named): ObjectMeta => ({ name, namespace: 'shop', ...rest })

export function namespaceObject(name: string, change: Pick<Namespace, 'status'> = {}): Namespace {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name }, ...change }
}

export function serviceObject(metadata: Named, spec: NonNullable<Service['spec']> = {}): Service {
  return { apiVersion: 'v1', kind: 'Service', metadata: named(metadata), spec }
}

/** A slice of IPv4 without endpoints and ports, unless `change` has them. */
export function sliceObject(
  metadata: Named,
  change: Partial<Pick<EndpointSlice, 'addressType' | 'endpoints' | 'ports'>> = {},
): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: named(metadata),
    addressType: 'IPv4',
    ...change,
  }
}

export function exportObject(metadata: Named): ServiceExport {
  return { apiVersion: MCS, kind: 'ServiceExport', metadata: named(metadata) }
}

/** A headless import without ports, unless the spec says otherwise. */
export function importObject(metadata: Named, spec: Partial<ServiceImport['spec']> = {}): ServiceImport {
  return {
    apiVersion: MCS,
    kind: 'ServiceImport',
    metadata: named(metadata),
    spec: { type: 'Headless', ports: [], ...spec },
  }
}
