/** The description of Membership. */
import { choice, cidr, dnsLabel, fixed, ipAddress, map, object, relied } from './fields.ts'

/** Whether this site belongs to a clusterset. Cluster-scoped, one object named "self". */
export const MEMBERSHIP_FIELDS = object(
  'Membership of this cluster in a clusterset. There is one object, named self; sealane join and leave write it.',
  {
    spec: map(
      {
        clusterId: fixed(relied(dnsLabel('Id of this cluster in the clusterset.')), 'the id of a member'),
        /** leaving: every node removes Sealane from its kernel, then its Gateway or RouteAgent object. */
        phase: relied(
          choice(
            ['joined', 'leaving'],
            'joined: this cluster is a member. leaving: every node removes Sealane from its kernel.',
          ),
        ),
        clusterset: fixed(dnsLabel('Name of the clusterset.'), 'the clusterset of a member'),
        globalRange: relied(cidr('Range of global addresses of the clusterset.')),
        clustersetIpRange: relied(cidr('Range of clusterset IPs of the clusterset.')),
        /**
         * This cluster's address as the broker saw it at the join; absent if the broker could not know whose address it
         * was. Gateways decide again whether to use it (gateway/reach/plan-candidates.ts).
         */
        observedAddress: ipAddress('Address of this cluster that the broker observed when it joined.').optional(),
      },
      'The clusterset that this cluster joined.',
    ),
  },
  { 'x-kubernetes-validations': [{ rule: "self.metadata.name == 'self'", message: 'metadata.name is self' }] },
)
