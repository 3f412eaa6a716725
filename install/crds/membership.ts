/** CRD of Membership: whether this cluster belongs to a clusterset (model/objects.ts). */
import { objectSchema } from './custom-resource.ts'
import { cidr, dnsLabel, fixed, ipAddress, map, text } from './schema.ts'
import { sealaneCrd } from './sealane-kind.ts'

const membershipSpec = map(
  'What this cluster joined.',
  {
    clusterId: fixed(dnsLabel('Under which id.'), 'the id of a member'),
    phase: text('leaving: every node takes Sealane out of its kernel.', { enum: ['joined', 'leaving'] }),
    clusterset: fixed(dnsLabel('Name of the clusterset.'), 'the clusterset of a member'),
    globalRange: cidr('Range of global addresses.'),
    clustersetIpRange: cidr('Range of clusterset IPs.'),
    observedAddress: ipAddress("This cluster's address as the broker saw it when joining."),
  },
  ['observedAddress'],
)

export const MEMBERSHIP = sealaneCrd({
  kind: 'Membership',
  plural: 'memberships',
  shortNames: ['slmember'],
  columns: [
    { name: 'Cluster', type: 'string', jsonPath: '.spec.clusterId' },
    { name: 'Clusterset', type: 'string', jsonPath: '.spec.clusterset' },
    { name: 'Phase', type: 'string', jsonPath: '.spec.phase' },
  ],
  schema: objectSchema(
    'Whether this cluster belongs to a clusterset. There is one, named self; written by sealane join and leave.',
    { spec: membershipSpec },
    ['spec'],
    {
      'x-kubernetes-validations': [{ rule: "self.metadata.name == 'self'", message: 'metadata.name is self' }],
    },
  ),
})
