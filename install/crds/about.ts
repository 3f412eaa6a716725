/**
 * CRD of the About API (KEP-2149). The group is protected: the API server takes it only with the annotation that says
 * where it was approved.
 */
import { type CrdVersion, type CustomResourceDefinition, objectSchema } from './custom-resource.ts'
import type { Schema } from './schema.ts'

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
