/**
 * The schemas of a user's objects: the fields that Sealane reads, with the limits of the Kubernetes API. Other fields
 * are dropped. Kinds that Sealane writes itself are not accepted from the user.
 */
import type { z } from 'zod'
import {
  ACCESS_POLICY_FIELDS,
  CLUSTER_ACCESS_POLICY_FIELDS,
  CLUSTER_TRAFFIC_POLICY_FIELDS,
  ENDPOINT_SLICE_FIELDS,
  METADATA,
  NAMESPACE_FIELDS,
  NODE_FIELDS,
  POD_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_FIELDS,
  TRAFFIC_POLICY_FIELDS,
  checkSlice,
  checkTiers,
  dnsLabel,
  dnsSubdomain,
  map,
  partOf,
} from '../kinds/kinds.ts'
import type { Kind } from '../model.ts'
import { ANNOTATION_CHECK, checkProblem } from '../services/services.ts'
import { nearName } from '../values/values.ts'

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
/** A site without an API server selects no pods, and has no addresses to give: such fields of a dump are dropped. */
const service = stated(
  dnsLabel(),
  partOf(SERVICE_FIELDS, {
    spec: {
      type: true,
      clusterIP: true,
      clusterIPs: true,
      ipFamilies: true,
      ports: true,
      sessionAffinity: true,
      sessionAffinityConfig: true,
      internalTrafficPolicy: true,
      trafficDistribution: true,
    },
  }),
)
const endpointSlice = stated(dnsSubdomain(), ENDPOINT_SLICE_FIELDS)
  .superRefine(checkSlice)
  .superRefine((slice, context) => {
    const message = checkProblem(slice as Parameters<typeof checkProblem>[0])
    if (message === undefined) return
    context.addIssue({ code: 'custom', path: ['metadata', 'annotations', ANNOTATION_CHECK], message })
  })
/** Sealane writes its status; a status in a dump of another cluster is dropped. */
const serviceExport = stated(
  dnsLabel(),
  partOf(SERVICE_EXPORT_FIELDS, { spec: { clusterSelectors: true, exportedLabels: true, exportedAnnotations: true } }),
)
const accessPolicy = stated(dnsLabel(), partOf(ACCESS_POLICY_FIELDS, { spec: true }))
const clusterAccessPolicy = stated(dnsLabel(), partOf(CLUSTER_ACCESS_POLICY_FIELDS, { spec: true }))
const trafficPolicy = stated(dnsLabel(), partOf(TRAFFIC_POLICY_FIELDS, { spec: true })).superRefine(checkTiers)
const clusterTrafficPolicy = stated(dnsLabel(), partOf(CLUSTER_TRAFFIC_POLICY_FIELDS, { spec: true })).superRefine(
  checkTiers,
)

export interface UserKind {
  readonly kind: Kind
  /** The version under which the object is stored; all versions of a kind are parsed alike. */
  readonly apiVersion: string
  readonly schema: z.ZodType
}

const MCS = 'multicluster.x-k8s.io'
const SEALANE = 'sealane.io/v1alpha1'
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
  [`${SEALANE}/AccessPolicy`]: { kind: 'AccessPolicy', apiVersion: SEALANE, schema: accessPolicy },
  [`${SEALANE}/ClusterAccessPolicy`]: {
    kind: 'ClusterAccessPolicy',
    apiVersion: SEALANE,
    schema: clusterAccessPolicy,
  },
  [`${SEALANE}/TrafficPolicy`]: { kind: 'TrafficPolicy', apiVersion: SEALANE, schema: trafficPolicy },
  [`${SEALANE}/ClusterTrafficPolicy`]: {
    kind: 'ClusterTrafficPolicy',
    apiVersion: SEALANE,
    schema: clusterTrafficPolicy,
  },
}

/** Undefined if the kind is not read from the user's folder. */
export function userKind(apiVersion: string, kind: string): UserKind | undefined {
  const id = `${apiVersion}/${kind}`
  return Object.hasOwn(KINDS, id) ? KINDS[id] : undefined
}

/** The type of an object, as its file states it. */
export interface TypeMeta {
  readonly apiVersion: string
  readonly kind: string
}

/** What is wrong about the type of an object that userKind() does not know. */
export interface MisspeltType {
  readonly field: keyof TypeMeta
  /** What was probably meant. */
  readonly expected: string
}

const NAMES: readonly string[] = [...new Set(Object.values(KINDS).map(({ kind }) => kind))]
const GROUPS: readonly string[] = [...new Set(Object.values(KINDS).map(({ apiVersion }) => groupOf(apiVersion)))]
/** Kinds of these API groups that Sealane does not read and whose names are near those that it does. */
const OTHERS: readonly string[] = ['ServiceImport']

/**
 * Says whether the type is probably a misspelt one of those that Sealane reads. Undefined for a type that it knows, and
 * for kinds of other products.
 */
export function misspeltType({ apiVersion, kind }: TypeMeta): MisspeltType | undefined {
  if (userKind(apiVersion, kind) !== undefined || OTHERS.includes(kind)) return undefined
  const group = groupOf(apiVersion)
  const isOurs = GROUPS.includes(group)
  if (!isOurs && nearName(group, GROUPS) === undefined) return undefined
  const meant = NAMES.includes(kind) ? kind : nearName(kind, NAMES)
  if (meant === undefined) return undefined
  if (meant !== kind) return { field: 'kind', expected: meant }
  const known = Object.values(KINDS).find((one) => one.kind === kind)
  return known === undefined ? undefined : { field: 'apiVersion', expected: known.apiVersion }
}

/** '' for the core group. */
function groupOf(apiVersion: string): string {
  return apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : ''
}
