/** CRD of RouteAgent: which ways one node has to the other clusters (model/objects.ts). Status only. */
import { MAX_REPORTED_BY_NODE } from '../../model/addresses/needed-ranges.ts'
import { MAX_POD_RANGES } from '../../model/addresses/pod-ranges.ts'
import { MAX_OPEN_CONNECTIONS } from '../../model/open-connections.ts'
import { MAX_FAILURE_LENGTH, MAX_SILENT_NODES } from '../../model/status-text.ts'
import { CONDITIONS } from './condition-schema.ts'
import { objectSchema } from './custom-resource.ts'
import { dnsLabel, flag, integer, list, map, text } from './schema.ts'
import { sealaneCrd } from './sealane-kind.ts'

const reachedCluster = map('The way to one other cluster.', {
  cluster: dnsLabel('Cluster id.'),
  gateways: list('Nodes of this cluster that carry it now.', text('Name of a Node.', { maxLength: 253 }), 256),
  mtu: integer('Largest packet that gets there.', 0, 65_535),
})

// A pattern costs the API server less than CEL, and this list may change with every pod. Readers check it anyway.
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
