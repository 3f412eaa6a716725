/** The description of Membership. */
import { MAX_LISTED_NAMESPACES } from '../values/values.ts'
import { choice, cidr, dnsLabel, fixed, ipAddress, list, map, object, relied } from './fields.ts'

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
        /** Absent at a member that joined before there was a choice: pods. */
        exposure: choice(
          ['exports', 'pods', 'nothing'],
          'What other members may call. exports: exported services. pods: all pods. nothing: nothing of this cluster. pods if absent.',
        ).optional(),
        /** A join writes deny until a broker has answered. If the broker states none, the agent writes allow. */
        accessDefault: choice(
          ['allow', 'deny'],
          'Default of the clusterset for exported services without an AccessPolicy, as stated by the broker. allow if absent.',
        ).optional(),
        /** Nodes read both lists here; the agent takes them from the site file. */
        allowedNamespaces: list(
          dnsLabel('Name of a namespace.'),
          'Namespaces that are imported although they are guarded, and used although they are excluded, as the site file states them.',
          MAX_LISTED_NAMESPACES,
        ).optional(),
        excludedNamespaces: list(
          dnsLabel('Name of a namespace.'),
          'Namespaces that are neither exported nor imported, as the site file states them.',
          MAX_LISTED_NAMESPACES,
        ).optional(),
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
