/** The description of ServiceExport. */
import { CONDITIONS } from './conditions.ts'
import { map, object, textMap } from './fields.ts'

/** multicluster.x-k8s.io (KEP-1645): makes a Service usable from the other clusters. */
export const SERVICE_EXPORT_FIELDS = object(
  'Makes the Service of the same name and namespace usable from the other clusters.',
  {
    spec: map(
      {
        exportedAnnotations: textMap('Annotations for the ServiceImports. Optional for implementations.').optional(),
        exportedLabels: textMap('Labels for the ServiceImports. Optional for implementations.').optional(),
      },
      'What goes along with the Service.',
    ).optional(),
    status: map(
      { conditions: CONDITIONS.optional() },
      'Written by the implementation: whether the Service is exported and agrees with the others.',
    ).optional(),
  },
)
