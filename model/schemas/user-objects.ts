/**
 * The schemas of a user's objects: the fields that Sealane reads, with the limits of the Kubernetes API. Other fields
 * are dropped. Kinds that Sealane writes itself are not accepted from the user.
 */
import type { z } from 'zod'
import {
  ENDPOINT_SLICE_FIELDS,
  METADATA,
  NAMESPACE_FIELDS,
  NODE_FIELDS,
  POD_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_FIELDS,
  checkSlice,
  dnsLabel,
  dnsSubdomain,
  map,
  partOf,
} from '../kinds/kinds.ts'
import type { Kind } from '../model.ts'

const { shape: metadata } = partOf(METADATA, {
  namespace: true,
  uid: true,
  creationTimestamp: true,
  deletionTimestamp: true,
  labels: true,
  annotations: true,
})

/** The fields of a kind, with the metadata that a user may state and the grammar that the kind has for names. */
function stated<T extends z.ZodRawShape>(name: z.ZodType<string>, { shape }: z.ZodObject<T>) {
  return map({ metadata: map({ name, ...metadata }), ...shape })
}

const namespace = stated(dnsLabel(), NAMESPACE_FIELDS)
/** A site without an API server has no scheduler: cordons and taints in a dump of a cluster are dropped. */
const node = stated(dnsSubdomain(), partOf(NODE_FIELDS, { spec: { podCIDR: true, podCIDRs: true }, status: true }))
const pod = stated(dnsSubdomain(), POD_FIELDS)
const service = stated(dnsLabel(), SERVICE_FIELDS)
const endpointSlice = stated(dnsSubdomain(), ENDPOINT_SLICE_FIELDS).superRefine(checkSlice)
/** Sealane writes its status; a status in a dump of another cluster is dropped. */
const serviceExport = stated(
  dnsLabel(),
  partOf(SERVICE_EXPORT_FIELDS, { spec: { exportedLabels: true, exportedAnnotations: true } }),
)

export interface UserKind {
  readonly kind: Kind
  /** The version under which the object is stored; all versions of a kind are parsed alike. */
  readonly apiVersion: string
  readonly schema: z.ZodType
}

const MCS = 'multicluster.x-k8s.io'
const KINDS: Readonly<Record<string, UserKind>> = {
  'v1/Namespace': { kind: 'Namespace', apiVersion: 'v1', schema: namespace },
  'v1/Node': { kind: 'Node', apiVersion: 'v1', schema: node },
  'v1/Pod': { kind: 'Pod', apiVersion: 'v1', schema: pod },
  'v1/Service': { kind: 'Service', apiVersion: 'v1', schema: service },
  'discovery.k8s.io/v1/EndpointSlice': {
    kind: 'EndpointSlice',
    apiVersion: 'discovery.k8s.io/v1',
    schema: endpointSlice,
  },
  [`${MCS}/v1beta1/ServiceExport`]: { kind: 'ServiceExport', apiVersion: `${MCS}/v1beta1`, schema: serviceExport },
  [`${MCS}/v1alpha1/ServiceExport`]: { kind: 'ServiceExport', apiVersion: `${MCS}/v1beta1`, schema: serviceExport },
}

/** Undefined if the kind is not read from the user's folder. */
export function userKind(apiVersion: string, kind: string): UserKind | undefined {
  const id = `${apiVersion}/${kind}`
  return Object.hasOwn(KINDS, id) ? KINDS[id] : undefined
}
