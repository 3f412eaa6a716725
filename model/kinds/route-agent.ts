/** The description of RouteAgent. */
import {
  MAX_FAILURE_LENGTH,
  MAX_OPEN_CONNECTIONS,
  MAX_POD_RANGES,
  MAX_REPORTED_BY_NODE,
  MAX_SILENT_NODES,
} from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import { type Described, dnsLabel, flag, integer, list, map, object, text } from './fields.ts'

const REACHED_CLUSTER = map(
  {
    cluster: dnsLabel('Cluster id.'),
    gateways: list(text('Name of a Node.', { maxLength: 253 }), 'Nodes of this cluster that carry it now.', 256),
    mtu: integer(0, 65_535, 'Largest packet that gets there.'),
  },
  'The way to one other cluster.',
)

// A pattern costs the API server less than CEL, and this list may change with every pod. Readers validate it anyway.
const POD_RANGE = text('A range of their addresses.', { pattern: '^[0-9a-f.:]{2,39}/\\d{1,3}$', maxLength: 43 })

const OPEN_CONNECTIONS = map(
  {
    /** 0 to MAX_OPEN_CONNECTIONS. */
    count: integer(0, MAX_OPEN_CONNECTIONS, 'How many there were, about.'),
    /** True if not all were counted: there may be more. */
    atLeast: flag('Not all were counted.'),
  },
  'Connections of its pods with pods of other clusters, over IPv4. Absent: not known.',
)
export type OpenConnections = Described<typeof OPEN_CONNECTIONS>

const STATUS = map(
  {
    version: text('Version of Sealane on this node.', { maxLength: 63 }),
    clusters: list(REACHED_CLUSTER, 'Ways to other clusters.', 4096),
    /** Clusters that at least one gateway leads to, of all: `2/3`. For `kubectl get`, which cannot count. */
    reached: text('Clusters that some gateway leads to, of all, such as 2/3.', { maxLength: 63 }).optional(),
    /**
     * The ranges of this node's pods, IPv4 first, sorted: model/addresses/pod-ranges.ts. Absent from earlier releases.
     */
    podRanges: list(POD_RANGE, 'Where the pods of this node are.', MAX_POD_RANGES).optional(),
    /**
     * What this node needs outside the lanes: its network, default gateways, name servers. Absent from earlier
     * releases.
     */
    underlay: list(POD_RANGE, 'What this node needs outside the lanes.', MAX_REPORTED_BY_NODE).optional(),
    /** Connections of this node's pods with pods of other clusters. Absent if not known, as from earlier releases. */
    openConnections: OPEN_CONNECTIONS.optional(),
    /** Nodes of this cluster that do not answer this node's probes over the overlay. Absent if none is known. */
    silentNodes: list(
      text('Name of a Node.', { maxLength: 253 }),
      'Nodes of this cluster that do not answer its probes over the overlay.',
      MAX_SILENT_NODES,
    ).optional(),
    conditions: CONDITIONS.optional(),
    failure: text('What keeps the routeagent from working; absent when nothing does.', {
      maxLength: MAX_FAILURE_LENGTH,
    }).optional(),
    /** The reason code of the failure (model/reasons). Absent from earlier releases. */
    failureReason: text('Its name, as in the list of reasons.', { maxLength: 63 }).optional(),
  },
  'Written by the routeagent of this node.',
)

/** Written by the routeagent process of one node, status only. Cluster-scoped; metadata.name is the node. */
export const ROUTE_AGENT_FIELDS = object(
  'Which ways one node has to the other clusters. metadata.name is the name of the Node.',
  { status: STATUS.optional() },
)
