/** CRD of Cluster: a member of the clusterset (model/objects.ts). */
import { CONDITIONS } from './condition-schema.ts'
import { objectSchema } from './custom-resource.ts'
import { cidr, dnsLabel, fixed, integer, list, map, textMap } from './schema.ts'
import { sealaneCrd } from './sealane-kind.ts'

const MAX_CIDRS = 16

const clusterSpec = map('What the broker knows of this cluster.', {
  id: fixed(dnsLabel('Cluster id: one DNS label, unique in the clusterset.'), 'the id of a cluster'),
  index: integer('Small number given by the broker; lane addresses follow from it.', 0, 65_535),
  podCIDRs: list(
    "The cluster's own pod ranges, but for IPv6 that overlaps another member's.",
    cidr('One pod range.'),
    MAX_CIDRS,
  ),
  serviceCIDRs: list("The cluster's own service ranges.", cidr('One service range.'), MAX_CIDRS),
  globalCIDRs: list(
    'Ranges under which others reach the pods, one per pod range (of an IPv6 range itself); empty while the pod ranges are unique.',
    cidr('One global range.'),
    MAX_CIDRS,
  ),
  labels: textMap('Region, zone, or anything else.', { maxProperties: 64 }),
})

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
  schema: objectSchema(
    'A member of the clusterset, this cluster included. Written by the agent.',
    {
      spec: clusterSpec,
      status: map('What this cluster finds about that member.', { conditions: CONDITIONS }, ['conditions']),
    },
    ['spec'],
    {
      'x-kubernetes-validations': [
        { rule: 'self.metadata.name == self.spec.id', message: 'metadata.name is the cluster id' },
        {
          rule: 'self.spec.globalCIDRs.size() == 0 || self.spec.globalCIDRs.size() == self.spec.podCIDRs.size()',
          message: 'spec.globalCIDRs is empty or has one range per pod range',
        },
      ],
    },
  ),
})
