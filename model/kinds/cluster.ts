/** The description of Cluster. */
import { MAX_CIDRS, MAX_CLUSTER_LABELS, MAX_CLUSTER_INDEX } from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { cidr, dnsLabel, fixed, integer, list, map, object, textMap } from './fields.ts'

const SPEC = map(
  {
    id: fixed(dnsLabel('Cluster id: one DNS label, unique in the clusterset.'), 'the id of a cluster'),
    /** A small number from the broker, unique in the clusterset; it determines the lane addresses. */
    index: integer(0, MAX_CLUSTER_INDEX, 'Small number given by the broker; lane addresses follow from it.'),
    podCIDRs: list(
      cidr('One pod range.'),
      "The cluster's own pod ranges, but for IPv6 that overlaps another member's.",
      MAX_CIDRS,
    ),
    serviceCIDRs: list(cidr('One service range.'), "The cluster's own service ranges.", MAX_CIDRS),
    /** In the order and of the sizes of podCIDRs; empty if the cluster's own addresses are unique. */
    globalCIDRs: list(
      cidr('One global range.'),
      'Ranges under which others reach the pods, one per pod range (of an IPv6 range itself); empty while the pod ranges are unique.',
      MAX_CIDRS,
    ),
    labels: textMap('Region, zone, or anything else.', { maxProperties: MAX_CLUSTER_LABELS }),
  },
  'What the broker knows of this cluster.',
)

/** A member of the clusterset, this one included. Cluster-scoped; metadata.name is the cluster id. */
export const CLUSTER_FIELDS = object(
  'A member of the clusterset, this cluster included. Written by the agent.',
  {
    spec: SPEC,
    status: map({ conditions: CONDITIONS.optional() }, 'What this cluster finds about that member.').optional(),
  },
  {
    'x-kubernetes-validations': [
      { rule: 'self.metadata.name == self.spec.id', message: 'metadata.name is the cluster id' },
      {
        rule: 'self.spec.globalCIDRs.size() == 0 || self.spec.globalCIDRs.size() == self.spec.podCIDRs.size()',
        message: 'spec.globalCIDRs is empty or has one range per pod range',
      },
    ],
  },
)
