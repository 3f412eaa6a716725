/** The description of ServiceExport. */
import { CONDITIONS } from './conditions.ts'
import { map, object, textMap } from './fields.ts'

/** multicluster.x-k8s.io (KEP-1645): makes a Service usable from the other clusters. */
export const SERVICE_EXPORT_FIELDS = object('Exports the Service with the same name and namespace to the clusterset.', {
  spec: map(
    {
      exportedAnnotations: textMap(
        'Annotations to propagate to the ServiceImports. Support by implementations is optional.',
      ).optional(),
      exportedLabels: textMap(
        'Labels to propagate to the ServiceImports. Support by implementations is optional.',
      ).optional(),
    },
    'Metadata to export with the Service.',
  ).optional(),
  status: map(
    { conditions: CONDITIONS.optional() },
    'Whether the Service is exported and consistent with other exports. Written by the implementation.',
  ).optional(),
})
