/**
 * CRDs of the Multi-Cluster Services API (KEP-1645), as in sigs.k8s.io/mcs-api v0.5.2: both versions have the same
 * schema, and v1beta1 is stored. Other products share them, so nothing may be added here.
 */
import {
  AGE,
  CONDITIONS,
  type CrdVersion,
  type CustomResourceDefinition,
  type PrinterColumn,
  type Schema,
  objectSchema,
} from './custom-resource.ts'

export const MCS_GROUP = 'multicluster.x-k8s.io'
export const LABEL_MCS_RELEASE = `${MCS_GROUP}/release-version`
export const LABEL_MCS_REVISION = `${MCS_GROUP}/crd-schema-revision`
export const MCS_RELEASE = 'v0.5.2'
const MCS_REVISION = '0'

interface McsKind {
  readonly kind: string
  readonly shortNames: readonly string[]
  readonly columns: readonly PrinterColumn[]
  readonly schema: Schema
}

function mcsCrd({ kind, shortNames, columns, schema }: McsKind): CustomResourceDefinition {
  const singular = kind.toLowerCase()
  const version = (name: string, storage: boolean) => ({
    name,
    served: true,
    storage,
    subresources: { status: {} },
    additionalPrinterColumns: columns,
    schema: { openAPIV3Schema: schema },
  })
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${singular}s.${MCS_GROUP}`,
      labels: { [LABEL_MCS_RELEASE]: MCS_RELEASE, [LABEL_MCS_REVISION]: MCS_REVISION },
    },
    spec: {
      group: MCS_GROUP,
      scope: 'Namespaced',
      names: { plural: `${singular}s`, singular, kind, shortNames },
      versions: [version('v1alpha1', false), version('v1beta1', true)],
    },
  }
}

const strings = (description: string): Schema => ({
  description,
  type: 'object',
  additionalProperties: { type: 'string' },
})

const string = (description: string): Schema => ({ description, type: 'string' })
const int32 = (description: string): Schema => ({ description, type: 'integer', format: 'int32' })

export const SERVICE_EXPORT = mcsCrd({
  kind: 'ServiceExport',
  shortNames: ['svcex', 'svcexport'],
  columns: [AGE],
  schema: objectSchema(
    'Makes the Service of the same name and namespace usable from the other clusters.',
    {
      spec: {
        description: 'What goes along with the Service.',
        type: 'object',
        properties: {
          exportedAnnotations: strings('Annotations for the ServiceImports. Optional for implementations.'),
          exportedLabels: strings('Labels for the ServiceImports. Optional for implementations.'),
        },
      },
      status: {
        description: 'Written by the implementation: whether the Service is exported and agrees with the others.',
        type: 'object',
        properties: { conditions: CONDITIONS },
      },
    },
    [],
  ),
})

const importPort: Schema = {
  description: 'A port of the service.',
  type: 'object',
  properties: {
    appProtocol: string('Hint at the protocol of the application, as in Service.'),
    name: string('Name of the port, a DNS label, unique in the service. Optional where there is one port.'),
    port: int32('Port under which the service is called.'),
    protocol: string('TCP, UDP or SCTP; TCP where it is absent.'),
  },
  required: ['port'],
}

const importSpec: Schema = {
  description: 'What the exporting clusters agreed on. Written by the implementation alone.',
  type: 'object',
  properties: {
    internalTrafficPolicy: string('Cluster or Local, as in Service.'),
    ipFamilies: {
      description: 'IP families of the service, in the order of ips.',
      type: 'array',
      items: string('IPv4 or IPv6.'),
      maxItems: 2,
    },
    ips: {
      description: 'Clusterset IPs, where type is ClusterSetIP.',
      type: 'array',
      items: { type: 'string' },
      maxItems: 2,
    },
    ports: { type: 'array', items: importPort, 'x-kubernetes-list-type': 'atomic' },
    sessionAffinity: string('ClientIP or None, None where it is absent. Means nothing for Headless.'),
    sessionAffinityConfig: {
      description: 'Details of session affinity.',
      type: 'object',
      properties: {
        clientIP: {
          description: 'Details of affinity by client IP.',
          type: 'object',
          properties: { timeoutSeconds: int32('How long a client stays, 1 to 86400 seconds; 10800 where absent.') },
        },
      },
    },
    trafficDistribution: string('Preference among the endpoints, as in Service; a hint.'),
    type: {
      description: 'ClusterSetIP: one address for all endpoints. Headless: DNS gives the endpoints.',
      type: 'string',
      enum: ['ClusterSetIP', 'Headless'],
    },
  },
  required: ['ports', 'type'],
}

const importStatus: Schema = {
  description: 'Where the service comes from and how it does.',
  type: 'object',
  properties: {
    clusters: {
      description: 'The clusters that export it.',
      type: 'array',
      items: {
        description: 'One exporting cluster.',
        type: 'object',
        properties: { cluster: string('Its name, an RFC 1123 label.') },
        required: ['cluster'],
      },
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['cluster'],
    },
    conditions: CONDITIONS,
    endpointSliceObjects: {
      description: 'Whether EndpointSlices of this import exist in this cluster.',
      type: 'string',
      enum: ['Present', 'Absent'],
    },
  },
}

export const SERVICE_IMPORT = mcsCrd({
  kind: 'ServiceImport',
  shortNames: ['svcim', 'svcimport'],
  columns: [
    { name: 'Type', type: 'string', description: 'ClusterSetIP or Headless', jsonPath: '.spec.type' },
    { name: 'IP', type: 'string', description: 'The clusterset IPs', jsonPath: '.spec.ips' },
    AGE,
  ],
  schema: objectSchema(
    'A service of the clusterset, as this cluster may use it.',
    { spec: importSpec, status: importStatus },
    [],
  ),
})

const spec: Schema = {
  description: 'The property.',
  type: 'object',
  properties: { value: { description: 'Its value.', type: 'string', minLength: 1 } },
  required: ['value'],
}

const COLUMNS = [
  { name: 'value', type: 'string', jsonPath: '.spec.value' },
  { name: 'age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
] as const

const WORDS = 'A fact about this cluster that tools of several clusters go by, such as its id.'

const alpha: CrdVersion = {
  name: 'v1alpha1',
  served: true,
  storage: false,
  subresources: {},
  additionalPrinterColumns: COLUMNS,
  schema: { openAPIV3Schema: objectSchema(WORDS, { spec }, ['spec']) },
}

const beta: CrdVersion = {
  name: 'v1beta1',
  served: true,
  storage: true,
  subresources: { status: {} },
  additionalPrinterColumns: COLUMNS,
  schema: {
    openAPIV3Schema: objectSchema(WORDS, { spec, status: { description: 'Not used yet.', type: 'object' } }, []),
  },
}

/**
 * CRD of the About API (KEP-2149). The group is protected: the API server accepts it only with the annotation that
 * names its approval.
 */
export const CLUSTER_PROPERTY: CustomResourceDefinition = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: {
    name: 'clusterproperties.about.k8s.io',
    annotations: { 'api-approved.kubernetes.io': 'https://github.com/kubernetes/enhancements/pull/3084' },
  },
  spec: {
    group: 'about.k8s.io',
    scope: 'Cluster',
    names: {
      kind: 'ClusterProperty',
      listKind: 'ClusterPropertyList',
      plural: 'clusterproperties',
      singular: 'clusterproperty',
      categories: ['multicluster'],
    },
    versions: [alpha, beta],
  },
}
