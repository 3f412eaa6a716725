/** The description of Cluster. */
import {
  MAX_CIDRS,
  MAX_CLUSTER_INDEX,
  MAX_CLUSTER_LABELS,
  MAX_CLUSTER_PROPERTIES,
  MAX_IMPORTED_SERVICES,
  MAX_NAMED_IMPORTERS,
} from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { cidr, dnsLabel, fixed, flag, integer, list, map, object, textMap } from './fields.ts'

const SPEC = map(
  {
    id: fixed(dnsLabel('Id of the cluster: one DNS label, unique in the clusterset.'), 'the id of a cluster'),
    /** A small number from the broker, unique in the clusterset; it determines the lane addresses. */
    index: integer(0, MAX_CLUSTER_INDEX, 'Number that the broker assigned; it determines the lane addresses.'),
    podCIDRs: list(
      cidr('One pod range.'),
      'Pod ranges of the cluster, except IPv6 ranges that overlap those of another member.',
      MAX_CIDRS,
    ),
    serviceCIDRs: list(cidr('One service range.'), 'Service ranges of the cluster.', MAX_CIDRS),
    /** In the order and of the sizes of podCIDRs; empty if the cluster's own addresses are unique. */
    globalCIDRs: list(
      cidr('One global range.'),
      'Ranges at which other clusters reach the pods, one for each pod range (an IPv6 range is repeated); empty if the pod ranges are unique.',
      MAX_CIDRS,
    ),
    labels: textMap('Labels of the cluster, such as its region or zone.', { maxProperties: MAX_CLUSTER_LABELS }),
    drained: flag('The cluster gets no new connections while another one is ready: an operator drains it.').optional(),
    drainedNow: flag(
      'With drained: open connections to it are ended too, as long as another cluster is ready.',
    ).optional(),
    /** Absent: from a member or a broker of an earlier release. */
    properties: textMap('ClusterProperties of the cluster, such as its region and zone.', {
      maxProperties: MAX_CLUSTER_PROPERTIES,
    }).optional(),
  },
  'Facts about the cluster, as published by the broker.',
)

/** Of this cluster's own Cluster: the ServiceExport of another project has no field for it. */
const IMPORTED_BY = list(
  map(
    {
      namespace: dnsLabel('Namespace of the service.'),
      name: dnsLabel('Name of the service.'),
      clusters: list(dnsLabel('Id of a member.'), 'Members that import it, sorted.', MAX_NAMED_IMPORTERS),
      more: integer(1, MAX_CLUSTER_INDEX, 'Number of further members that import it. Absent: none.').optional(),
    },
    'One exported service.',
  ),
  'Which members import what this cluster exports, as they report it. Only for this cluster, and at most 256 services.',
  MAX_IMPORTED_SERVICES,
)

/** A member of the clusterset, this one included. Cluster-scoped; metadata.name is the cluster id. */
export const CLUSTER_FIELDS = object(
  'A member of the clusterset, including this cluster. Written by the agent.',
  {
    spec: SPEC,
    status: map(
      { conditions: CONDITIONS.optional(), importedBy: IMPORTED_BY.optional() },
      'State of the member, as observed by this cluster.',
    ).optional(),
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
