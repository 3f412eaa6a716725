/** Reasons that are found by looking at a member as a whole (explain/): of its parts, its nodes and what it reaches. */
import type { ReasonTable } from './reason-row.ts'

const STATUS = ['output of the command'] as const

export const HEALTH_REASONS = {
  NoMembership: {
    means: 'The cluster belongs to no clusterset.',
    todo: 'Run `sealane join`. If you did, check the log of the agent.',
    shows: STATUS,
  },
  LeavingClusterset: {
    means: 'The cluster is leaving its clusterset.',
    todo: 'Wait. If it takes longer than a minute, `sealane leave` says what is left.',
    shows: STATUS,
  },
  OwnClusterMissing: {
    means: "This cluster's own Cluster object is missing, so gateways do not know its addresses.",
    todo: 'The agent writes it again. If it lasts, check the log of the agent.',
    shows: STATUS,
  },
  PartMissing: {
    means: 'A part of Sealane is not installed.',
    todo: 'Run `sealane join` again: it installs what is missing.',
    shows: STATUS,
  },
  PartNotReady: {
    means: 'Pods of a part of Sealane do not run, or are not ready.',
    todo: 'Look at the pods: `kubectl -n sealane-system describe pods`.',
    shows: STATUS,
  },
  VersionSkew: {
    means: 'Parts of Sealane have different versions.',
    todo: 'Run `sealane join` with the newer command to update all. Neighbouring releases work together.',
    shows: STATUS,
  },
  DefinitionOutdated: {
    means: 'A CustomResourceDefinition is older than this release, so fields may be lost.',
    todo: 'Run `sealane join` again with the newest command that the clusters of the clusterset have.',
    shows: STATUS,
  },
  OtherProduct: {
    means: 'Another installed product manages multicluster.x-k8s.io objects, too.',
    todo: 'Keep one of the two: both would write the same ServiceImports and conditions.',
    shows: STATUS,
  },
  BrokerClockDiffers: {
    means:
      'The clocks of the broker and the agent differ, but the certificates are valid for both. From five minutes on, the broker refuses joins.',
    todo: 'Set the clock that is wrong. If all members report it, that is the clock of the broker.',
    shows: STATUS,
  },
  CommandClockDiffers: {
    means: "The clock of the machine that runs the command differs from the cluster's. Ages use the cluster's clock.",
    todo: 'Set the clock that is wrong.',
    shows: STATUS,
  },
  AgentSilent: {
    means: 'No agent is active: this cluster publishes and learns nothing. Lanes keep working.',
    todo: 'Check the pods of the agent. On a plain site, check that `sealane up` runs on a gateway node.',
    shows: STATUS,
  },
  BrokerUnreached: {
    means:
      'The agent has no connection to the broker, so nothing new is published or learnt. Lanes and names keep working.',
    todo: 'Check that the broker runs and that pods reach its address by TCP. The log of the agent has more.',
    shows: STATUS,
  },
  BrokerAddressFailing: {
    means: 'One address of the broker does not answer; the agent uses another.',
    todo: 'Check the replicas of the broker, or remove the address if no broker is there any more.',
    shows: STATUS,
  },
  CertificateEndsSoon: {
    means: "The cluster's certificate expires within hours and has not been renewed.",
    todo: 'Check that the agent reaches the broker. After it expires, join again with a new token.',
    shows: STATUS,
  },
  NodeNotReady: {
    means: 'Kubernetes reports the node as not ready.',
    todo: 'Check the node and its kubelet.',
    shows: STATUS,
  },
  AllClustersCutOff: {
    means: 'No gateway reaches any other cluster: the cause is mostly on this side.',
    todo: 'Check that UDP passes in and out of the gateway nodes, from port 4500 on, and that their uplink works.',
    shows: STATUS,
  },
  GatewayCutOff: {
    means: 'A gateway of this cluster has no link that is up, but another one has.',
    todo: 'Check that UDP passes in and out of that node, from port 4500 on.',
    shows: STATUS,
  },
  FarGatewayUnreached: {
    means: 'No gateway of this cluster reaches one gateway of another cluster; another gateway there is reached.',
    todo: 'Check that its node runs, and that UDP passes to it.',
    shows: STATUS,
  },
  NeitherEndCallable: {
    means: 'Both gateways are behind address translation or a firewall, so no link can start.',
    todo: 'Open the UDP port of one of the two, or forward it to the gateway and state the public address.',
    shows: STATUS,
  },
  LinkLossy: {
    means: 'A tenth or more of the probes of a link get no answer.',
    todo: 'Look for an overloaded line or CPU between the two gateways.',
    shows: STATUS,
  },
  LinkSlow: {
    means: 'The round trip of a link takes more than twice what it took over the last day.',
    todo: 'Look for an overloaded line, or a longer route.',
    shows: ['alert SealaneLinkSlow'],
  },
  RouteAgentMissing: {
    means: 'Nodes have no reporting routeagent, so their pods may have no route to other clusters.',
    todo: 'Check the routeagent pods of these nodes: a taint or a missing image keeps them away.',
    shows: STATUS,
  },
  NodesCutOff: {
    means: 'Nodes have no route to a cluster that the gateways of this cluster reach.',
    todo: 'Check that UDP 4810 passes between these nodes and the gateways, and check the RouteAgent objects.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  GatewayNodeSilent: {
    means: 'A gateway node does not answer nodes over the overlay; another one carries its traffic.',
    todo: 'Check that UDP 4810 passes between these nodes and that gateway node. The next loss cuts them off.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  GatewayNodeUnheard: {
    means:
      'A gateway node has not answered a node over the overlay since the routeagent there started. Sealane uses it anyway.',
    todo: 'Check that UDP 4810 passes between the two, and that no firewall drops UDP 4498 on the device sealane-vx.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  WorkerNodeSilent: {
    means: 'A node has stopped answering a gateway node over the overlay.',
    todo: 'Check that the node runs, and that UDP 4810 passes between it and the gateway nodes.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  NodesAnswer: {
    means: 'All nodes that a node probes over the overlay answer.',
    todo: 'Nothing.',
    shows: ['condition NodesAnswer of RouteAgent'],
  },
  ImportsWithoutBackends: {
    means: 'Imported services have no ready pod in a cluster that is reached.',
    todo: 'In the exporting cluster, check the ServiceExport (`AddressOutsidePods`), then its pods.',
    shows: STATUS,
  },
  PolicyKeepsOut: {
    means: 'NetworkPolicies on the pods of an exported service block some or all other clusters.',
    todo: 'Add ingress rules with an ipBlock for each range of their pods (`sealane show clusters`). A namespaceSelector or podSelector never matches pods of another cluster.',
    shows: STATUS,
  },
  PolicyKeepsIn: {
    means:
      'NetworkPolicies stop the pods of a namespace from calling other clusters, whose services are imported there.',
    todo: 'Nothing, if intended. Otherwise add egress rules with an ipBlock for each range of their pods.',
    shows: STATUS,
  },
  PolicyStopsPart: {
    means: 'A NetworkPolicy in `sealane-system` blocks a part of Sealane.',
    todo: 'Exclude the pods of Sealane from that policy, or add rules for what the message names.',
    shows: STATUS,
  },
  RightMissing: {
    means: 'The user of the command lacks a right, so the command cannot check something.',
    todo: 'Grant the right that the message names. ClusterRole `sealane-view` has those for the objects of Sealane.',
    shows: STATUS,
  },
  KindMissing: {
    means: 'The API server does not know a kind of object: its CustomResourceDefinition is missing.',
    todo: 'Run `sealane join` again: it restores the definition, and the parts write their objects again.',
    shows: STATUS,
  },
  NotAnswered: {
    means: 'A question got no answer in time; the message says which.',
    todo: 'Check that the target runs. On a slow network, ask again with a longer `--timeout`.',
    shows: STATUS,
  },
  NotReadable: {
    means: 'An answer, an object or a file is not valid; the message names the field.',
    todo: 'Check it. Mostly another program or an unknown release wrote it.',
    shows: STATUS,
  },
  NothingRuns: {
    means: 'No part of Sealane runs on this machine where the command asked, so it read only the state folder.',
    todo: 'Run the command on a gateway node of the site, or name the address with `--ask`.',
    shows: STATUS,
  },
} as const satisfies ReasonTable
