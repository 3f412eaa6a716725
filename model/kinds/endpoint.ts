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
    kind: choice(CANDIDATE_KINDS, 'How the address is known.'),
    address: ipAddress('IPv4 or IPv6 address.'),
    port: relied(portNumber('UDP port.')),
  },
  'A place where this gateway may be called.',
)

const SPEC = map(
  {
    cluster: fixed(dnsLabel('Cluster id.'), 'the cluster of an endpoint'),
    node: fixed(objectName('Name of the gateway node.'), 'the node of an endpoint'),
    lane: fixed(relied(integer(0, MAX_ADDRESSED_LANE, 'Lane number.')), 'the lane of an endpoint'),
    /** WireGuard public key, base64. */
    publicKey: text('WireGuard public key: 32 bytes in base64.', PUBLIC_KEY),
    /** The key that will replace the current one, in the same form. Absent if none is announced. */
    nextPublicKey: text(
      'The key that the gateway is about to take instead: 32 bytes in base64.',
      PUBLIC_KEY,
    ).optional(),
    /** Best first. Empty if no gateway can call this one: it calls the others. */
    candidates: list(CANDIDATE, 'Best first. Empty: this gateway calls the others.', MAX_CANDIDATES),
    capabilities: list(
      text('One word.', { maxLength: MAX_CAPABILITY_LENGTH }),
      'What this gateway can do beyond the first version.',
      MAX_CAPABILITIES,
    ),
  },
  'What the other gateways need to call this one.',
)

const NAME_PREFIX = "self.spec.cluster + '.' + self.spec.node + '-lane'"

/** One gateway of one cluster on one lane. Cluster-scoped; metadata.name is endpointName(). */
export const ENDPOINT_FIELDS = object(
  'One gateway of one cluster on one lane. Own ones are written by the gateways, remote ones by the agent.',
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
