/** Defines the CRDs of sealane.io/v1alpha1. */
import { MAX_ADDRESSED_LANE, MAX_POD_RANGES, MAX_REPORTED_BY_NODE } from '../../model/addresses/addresses.ts'
import {
  MAX_CONNECTION_MESSAGE_LENGTH,
  MAX_FAILURE_LENGTH,
  MAX_OPEN_CONNECTIONS,
  MAX_SILENT_NODES,
} from '../../model/model.ts'
import {
  AGE,
  CONDITIONS,
  type CustomResourceDefinition,
  type PrinterColumn,
  type Schema,
  cidr,
  dnsLabel,
  dnsSubdomain,
  fixed,
  flag,
  integer,
  ipAddress,
  list,
  map,
  number,
  objectSchema,
  text,
  textMap,
  time,
} from './custom-resource.ts'

/** Increased with every change of a schema. An installer never replaces a higher revision. */
export const CRD_REVISION = 11
export const LABEL_CRD_REVISION = 'sealane.io/crd-revision'

export interface SealaneKind {
  readonly kind: string
  readonly plural: string
  readonly shortNames: readonly string[]
  readonly columns: readonly PrinterColumn[]
  readonly schema: Schema
}

/** A cluster-scoped CRD with one version. It has a status subresource if the schema has a status. */
export function sealaneCrd({ kind, plural, shortNames, columns, schema }: SealaneKind): CustomResourceDefinition {
  const hasStatus = schema.properties?.['status'] !== undefined
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${plural}.sealane.io`,
      labels: { 'app.kubernetes.io/part-of': 'sealane', [LABEL_CRD_REVISION]: String(CRD_REVISION) },
    },
    spec: {
      group: 'sealane.io',
      scope: 'Cluster',
      names: {
        kind,
        plural,
        singular: kind.toLowerCase(),
        listKind: `${kind}List`,
        shortNames,
        categories: ['sealane'],
      },
      versions: [
        {
          name: 'v1alpha1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: schema },
          ...(hasStatus ? { subresources: { status: {} } } : {}),
          additionalPrinterColumns: [...columns, AGE],
        },
      ],
    },
  }
}

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

/** CRD of Cluster: a member of the clusterset (model/objects.ts). */
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
    lane: fixed({ ...integer('Lane number.', 0, MAX_ADDRESSED_LANE) }, 'the lane of an endpoint'),
    publicKey: text('WireGuard public key: 32 bytes in base64.', PUBLIC_KEY),
    nextPublicKey: text('The key that the gateway is about to take instead: 32 bytes in base64.', PUBLIC_KEY),
    candidates: list('Best first. Empty: this gateway calls the others.', candidate, 16),
    capabilities: list('What this gateway can do beyond the first version.', text('One word.', { maxLength: 63 }), 32),
  },
  ['nextPublicKey'],
)

const NAME_PREFIX = "self.spec.cluster + '.' + self.spec.node + '-lane'"

/** CRD of Endpoint: one gateway of one cluster on one lane (model/objects.ts). */
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
          // Two conditions, since the CEL cost estimate of the API server has no bound for a number that is converted
          // to text.
          rule: `self.metadata.name.startsWith(${NAME_PREFIX}) && self.metadata.name.substring(size(${NAME_PREFIX})) == string(self.spec.lane)`,
          message: 'metadata.name is <cluster>.<node>-lane<number>',
        },
      ],
    },
  ),
})

const MAX_BYTES = Number.MAX_SAFE_INTEGER

const lane = map(
  'A device of the lane that this node serves.',
  {
    lane: integer('Lane number of this node.', 0, MAX_ADDRESSED_LANE),
    remoteLane: integer(
      'Lane number of the gateways that the device leads to; absent: the same.',
      0,
      MAX_ADDRESSED_LANE,
    ),
    device: text('Network device.', { maxLength: 15 }),
    mtu: integer('Largest packet of the device.', 0, 65_535),
    driver: text('What carries the lane, such as kernel or userspace WireGuard.', { maxLength: 63 }),
  },
  ['remoteLane'],
)

const connection = map(
  'A tunnel from this gateway to one of another cluster.',
  {
    cluster: dnsLabel('Cluster id of the far end.'),
    lane: integer('Lane number of this node.', 0, MAX_ADDRESSED_LANE),
    remoteLane: integer('Lane number of the far end in its cluster; absent: the same.', 0, MAX_ADDRESSED_LANE),
    endpoint: text('Name of the Endpoint at the far end.', { maxLength: 253 }),
    state: text('As the probes inside the tunnel find it.', { enum: ['connecting', 'up', 'down'] }),
    message: text('The same for people.', { maxLength: MAX_CONNECTION_MESSAGE_LENGTH }),
    cause: text('What keeps it from coming up: NeitherCallable, AnswersLost, NoneAnswers; absent: not known.', {
      maxLength: 63,
    }),
    held: flag('It is up, and went down again and again: other ways are taken where there are any.'),
    usingAddress: text('address:port that the tunnel really uses; absent while unknown.', { maxLength: 128 }),
    usingNat: flag('The far end calls from an address that is none of its candidates.'),
    rttMs: number('Round trip of the last probes, milliseconds.', { minimum: 0 }),
    loss: number('Share of the last probes without an answer.', { minimum: 0, maximum: 1 }),
    mtu: integer('Octets of the largest packet that gets to the far end; absent: not known.', 0, 65_535),
    receiveMtu: integer('The same for what comes from there, as the far end says.', 0, 65_535),
    handshakeAgeSeconds: number('Time since the last WireGuard handshake, seconds.', { minimum: 0 }),
    rxBytes: integer('Bytes received.', 0, MAX_BYTES),
    txBytes: integer('Bytes sent.', 0, MAX_BYTES),
  },
  ['remoteLane', 'cause', 'held', 'usingAddress', 'rttMs', 'loss', 'mtu', 'receiveMtu', 'handshakeAgeSeconds'],
)

const gatewayStatus = map(
  'Written by the gateway of this node.',
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    lanes: list('Devices of this node.', lane, 256),
    connections: list('Tunnels to other clusters.', connection, 4096),
    heartbeatTime: time('When this was written: every few seconds. An old one says nothing about the present.'),
    up: text('Tunnels that are up, of all, such as 2/3.', { maxLength: 63 }),
    conditions: CONDITIONS,
    failure: text('What keeps the gateway from working; absent when nothing does.', { maxLength: MAX_FAILURE_LENGTH }),
    failureReason: text('Its name, as in the list of reasons.', { maxLength: 63 }),
  },
  ['heartbeatTime', 'up', 'conditions', 'failure', 'failureReason'],
)

/** Gateway API and Istio use `gtw` and `gw`. */
const SHORT_NAMES = ['slgateway']

/** CRD of Gateway: the state of one node's lanes (model/objects.ts). It has only a status. */
export const GATEWAY = sealaneCrd({
  kind: 'Gateway',
  plural: 'gateways',
  shortNames: SHORT_NAMES,
  columns: [
    { name: 'Lane', type: 'integer', jsonPath: '.status.lanes[0].lane' },
    { name: 'Up', type: 'string', jsonPath: '.status.up' },
    { name: 'Ready', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
    { name: 'Reason', type: 'string', jsonPath: '.status.conditions[?(@.type=="Ready")].reason' },
    { name: 'Heard', type: 'date', jsonPath: '.status.heartbeatTime' },
    { name: 'Driver', type: 'string', jsonPath: '.status.lanes[0].driver' },
    { name: 'MTU', type: 'integer', jsonPath: '.status.lanes[0].mtu', priority: 1 },
    { name: 'Failure', type: 'string', jsonPath: '.status.failure' },
    { name: 'Version', type: 'string', jsonPath: '.status.version', priority: 1 },
  ],
  schema: objectSchema(
    'How the lanes of one node do. metadata.name is the name of the Node.',
    { status: gatewayStatus },
    [],
  ),
})

const reachedCluster = map('The way to one other cluster.', {
  cluster: dnsLabel('Cluster id.'),
  gateways: list('Nodes of this cluster that carry it now.', text('Name of a Node.', { maxLength: 253 }), 256),
  mtu: integer('Largest packet that gets there.', 0, 65_535),
})

// A pattern costs the API server less than CEL, and this list may change with every pod. Readers validate it anyway.
const podRange = text('A range of their addresses.', { pattern: '^[0-9a-f.:]{2,39}/\\d{1,3}$', maxLength: 43 })

const openConnections = map('Connections of its pods with pods of other clusters, over IPv4. Absent: not known.', {
  count: integer('How many there were, about.', 0, MAX_OPEN_CONNECTIONS),
  atLeast: flag('Not all were counted.'),
})

const routeAgentStatus = map(
  'Written by the routeagent of this node.',
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    clusters: list('Ways to other clusters.', reachedCluster, 4096),
    reached: text('Clusters that some gateway leads to, of all, such as 2/3.', { maxLength: 63 }),
    podRanges: list('Where the pods of this node are.', podRange, MAX_POD_RANGES),
    underlay: list('What this node needs outside the lanes.', podRange, MAX_REPORTED_BY_NODE),
    openConnections,
    silentNodes: list(
      'Nodes of this cluster that do not answer its probes over the overlay.',
      text('Name of a Node.', { maxLength: 253 }),
      MAX_SILENT_NODES,
    ),
    conditions: CONDITIONS,
    failure: text('What keeps the routeagent from working; absent when nothing does.', {
      maxLength: MAX_FAILURE_LENGTH,
    }),
    failureReason: text('Its name, as in the list of reasons.', { maxLength: 63 }),
  },
  ['reached', 'podRanges', 'underlay', 'openConnections', 'silentNodes', 'conditions', 'failure', 'failureReason'],
)

/** CRD of RouteAgent: the routes of one node to the other clusters (model/objects.ts). It has only a status. */
export const ROUTE_AGENT = sealaneCrd({
  kind: 'RouteAgent',
  plural: 'routeagents',
  shortNames: ['slroute'],
  columns: [
    { name: 'Reached', type: 'string', jsonPath: '.status.reached' },
    { name: 'Reason', type: 'string', jsonPath: '.status.conditions[?(@.type=="NodesAnswer")].reason' },
    { name: 'Failure', type: 'string', jsonPath: '.status.failure' },
    { name: 'Version', type: 'string', jsonPath: '.status.version', priority: 1 },
  ],
  schema: objectSchema(
    'Which ways one node has to the other clusters. metadata.name is the name of the Node.',
    { status: routeAgentStatus },
    [],
  ),
})

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

/** CRD of Membership: whether this cluster belongs to a clusterset (model/objects.ts). */
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
