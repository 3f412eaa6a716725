/** Defines the CRDs of sealane.io/v1alpha1. */
import {
  ACCESS_POLICY_FIELDS,
  CLUSTER_ACCESS_POLICY_FIELDS,
  CLUSTER_FIELDS,
  ENDPOINT_FIELDS,
  GATEWAY_FIELDS,
  MEMBERSHIP_FIELDS,
  CLUSTER_TRAFFIC_POLICY_FIELDS,
  ROUTE_AGENT_FIELDS,
  TOPOLOGY_OBJECT_FIELDS,
  TRAFFIC_POLICY_FIELDS,
  type Schema,
  crdSchema,
} from '../../model/kinds/kinds.ts'
import { AGE, type CustomResourceDefinition, type PrinterColumn } from './custom-resource.ts'

/** Increased with every change of a schema. An installer never replaces a higher revision. */
export const CRD_REVISION = 18
export const LABEL_CRD_REVISION = 'sealane.io/crd-revision'

export interface SealaneKind {
  readonly kind: string
  readonly plural: string
  /** Default: Cluster. */
  readonly scope?: 'Cluster' | 'Namespaced'
  readonly shortNames: readonly string[]
  readonly columns: readonly PrinterColumn[]
  readonly schema: Schema
}

/** A CRD with one version. It has a status subresource if the schema has a status. */
export function sealaneCrd({
  kind,
  plural,
  scope = 'Cluster',
  shortNames,
  columns,
  schema,
}: SealaneKind): CustomResourceDefinition {
  const hasStatus = schema.properties?.['status'] !== undefined
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${plural}.sealane.io`,
      labels: { 'app.kubernetes.io/part-of': 'sealane', [LABEL_CRD_REVISION]: String(CRD_REVISION) },
    },
    spec: {
      group: 'sealane.io',
      scope,
      names: {
        kind,
        plural,
        singular: kind.toLowerCase(),
        listKind: `${kind}List`,
        shortNames,
        categories: ['sealane'],
      },
      versions: [
        {
          name: 'v1alpha1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: schema },
          ...(hasStatus ? { subresources: { status: {} } } : {}),
          additionalPrinterColumns: [...columns, AGE],
        },
      ],
    },
  }
}

/** CRD of Cluster: a member of the clusterset (model/kinds). */
export const CLUSTER = sealaneCrd({
  kind: 'Cluster',
  plural: 'clusters',
  shortNames: ['slcluster'],
  columns: [
    { name: 'Connected', type: 'string', jsonPath: '.status.conditions[?(@.type=="Connected")].status' },
    { name: 'In Contact', type: 'string', jsonPath: '.status.conditions[?(@.type=="InContact")].status' },
    { name: 'Index', type: 'integer', jsonPath: '.spec.index' },
    { name: 'Pods', type: 'string', jsonPath: '.spec.podCIDRs' },
    { name: 'Global', type: 'string', jsonPath: '.spec.globalCIDRs' },
    { name: 'Services', type: 'string', jsonPath: '.spec.serviceCIDRs', priority: 1 },
  ],
  schema: crdSchema(CLUSTER_FIELDS),
})

/** CRD of Endpoint: one gateway of one cluster on one lane (model/kinds). */
export const ENDPOINT = sealaneCrd({
  kind: 'Endpoint',
  plural: 'endpoints',
  shortNames: ['slendpoint'],
  columns: [
    { name: 'Cluster', type: 'string', jsonPath: '.spec.cluster' },
    { name: 'Node', type: 'string', jsonPath: '.spec.node' },
    { name: 'Lane', type: 'integer', jsonPath: '.spec.lane' },
    { name: 'Address', type: 'string', jsonPath: '.spec.candidates[0].address' },
    { name: 'Port', type: 'integer', jsonPath: '.spec.candidates[0].port', priority: 1 },
  ],
  schema: crdSchema(ENDPOINT_FIELDS),
})

/** Gateway API and Istio use `gtw` and `gw`. */
const SHORT_NAMES = ['slgateway']

/** CRD of Gateway: the state of one node's lanes (model/kinds). It has only a status. */
export const GATEWAY = sealaneCrd({
  kind: 'Gateway',
  plural: 'gateways',
  shortNames: SHORT_NAMES,
  columns: [
    { name: 'Lane', type: 'integer', jsonPath: '.status.lanes[0].lane' },
    { name: 'Up', type: 'string', jsonPath: '.status.up' },
    { name: 'Ready', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
    { name: 'Reason', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].reason' },
    { name: 'Heard', type: 'date', jsonPath: '.status.heartbeatTime' },
    { name: 'Driver', type: 'string', jsonPath: '.status.lanes[0].driver' },
    { name: 'MTU', type: 'integer', jsonPath: '.status.lanes[0].mtu', priority: 1 },
    { name: 'Failure', type: 'string', jsonPath: '.status.failure' },
    { name: 'Version', type: 'string', jsonPath: '.status.version', priority: 1 },
  ],
  schema: crdSchema(GATEWAY_FIELDS),
})

/** CRD of RouteAgent: the routes of one node to the other clusters (model/kinds). It has only a status. */
export const ROUTE_AGENT = sealaneCrd({
  kind: 'RouteAgent',
  plural: 'routeagents',
  shortNames: ['slroute'],
  columns: [
    { name: 'Reached', type: 'string', jsonPath: '.status.reached' },
    { name: 'Reason', type: 'string', jsonPath: '.status.conditions[?(@.type=="NodesAnswer")].reason' },
    { name: 'Failure', type: 'string', jsonPath: '.status.failure' },
    { name: 'Version', type: 'string', jsonPath: '.status.version', priority: 1 },
  ],
  schema: crdSchema(ROUTE_AGENT_FIELDS),
})

/** CRD of Membership: whether this cluster belongs to a clusterset (model/kinds). */
export const MEMBERSHIP = sealaneCrd({
  kind: 'Membership',
  plural: 'memberships',
  shortNames: ['slmember'],
  columns: [
    { name: 'Cluster', type: 'string', jsonPath: '.spec.clusterId' },
    { name: 'Clusterset', type: 'string', jsonPath: '.spec.clusterset' },
    { name: 'Phase', type: 'string', jsonPath: '.spec.phase' },
  ],
  schema: crdSchema(MEMBERSHIP_FIELDS),
})

const VALID: PrinterColumn = {
  name: 'Valid',
  type: 'string',
  jsonPath: '.status.conditions[?(@.type=="Valid")].status',
}

/** CRD of AccessPolicy: to whom the services of a namespace are offered (model/kinds). */
export const ACCESS_POLICY = sealaneCrd({
  kind: 'AccessPolicy',
  plural: 'accesspolicies',
  scope: 'Namespaced',
  shortNames: ['slaccess'],
  columns: [{ name: 'Services', type: 'string', jsonPath: '.spec.targetRefs[*].name' }, VALID],
  schema: crdSchema(ACCESS_POLICY_FIELDS),
})

/** CRD of ClusterAccessPolicy: the default of a cluster for services without an AccessPolicy (model/kinds). */
export const CLUSTER_ACCESS_POLICY = sealaneCrd({
  kind: 'ClusterAccessPolicy',
  plural: 'clusteraccesspolicies',
  shortNames: ['slclusteraccess'],
  columns: [{ name: 'Default', type: 'string', jsonPath: '.spec.default' }, VALID],
  schema: crdSchema(CLUSTER_ACCESS_POLICY_FIELDS),
})

/** CRD of TrafficPolicy: how the calls of this cluster to services of a namespace are divided (model/kinds). */
export const TRAFFIC_POLICY = sealaneCrd({
  kind: 'TrafficPolicy',
  plural: 'trafficpolicies',
  scope: 'Namespaced',
  shortNames: ['sltraffic'],
  columns: [{ name: 'Services', type: 'string', jsonPath: '.spec.targetRefs[*].name' }, VALID],
  schema: crdSchema(TRAFFIC_POLICY_FIELDS),
})

/** CRD of ClusterTrafficPolicy: the same for services without a TrafficPolicy (model/kinds). */
export const CLUSTER_TRAFFIC_POLICY = sealaneCrd({
  kind: 'ClusterTrafficPolicy',
  plural: 'clustertrafficpolicies',
  shortNames: ['slclustertraffic'],
  columns: [VALID],
  schema: crdSchema(CLUSTER_TRAFFIC_POLICY_FIELDS),
})

/** CRD of Topology: which clusters link with which, in the cluster of the broker (model/kinds). */
export const TOPOLOGY = sealaneCrd({
  kind: 'Topology',
  plural: 'topologies',
  shortNames: ['sltopology'],
  columns: [
    { name: 'Mode', type: 'string', jsonPath: '.spec.mode' },
    { name: 'Accepted', type: 'string', jsonPath: '.status.conditions[?(@.type=="Accepted")].status' },
    { name: 'Applied', type: 'string', jsonPath: '.status.conditions[?(@.type=="Applied")].status' },
  ],
  schema: crdSchema(TOPOLOGY_OBJECT_FIELDS),
})
