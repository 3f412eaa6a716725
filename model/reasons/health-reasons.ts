/** Reasons that are found by looking at a member as a whole (explain/): of its parts, its nodes and what it reaches. */
import type { ReasonTable } from './reason-row.ts'

const STATUS = ['output of the command'] as const

export const HEALTH_REASONS = {
  NoMembership: {
    means: 'The cluster belongs to no clusterset.',
    todo: 'Run `sealane join`. If it has run, look at the log of the agent.',
    shows: STATUS,
  },
  LeavingClusterset: {
    means: 'The cluster is leaving its clusterset.',
    todo: 'Wait. `sealane leave` says what is left when it takes longer than a minute.',
    shows: STATUS,
  },
  OwnClusterMissing: {
    means: "The cluster's own Cluster object is not there, so that gateways do not know which addresses are theirs.",
    todo: 'Nothing, if it passes: the agent writes it again. Otherwise look at the log of the agent.',
    shows: STATUS,
  },
  PartMissing: {
    means: 'A part of Sealane is not installed in the cluster.',
    todo: 'Run `sealane join` again: it installs what is missing.',
    shows: STATUS,
  },
  PartNotReady: {
    means: 'Pods of a part of Sealane do not run, or are not ready; the message says how they stand.',
    todo: 'Look at the pods: `kubectl -n sealane-system describe pods`.',
    shows: STATUS,
  },
  VersionSkew: {
    means: 'Parts of Sealane are of different versions.',
    todo: 'Update all of them to one release: `sealane join` with the newer command. Neighbouring releases work together.',
    shows: STATUS,
  },
  DefinitionOutdated: {
    means:
      'A CustomResourceDefinition is older than the release that looks at it: fields that parts write may be lost.',
    todo: 'Run `sealane join` again with the newest command that the clusters of the clusterset have.',
    shows: STATUS,
  },
  OtherProduct: {
    means: 'Another product is installed that takes the objects of multicluster.x-k8s.io for its own.',
    todo: 'Keep one of the two: both would write the same ServiceImports and conditions.',
    shows: STATUS,
  },
  BrokerClockDiffers: {
    means:
      'The clocks of the broker and of the agent differ, and the certificates of both still count. Times that one says ' +
      'are wrong for the other, and from five minutes on a join is refused.',
    todo: 'Set the clock that is wrong. Where all members say so it is that of the broker.',
    shows: STATUS,
  },
  CommandClockDiffers: {
    means:
      "The clock of the machine that runs the command is not that of the cluster. Ages are counted by the cluster's.",
    todo: 'Set the clock that is wrong.',
    shows: STATUS,
  },
  AgentSilent: {
    means: 'No agent acts: nothing of this cluster is published, and nothing of the others is learnt. Lanes go on.',
    todo: 'Look at the pods of the agent; on a plain site see that `sealane up` runs on a gateway node.',
    shows: STATUS,
  },
  BrokerUnreached: {
    means: 'The agent has no connection to the broker: nothing new is published or learnt. Lanes and names go on.',
    todo: 'Check that the broker runs and that TCP to its address passes from the pods. The log of the agent has more.',
    shows: STATUS,
  },
  BrokerAddressFailing: {
    means: 'At an address of the broker nobody answered last; another address is in use.',
    todo: 'Look at the replicas of the broker, or take the address off where no broker is any more.',
    shows: STATUS,
  },
  CertificateEndsSoon: {
    means: "The cluster's certificate ends within hours and has not been renewed.",
    todo: 'See that the agent reaches the broker. After its end the cluster has to join again with a new token.',
    shows: STATUS,
  },
  NodeNotReady: {
    means: 'Kubernetes says that the node is not ready.',
    todo: 'Look at the node and its kubelet.',
    shows: STATUS,
  },
  AllClustersCutOff: {
    means: 'No other cluster is reached, by none of the gateways: mostly the cause is on this side.',
    todo: 'Check that UDP passes out of and into the gateway nodes, from port 4500 on, and that their uplink works.',
    shows: STATUS,
  },
  GatewayCutOff: {
    means: 'A gateway of this cluster has no link that is up, while another one has.',
    todo: 'Check that UDP passes out of and into that node, from port 4500 on.',
    shows: STATUS,
  },
  FarGatewayUnreached: {
    means: 'A gateway of another cluster is reached by no gateway of this one; another gateway there is.',
    todo: 'Look at that gateway: whether its node runs, and whether UDP passes to it.',
    shows: STATUS,
  },
  NeitherEndCallable: {
    means: 'Neither of the two gateways can be called from outside, so that no link can begin.',
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
    todo: 'Look for an overloaded line, or a longer way that packets take since.',
    shows: ['alert SealaneLinkSlow'],
  },
  RouteAgentMissing: {
    means: 'Nodes have no routeagent that reports, so that their pods may have no way to other clusters.',
    todo: 'Look at the pods of the routeagent on these nodes: a taint or a missing image keeps them away.',
    shows: STATUS,
  },
  NodesCutOff: {
    means: 'Nodes have no way to a cluster that gateways of this cluster reach.',
    todo: 'Check that UDP 4810 passes between these nodes and the gateways, and look at the RouteAgent objects.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  GatewayNodeSilent: {
    means: 'A gateway node does not answer nodes over the overlay; another one carries what it carried.',
    todo: 'Check that UDP 4810 passes between these nodes and that gateway node. The next loss cuts them off.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  GatewayNodeUnheard: {
    means:
      'A gateway node has not answered a node over the overlay since the routeagent there began. It is used all the same.',
    todo: 'Check that UDP 4810 passes between the two, and that no firewall drops UDP 4498 on the device sealane-vx.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  WorkerNodeSilent: {
    means: 'A node answered a gateway node over the overlay, and does not now.',
    todo: 'Look whether the node runs, and whether UDP 4810 passes between it and the gateway nodes.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  NodesAnswer: {
    means: 'All nodes that a node probes over the overlay answer.',
    todo: 'Nothing.',
    shows: ['condition NodesAnswer of RouteAgent'],
  },
  ImportsWithoutBackends: {
    means: 'Imported services have no pod that is ready in a cluster that is reached.',
    todo: 'Look where it is exported: at what its ServiceExport says (`AddressOutsidePods`), then at its pods.',
    shows: STATUS,
  },
  PolicyKeepsOut: {
    means:
      'NetworkPolicies select the pods of an exported service and let in nothing, or not all, of the other clusters.',
    todo: "Add ingress rules with an ipBlock for each range of their pods: `sealane show clusters` has them. A policy's namespaceSelector or podSelector never means pods of another cluster.",
    shows: STATUS,
  },
  PolicyKeepsIn: {
    means: 'NetworkPolicies let no pod of a namespace call other clusters, whose services are imported there.',
    todo: 'Nothing, if that is meant. Otherwise add egress rules with an ipBlock for each range of their pods.',
    shows: STATUS,
  },
  PolicyStopsPart: {
    means: 'A NetworkPolicy in `sealane-system` keeps a part of Sealane from what it needs.',
    todo: 'Leave the pods of Sealane out of that policy, or add rules for what the message names.',
    shows: STATUS,
  },
  RightMissing: {
    means: 'Whoever runs the command may not read something, so that nobody can say whether it is well.',
    todo: 'Give the right that the message names. ClusterRole `sealane-view` has those for the objects of Sealane.',
    shows: STATUS,
  },
  KindMissing: {
    means: 'The API server does not know a kind of object: its CustomResourceDefinition is missing.',
    todo: 'Run `sealane join` again: it brings the definition back, and the parts write their objects anew.',
    shows: STATUS,
  },
  NotAnswered: {
    means: 'A question was not answered in time, or not at all; the message says which.',
    todo: 'Look whether what was asked runs. Ask again with a longer `--timeout` where the way is slow.',
    shows: STATUS,
  },
  NotReadable: {
    means: 'An answer, an object or a file cannot be used as it is; the message names the field.',
    todo: 'Look at it. Mostly another program wrote it, or a release that this command does not know.',
    shows: STATUS,
  },
  NothingRuns: {
    means: 'No part of Sealane runs on this machine where the command asked, so that only the state folder was read.',
    todo: 'Run the command on a gateway node of the site, or name the address with `--ask`.',
    shows: STATUS,
  },
} as const satisfies ReasonTable
