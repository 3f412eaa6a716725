/** CRD of Endpoint: one gateway of one cluster on one lane (model/objects.ts). */
import { objectSchema } from './custom-resource.ts'
import { dnsLabel, dnsSubdomain, fixed, integer, ipAddress, list, map, text } from './schema.ts'
import { sealaneCrd } from './sealane-kind.ts'

const MAX_PORT = 65_535

const PUBLIC_KEY = { pattern: '^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$', minLength: 44, maxLength: 44 }

const candidate = map('A place where this gateway may be called.', {
  kind: text('How the address is known.', { enum: ['private', 'public', 'observed', 'loadBalancer'] }),
  address: ipAddress('IPv4 or IPv6 address.'),
  port: integer('UDP port.', 1, MAX_PORT),
})

const endpointSpec = map(
  'What the other gateways need to call this one.',
  {
    cluster: fixed(dnsLabel('Cluster id.'), 'the cluster of an endpoint'),
    node: fixed(dnsSubdomain('Name of the gateway node.'), 'the node of an endpoint'),
    lane: fixed({ ...integer('Lane number.', 0, 255) }, 'the lane of an endpoint'),
    publicKey: text('WireGuard public key: 32 bytes in base64.', PUBLIC_KEY),
    nextPublicKey: text('The key that the gateway is about to take instead: 32 bytes in base64.', PUBLIC_KEY),
    candidates: list('Best first. Empty: this gateway calls the others.', candidate, 16),
    capabilities: list('What this gateway can do beyond the first version.', text('One word.', { maxLength: 63 }), 32),
  },
  ['nextPublicKey'],
)

const NAME_PREFIX = "self.spec.cluster + '.' + self.spec.node + '-lane'"

export const ENDPOINT = sealaneCrd({
  kind: 'Endpoint',
  plural: 'endpoints',
  shortNames: ['slendpoint'],
  columns: [
    { name: 'Cluster', type: 'string', jsonPath: '.spec.cluster' },
    { name: 'Node', type: 'string', jsonPath: '.spec.node' },
    { name: 'Lane', type: 'integer', jsonPath: '.spec.lane' },
    { name: 'Address', type: 'string', jsonPath: '.spec.candidates[0].address' },
    { name: 'Port', type: 'integer', jsonPath: '.spec.candidates[0].port', priority: 1 },
  ],
  schema: objectSchema(
    'One gateway of one cluster on one lane. Own ones are written by the gateways, remote ones by the agent.',
    { spec: endpointSpec },
    ['spec'],
    {
      'x-kubernetes-validations': [
        {
          // Not as one sum: a number as text has no bound that the API server would count with.
          rule: `self.metadata.name.startsWith(${NAME_PREFIX}) && self.metadata.name.substring(size(${NAME_PREFIX})) == string(self.spec.lane)`,
          message: 'metadata.name is <cluster>.<node>-lane<number>',
        },
      ],
    },
  ),
})
