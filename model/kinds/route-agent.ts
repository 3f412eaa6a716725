/** The description of RouteAgent. */
import {
  MAX_FAILURE_LENGTH,
  MAX_OPEN_CONNECTIONS,
  MAX_PODS_OUTSIDE,
  MAX_POD_RANGES,
  MAX_REPORTED_BY_NODE,
  MAX_SILENT_NODES,
} from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { type Described, dnsLabel, flag, integer, list, map, object, text, timestamp } from './fields.ts'

const REACHED_CLUSTER = map(
  {
    cluster: dnsLabel('Id of the other cluster.'),
    gateways: list(
      text('Name of a Node.', { maxLength: 253 }),
      'Gateway nodes of this cluster that currently carry the traffic.',
      256,
    ),
    mtu: integer(0, 65_535, 'Size of the largest packet that reaches the other cluster, in bytes.'),
  },
  'The route to one other cluster.',
)

// A pattern costs the API server less than CEL, and this list may change with every pod. Readers validate it anyway.
const POD_RANGE = text('An address range.', { pattern: '^[0-9a-f.:]{2,39}/\\d{1,3}$', maxLength: 43 })

const OPEN_CONNECTIONS = map(
  {
    /** 0 to MAX_OPEN_CONNECTIONS. */
    count: integer(0, MAX_OPEN_CONNECTIONS, 'Approximate number of connections.'),
    /** True if not all were counted: there may be more. */
    atLeast: flag('True if not all connections were counted.'),
  },
  'IPv4 connections between pods of this node and pods of other clusters; absent if unknown.',
)
export type OpenConnections = Described<typeof OPEN_CONNECTIONS>

const STATUS = map(
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    clusters: list(REACHED_CLUSTER, 'Routes to other clusters.', 4096),
    /** Clusters that at least one gateway leads to, of all: `2/3`. For `kubectl get`, which cannot count. */
    reached: text('Number of clusters that are reachable through a gateway, of the total, such as 2/3.', {
      maxLength: 63,
    }).optional(),
    /**
     * The ranges of this node's pods, IPv4 first, sorted: model/addresses/pod-ranges.ts. Absent from earlier releases.
     */
    podRanges: list(POD_RANGE, 'Address ranges of the pods of this node.', MAX_POD_RANGES).optional(),
    /**
     * What this node needs outside the lanes: its network, default gateways, name servers. Absent from earlier
     * releases.
     */
    underlay: list(
      POD_RANGE,
      'Addresses that this node must reach directly, not through lanes: its networks, default gateways and name servers.',
      MAX_REPORTED_BY_NODE,
    ).optional(),
    /**
     * Addresses of pods of this node outside the pod CIDRs of the cluster, sorted, one of each network: a rollout does
     * not change them. Absent if there are none, and from earlier releases.
     */
    podsOutside: list(
      text('An address.', { pattern: '^[0-9a-f.:]{2,39}$', maxLength: 39 }),
      'Addresses of pods of this node outside the pod CIDRs of the cluster, one of each network.',
      MAX_PODS_OUTSIDE,
    ).optional(),
    /**
     * RFC 3339: when the routeagent last looked for such pods, at least every ROUTE_AGENT_BEAT_MS. It proves that
     * podsOutside is not what a dead process has left. Absent without podsOutside, and from earlier releases.
     */
    podsOutsideTime: timestamp(
      'Time of podsOutside. The routeagent updates it every few minutes; if it is old, podsOutside is out of date.',
    ).optional(),
    /** The UDP port of the overlay device. Absent from earlier releases, which have 4810. */
    overlayPort: integer(1, 65_535, 'UDP port of the overlay on this node.').optional(),
    /** Connections of this node's pods with pods of other clusters. Absent if not known, as from earlier releases. */
    openConnections: OPEN_CONNECTIONS.optional(),
    /**
     * RFC 3339: the time of a write, at least every ROUTE_AGENT_BEAT_MS. It proves that the figures are not what a dead
     * process has left. Absent without openConnections and podsOutside, and from earlier releases.
     */
    heartbeatTime: timestamp(
      'Time of an update. The routeagent updates it every few minutes; if it is old, the status is out of date.',
    ).optional(),
    /** Nodes of this cluster that do not answer this node's probes over the overlay. Absent if none is known. */
    silentNodes: list(
      text('Name of a Node.', { maxLength: 253 }),
      'Nodes of this cluster that do not answer the probes of this node over the overlay.',
      MAX_SILENT_NODES,
    ).optional(),
    conditions: CONDITIONS.optional(),
    failure: text('Failure of the routeagent; absent if it works.', {
      maxLength: MAX_FAILURE_LENGTH,
    }).optional(),
    /** The reason code of the failure (model/reasons). Absent from earlier releases. */
    failureReason: text('Reason code of the failure.', { maxLength: 63 }).optional(),
  },
  'State of the routes. Written by the routeagent of this node.',
)

/** Written by the routeagent process of one node, status only. Cluster-scoped; metadata.name is the node. */
export const ROUTE_AGENT_FIELDS = object(
  'Routes of one node to the other clusters. metadata.name is the name of the Node.',
  { status: STATUS.optional() },
)
