/** The CRDs of sealane.io/v1alpha1, and what they have in common. */
import { AGE, type CustomResourceDefinition, type PrinterColumn } from './custom-resource.ts'
import type { Schema } from './schema.ts'

/** Raised with every change of a schema: an installer never replaces a higher one. */
export const CRD_REVISION = 11
export const LABEL_CRD_REVISION = 'sealane.io/crd-revision'

export interface SealaneKind {
  readonly kind: string
  readonly plural: string
  readonly shortNames: readonly string[]
  readonly columns: readonly PrinterColumn[]
  readonly schema: Schema
}

/** Cluster-scoped, one version; the status subresource where the schema has a status. */
export function sealaneCrd({ kind, plural, shortNames, columns, schema }: SealaneKind): CustomResourceDefinition {
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
      scope: 'Cluster',
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
