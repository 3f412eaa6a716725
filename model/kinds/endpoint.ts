/** The description of Endpoint. */
import {
  CANDIDATE_KINDS,
  MAX_ADDRESSED_LANE,
  MAX_CANDIDATES,
  MAX_CAPABILITIES,
  MAX_CAPABILITY_LENGTH,
  PUBLIC_KEY_PATTERN,
} from '../values/values.ts'
import {
  choice,
  dnsLabel,
  fixed,
  integer,
  ipAddress,
  list,
  map,
  object,
  objectName,
  portNumber,
  relied,
  text,
} from './fields.ts'

const PUBLIC_KEY = { pattern: PUBLIC_KEY_PATTERN, minLength: 44, maxLength: 44 }

const CANDIDATE = map(
  {
    kind: choice(CANDIDATE_KINDS, 'Source of the address.'),
    address: ipAddress('IPv4 or IPv6 address.'),
    port: relied(portNumber('UDP port.')),
  },
  'An address and port at which other gateways may reach this gateway.',
)

const SPEC = map(
  {
    cluster: fixed(dnsLabel('Id of the cluster of the gateway.'), 'the cluster of an endpoint'),
    node: fixed(objectName('Name of the gateway node.'), 'the node of an endpoint'),
    lane: fixed(relied(integer(0, MAX_ADDRESSED_LANE, 'Lane number of the gateway.')), 'the lane of an endpoint'),
    /** WireGuard public key, base64. */
    publicKey: text('WireGuard public key: 32 bytes in base64.', PUBLIC_KEY),
    /** The key that will replace the current one, in the same form. Absent if none is announced. */
    nextPublicKey: text(
      'WireGuard public key that will replace publicKey: 32 bytes in base64. Absent if no replacement is planned.',
      PUBLIC_KEY,
    ).optional(),
    /** Best first. Empty if no gateway can call this one: it calls the others. */
    candidates: list(
      CANDIDATE,
      'Addresses of the gateway, best first. If empty, other gateways cannot connect to it, and it connects to them.',
      MAX_CANDIDATES,
    ),
    capabilities: list(
      text('Name of a capability.', { maxLength: MAX_CAPABILITY_LENGTH }),
      'Capabilities of the gateway beyond those of the first version.',
      MAX_CAPABILITIES,
    ),
  },
  'What other gateways need to connect to this one.',
)

const NAME_PREFIX = "self.spec.cluster + '.' + self.spec.node + '-lane'"

/** One gateway of one cluster on one lane. Cluster-scoped; metadata.name is endpointName(). */
export const ENDPOINT_FIELDS = object(
  'One gateway of one cluster on one lane. The gateways write the objects of this cluster, the agent those of other clusters.',
  { spec: SPEC },
  {
    'x-kubernetes-validations': [
      {
        // Two conditions, since the CEL cost estimate of the API server has no bound for a number that is converted
        // to text.
        rule: `self.metadata.name.startsWith(${NAME_PREFIX}) && self.metadata.name.substring(size(${NAME_PREFIX})) == string(self.spec.lane)`,
        message: 'metadata.name is <cluster>.<node>-lane<number>',
      },
    ],
  },
)
