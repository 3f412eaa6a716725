/** The description of Membership. */
import { choice, cidr, dnsLabel, fixed, ipAddress, map, object, relied } from './fields.ts'

/** Whether this site belongs to a clusterset. Cluster-scoped, one object named "self". */
export const MEMBERSHIP_FIELDS = object(
  'Whether this cluster belongs to a clusterset. There is one, named self; written by sealane join and leave.',
  {
    spec: map(
      {
        clusterId: fixed(relied(dnsLabel('Under which id.')), 'the id of a member'),
        /** leaving: every node removes Sealane from its kernel, then its Gateway or RouteAgent object. */
        phase: relied(choice(['joined', 'leaving'], 'leaving: every node takes Sealane out of its kernel.')),
        clusterset: fixed(dnsLabel('Name of the clusterset.'), 'the clusterset of a member'),
        globalRange: relied(cidr('Range of global addresses.')),
        clustersetIpRange: relied(cidr('Range of clusterset IPs.')),
        /**
         * This cluster's address as the broker saw it at the join; absent if the broker could not know whose address it
         * was. Gateways decide again whether to use it (gateway/reach/plan-candidates.ts).
         */
        observedAddress: ipAddress("This cluster's address as the broker saw it when joining.").optional(),
      },
      'What this cluster joined.',
    ),
  },
  { 'x-kubernetes-validations': [{ rule: "self.metadata.name == 'self'", message: 'metadata.name is self' }] },
)
