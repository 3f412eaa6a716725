/** The description of ServiceExport. */
import { CLUSTER_SELECTORS } from './cluster-selectors.ts'
import { CONDITIONS } from './conditions.ts'
import { MAX_OFFERED_CLUSTERS } from '../values/values.ts'
import { dnsLabel, listOf, map, named, object, textMap } from './fields.ts'

/** multicluster.x-k8s.io (KEP-1645): makes a Service usable from the other clusters. */
export const SERVICE_EXPORT_FIELDS = object('Exports the Service with the same name and namespace to the clusterset.', {
  spec: map(
    {
      /** KEP-5939, not yet in a release of the standard. */
      clusterSelectors: CLUSTER_SELECTORS.optional(),
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
    {
      /** enhancements#6329, not yet in a release of the standard. */
      clusters: listOf(map({ cluster: named(dnsLabel('Id of the cluster.')) }, 'One other cluster.'), {
        description:
          'Other clusters that the service is offered to. Informational: if absent, it may be offered to all.',
        maxItems: MAX_OFFERED_CLUSTERS,
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['cluster'],
      }).optional(),
      conditions: CONDITIONS.optional(),
    },
    'Whether the Service is exported and consistent with other exports. Written by the implementation.',
  ).optional(),
})
