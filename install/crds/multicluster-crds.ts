/**
 * CRDs of the Multi-Cluster Services API (KEP-1645), as in sigs.k8s.io/mcs-api v0.5.2: both versions have the same
 * schema, and v1beta1 is stored. Other products share them, so nothing may be added here.
 */
import {
  CLUSTER_PROPERTY_ALPHA_FIELDS,
  CLUSTER_PROPERTY_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_IMPORT_FIELDS,
  type Schema,
  crdSchema,
} from '../../model/kinds/kinds.ts'
import { AGE, type CrdVersion, type CustomResourceDefinition, type PrinterColumn } from './custom-resource.ts'

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

type Fields = Readonly<Partial<Record<'spec' | 'status', string>>>

/** A schema without fields that no release of the standard has: an API server drops them until a later CRD is there. */
function withoutLater(whole: Schema, later: Fields): Schema {
  const parts = Object.entries(later).map(([part, field]) => {
    const schema = whole.properties?.[part] ?? {}
    const kept = Object.entries(schema.properties ?? {}).filter(([name]) => name !== field)
    return [part, { ...schema, properties: Object.fromEntries(kept) }] as const
  })
  return { ...whole, properties: { ...whole.properties, ...Object.fromEntries(parts) } }
}

export const SERVICE_EXPORT = mcsCrd({
  kind: 'ServiceExport',
  shortNames: ['svcex', 'svcexport'],
  columns: [AGE],
  // enhancements#6329 and KEP-5939.
  schema: withoutLater(crdSchema(SERVICE_EXPORT_FIELDS), { spec: 'clusterSelectors', status: 'clusters' }),
})

export const SERVICE_IMPORT = mcsCrd({
  kind: 'ServiceImport',
  shortNames: ['svcim', 'svcimport'],
  columns: [
    { name: 'Type', type: 'string', description: 'ClusterSetIP or Headless', jsonPath: '.spec.type' },
    { name: 'IP', type: 'string', description: 'Clusterset IPs of the service', jsonPath: '.spec.ips' },
    AGE,
  ],
  // KEP-5939.
  schema: withoutLater(crdSchema(SERVICE_IMPORT_FIELDS), {
    spec: 'clusterSelectors',
    status: 'clusterSelectorResults',
  }),
})

const COLUMNS = [
  { name: 'value', type: 'string', jsonPath: '.spec.value' },
  { name: 'age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
] as const

const alpha: CrdVersion = {
  name: 'v1alpha1',
  served: true,
  storage: false,
  subresources: {},
  additionalPrinterColumns: COLUMNS,
  schema: { openAPIV3Schema: crdSchema(CLUSTER_PROPERTY_ALPHA_FIELDS) },
}

const beta: CrdVersion = {
  name: 'v1beta1',
  served: true,
  storage: true,
  subresources: { status: {} },
  additionalPrinterColumns: COLUMNS,
  schema: { openAPIV3Schema: crdSchema(CLUSTER_PROPERTY_FIELDS) },
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
