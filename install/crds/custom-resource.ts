/** Defines CustomResourceDefinitions as data, with the fields that Sealane writes or reads. */
import type { Schema } from '../../model/kinds/kinds.ts'

export interface PrinterColumn {
  readonly name: string
  readonly type: 'string' | 'integer' | 'date' | 'number' | 'boolean'
  readonly jsonPath: string
  readonly description?: string
  /** Columns above 0 are shown only with -o wide. */
  readonly priority?: number
}

export interface CrdVersion {
  readonly name: string
  readonly served: boolean
  readonly storage: boolean
  readonly schema?: { readonly openAPIV3Schema?: Schema }
  readonly subresources?: { readonly status?: Readonly<Record<string, never>> }
  readonly additionalPrinterColumns?: readonly PrinterColumn[]
}

export interface CustomResourceDefinition {
  readonly apiVersion: 'apiextensions.k8s.io/v1'
  readonly kind: 'CustomResourceDefinition'
  readonly metadata: {
    readonly name: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
    readonly deletionTimestamp?: string
  }
  readonly spec: {
    readonly group: string
    readonly scope: 'Cluster' | 'Namespaced'
    readonly names: {
      readonly kind: string
      readonly plural: string
      readonly singular?: string
      readonly listKind?: string
      readonly shortNames?: readonly string[]
      readonly categories?: readonly string[]
    }
    readonly versions: readonly CrdVersion[]
    readonly conversion?: { readonly strategy: string; readonly webhook?: unknown }
  }
  readonly status?: { readonly storedVersions?: readonly string[]; readonly conditions?: readonly unknown[] }
}

export const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' }
