/** Reasons found by examining a member as a whole (explain/): its components, its nodes and what it reaches. */
import type { ReasonTable } from './reason-row.ts'

const STATUS = ['output of the command'] as const

export const HEALTH_REASONS = {
  NoMembership: {
    means: 'The cluster belongs to no clusterset.',
    todo: 'Run `sealane join`. If you did, check the log of the agent.',
    todoAtSite: 'Join: `sealane join --site site.yaml --token-file FILE`.',
    shows: STATUS,
  },
  SiteNotStarted: {
    means: 'The site has joined, but no part of it has run since.',
    todo: 'Start `sealane up --site site.yaml --node NAME` on a gateway node, then on the other nodes.',
    shows: STATUS,
  },
  LeavingClusterset: {
    means: 'The cluster is leaving its clusterset.',
    todo: 'Wait. If it takes longer than a minute, `sealane leave` says what is left.',
    shows: STATUS,
  },
  AllPodsExposed: {
    means: 'All members may call all pods of this cluster.',
    todo: 'Expose only exported services: `sealane join --expose exports`.',
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
    todoAtSite: 'Look at its service: `systemctl status` of the unit that runs `sealane up`, and its log.',
    shows: STATUS,
  },
  MaxUnavailableRaised: {
    means: 'A DaemonSet of Sealane has the higher maxUnavailable that a join gave it for one roll-out.',
    todo: 'Nothing while a join runs. Otherwise run `sealane join` again: it restores the value.',
    shows: STATUS,
  },
  VersionSkew: {
    means: 'Parts of Sealane have different versions.',
    todo: 'Run `sealane join` with the newer command to update all. Neighbouring releases work together.',
    todoAtSite: 'Install the newer release on each machine, and restart `sealane up` there, one machine at a time.',
    shows: STATUS,
  },
  DefinitionOutdated: {
    means: 'A CustomResourceDefinition is older than this release, so fields may be lost.',
    todo: 'Run `sealane join` again with the newest command in the clusterset.',
    shows: STATUS,
  },
  OtherProduct: {
    means: 'Another installed product manages multicluster.x-k8s.io objects, too.',
    todo: 'Keep one of the two: both would write the same ServiceImports and conditions.',
    shows: STATUS,
  },
  BrokerClockDiffers: {
    means: 'The clocks of broker and agent differ. From five minutes on, the broker refuses joins.',
    todo: 'Set the wrong clock: if all members report it, that of the broker.',
    shows: STATUS,
  },
  CommandClockDiffers: {
    means: "This machine's clock differs from the cluster's, which ages use.",
    todo: 'Set the clock that is wrong.',
    shows: STATUS,
  },
  AgentSilent: {
    means: 'No agent is active: this cluster publishes and learns nothing. Lanes keep working.',
    todo: 'Check the pods of the agent; on a plain site, that `sealane up` runs on a gateway node.',
    todoAtSite: 'Check that `sealane up` runs on a gateway node: `systemctl status` of its unit, and its log.',
    shows: STATUS,
  },
  BrokerUnreached: {
    means:
      'The agent has no connection to the broker. Nothing new is published or learnt; lanes and names keep working.',
    todo: "Check that the broker runs, that pods reach it by TCP, and the agent's log.",
    todoAtSite:
      'Check that the broker runs and that the gateway nodes reach its address by TCP. The log of `sealane up` has more.',
    shows: STATUS,
  },
  BrokerAddressFailing: {
    means: 'One address of the broker does not answer; the agent uses another.',
    todo: "Check the broker's replicas, or remove the address if no broker is left there.",
    shows: STATUS,
  },
  CertificateEndsSoon: {
    means: "The cluster's certificate expires within hours and has not been renewed.",
    todo: 'Check that the agent reaches the broker.',
    shows: STATUS,
  },
  NodeNotReady: {
    means: 'Kubernetes reports the node as not ready.',
    todo: 'Check the node and its kubelet.',
    shows: STATUS,
  },
  AllClustersCutOff: {
    means: 'No gateway reaches any other cluster: the cause is mostly on this side.',
    todo: 'Check the uplink of the gateway nodes, and that UDP passes in and out, from port 4500 on.',
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
    todo: 'Open the UDP port of one of them and state its public address, or let a reachable member relay (`--relay`).',
    shows: STATUS,
  },
  LinkLossy: {
    means: 'A tenth or more of the probes of a link get no answer.',
    todo: 'Look for an overloaded line or CPU between the two gateways.',
    shows: STATUS,
  },
  LinkSlow: {
    means: 'The round trip of a link takes more than twice that of the last day.',
    todo: 'Look for an overloaded line, or a longer route.',
    shows: ['alert SealaneLinkSlow'],
  },
  RouteAgentMissing: {
    means: 'Nodes have no reporting routeagent: their pods may have no route to other clusters.',
    todo: 'Check the routeagent pods there: a taint or a missing image keeps them away.',
    todoAtSite: 'Start `sealane up --node NAME` on these nodes, or look at the log of its unit there.',
    shows: STATUS,
  },
  NodeWithoutRouteAgent: {
    means: 'The pod is on a virtual node or one without Linux, where no routeagent runs.',
    todo: 'Run it on a Linux machine. If the node is one: `kubectl label node NODE sealane.io/machine=true`.',
    shows: STATUS,
  },
  RouteAgentSilent: {
    means: 'A routeagent has not renewed its status for a quarter of an hour: its figures no longer count.',
    todo: 'Check the sealane-routeagent pod on that node.',
    todoAtSite: 'Check that `sealane up` runs on that node.',
    shows: STATUS,
  },
  NodesCutOff: {
    means: 'Nodes have no route to a cluster that the gateways of this cluster reach.',
    todo: 'Check that UDP 4810 (or `spec.overlay.port`) passes between these nodes and the gateways, and the RouteAgent objects.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  OverlayPortDiffers: {
    means: 'The overlay of a node has another UDP port than others.',
    todo: 'If it lasts, give every node the same `spec.overlay.port`, and restart the routeagent there.',
    shows: STATUS,
  },
  GatewayNodeSilent: {
    means: 'A gateway node does not answer nodes over the overlay; another one carries its traffic.',
    todo: 'Check that UDP 4810 (or `spec.overlay.port`) passes between them. The next loss cuts the nodes off.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  GatewayNodeUnheard: {
    means: 'A gateway node that is used has never answered a node over the overlay since its routeagent started.',
    todo: 'Check that UDP 4810 (or `spec.overlay.port`) passes between the two, and UDP 4498 on sealane-vx.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  WorkerNodeSilent: {
    means: 'A node has stopped answering a gateway node over the overlay.',
    todo: 'Check that the node runs, and that UDP 4810 (or `spec.overlay.port`) passes between it and the gateway nodes.',
    shows: ['condition NodesAnswer of RouteAgent', ...STATUS],
  },
  NodesAnswer: {
    means: 'All nodes that a node probes over the overlay answer.',
    todo: 'Nothing.',
    shows: ['condition NodesAnswer of RouteAgent'],
  },
  ImportsWithoutBackends: {
    means: 'Imported services have no ready pod in a reached cluster.',
    todo: 'In the exporting cluster, check the ServiceExport (`AddressOutsidePods`), then its pods.',
    shows: STATUS,
  },
  PolicyKeepsOut: {
    means: 'NetworkPolicies on the pods of an exported service block some or all other clusters.',
    todo: 'Add ingress rules with an ipBlock for each range of their pods (`sealane show clusters`). A namespaceSelector or podSelector never matches pods of another cluster.',
    shows: STATUS,
  },
  PolicyKeepsIn: {
    means: 'NetworkPolicies stop pods of a namespace from calling other clusters, whose services it imports.',
    todo: 'Nothing, if intended. Otherwise add egress rules with an ipBlock for each range of their pods.',
    shows: STATUS,
  },
  PolicyStopsPart: {
    means: 'A NetworkPolicy in `sealane-system` blocks a part of Sealane.',
    todo: 'Exclude the pods of Sealane from that policy, or add rules.',
    shows: STATUS,
  },
  RightMissing: {
    means: 'The user of the command lacks a right, so the command cannot check something.',
    todo: 'Grant it. ClusterRole `sealane-view` has the rights for objects of Sealane.',
    shows: STATUS,
  },
  KindMissing: {
    means: 'A CustomResourceDefinition is missing.',
    todo: 'Run `sealane join` again: it restores the definition, and the parts their objects.',
    shows: STATUS,
  },
  NotAnswered: {
    means: 'A question got no answer in time.',
    todo: 'Check that the target runs. On a slow network, ask again with a longer `--timeout`.',
    shows: STATUS,
  },
  NotReadable: {
    means: 'An answer, an object or a file is not valid.',
    todo: 'Check it. Mostly another program or an unknown release wrote it.',
    shows: STATUS,
  },
  NothingRuns: {
    means: 'No part of Sealane answers on this machine: the command read only the state folder.',
    todo: 'Run the command on a gateway node, or name the address with `--ask`.',
    shows: STATUS,
  },
} as const satisfies ReasonTable

const DIAGNOSE = ['output of the command'] as const

/** Reasons found by probing more than objects: kernels and servers, from several ends. */
export const PROBE_REASONS = {
  NameUnknown: {
    means: 'This cluster imports no service of the given name.',
    todo: 'Check the name with `sealane show services`. If it is exported, run `sealane explain` with `--to-context`.',
    shows: ['output of the command'],
  },
  PortUnknown: {
    means: 'The service has no port of the given number and protocol.',
    todo: 'Name one of its ports; `/udp` after the port if it is UDP.',
    shows: ['output of the command'],
  },
  FarSideNotAsked: {
    means: 'Only the other cluster knows what `sealane explain` cannot say here.',
    todo: 'Run it again with `--to-context` or `--to-site`.',
    shows: ['output of the command'],
  },
  FirewallDrops: {
    means: 'A firewall on the node drops packets that Sealane needs.',
    todo: 'Allow these packets in that table and chain. No table of Sealane can undo a drop.',
    shows: DIAGNOSE,
  },
  ForwardingOff: {
    means: 'The kernel of the node does not forward packets of pods.',
    todo: 'Find what sets forwarding to 0, often in `/etc/sysctl.d`. Sealane restores its own devices only.',
    shows: DIAGNOSE,
  },
  DeviceSettingsDiffer: {
    means: 'A kernel setting of a Sealane device differs from what Sealane sets.',
    todo: 'Find what sets it, often a file in `/etc/sysctl.d`. Sealane sets it again.',
    shows: DIAGNOSE,
  },
  StrictReversePath: {
    means: 'The kernel checks sources strictly on a Sealane device, and drops what comes by another gateway.',
    todo: 'Find what sets `rp_filter` to 1, often in `/etc/sysctl.d`. 2 is strict enough.',
    shows: DIAGNOSE,
  },
  KernelSetFault: {
    means:
      'With AVX2, this kernel fails at nftables sets of concatenated ranges. Sealane has none, but CNIs and firewalls may.',
    todo: 'Update the kernel to 6.18.24, 6.19.14 or later.',
    shows: DIAGNOSE,
  },
  KernelTableMissing: {
    means: 'Something keeps removing an nftables table of Sealane.',
    todo: 'Find what flushes the whole ruleset, often `nftables.service`: it must flush its own tables only.',
    shows: DIAGNOSE,
  },
  KernelRoutesMissing: {
    means: 'Something keeps removing the kernel route to a cluster whose link is up.',
    todo: 'Find the program that removes routes, with `ip monitor route` on that node.',
    shows: DIAGNOSE,
  },
  PortTaken: {
    means: 'Another program has a UDP port that Sealane needs.',
    todo: 'Stop that program, or move it to another port. Sealane then takes the port.',
    shows: DIAGNOSE,
  },
  ConnectionTableFull: {
    means: 'The connection tracking table of the kernel is full, or nearly: it drops new connections.',
    todo: 'Raise `net.netfilter.nf_conntrack_max`, and find who opens so many connections.',
    shows: DIAGNOSE,
  },
  DiskFull: {
    means: 'The disk or quota of a folder that Sealane writes to is full, or nearly.',
    todo: 'Free some space. Sealane retries.',
    shows: [...DIAGNOSE, 'log of every component at a site'],
  },
  DiskReadOnly: {
    means: 'A folder of Sealane is on a read-only file system.',
    todo: 'Check the kernel log for disk errors, repair the disk, and mount it for writing.',
    shows: [...DIAGNOSE, 'log of every component at a site'],
  },
  FilesNearlyOut: {
    means: 'A process has nearly reached its limit of open files and sockets.',
    todo: 'Raise the limit, and report it: it should need a few hundred.',
    shows: DIAGNOSE,
  },
  HairpinOff: {
    means: 'A backend that calls its own service gets no answer: its bridge port is not in hairpin mode.',
    todo: 'Set `hairpinMode` of the CNI, or run the command of the text.',
    shows: [...DIAGNOSE, 'log of the routeagent'],
  },
  DnsServerSilent: {
    means: 'A server for clusterset names does not answer.',
    todo: 'Check that it runs and listens there, and that a firewall lets UDP and TCP 53 pass.',
    shows: DIAGNOSE,
  },
  DnsServerFails: {
    means: 'A server for clusterset names gives a wrong answer.',
    todo: 'Check its log. SERVFAIL: it has not read the services. REFUSED: another program answers.',
    shows: DIAGNOSE,
  },
  DnsUpstreamSilent: {
    means: 'An upstream server for names outside the clusterset does not answer.',
    todo: 'Correct `dns.upstreams`, or check that server.',
    shows: DIAGNOSE,
  },
  DnsLoop: {
    means: 'The DNS forwards names to a server that forwards them back.',
    todo: 'Name a server in `dns.upstreams` that does not forward to this one.',
    shows: DIAGNOSE,
  },
  ResolverSettings: {
    means: 'Names of the clusterset resolve slowly or ambiguously with these settings.',
    todo: 'Change them as the text says (`dnsConfig` of pods).',
    shows: DIAGNOSE,
  },
  BrokerImpaired: {
    means: 'The broker reports a fault of its store, its replicas or its authority.',
    todo: 'Run `sealane broker status`.',
    shows: ['output of the command'],
  },
  BrokerSilent: {
    means: 'No address of the broker answers from here.',
    todo: 'Check that the broker runs, and that TCP to its port passes from here.',
    shows: DIAGNOSE,
  },
  BrokerNoTls: {
    means: 'The address of the broker accepts TCP, but does not speak the TLS of a broker.',
    todo: 'Find what listens there: a proxy, or another program.',
    shows: DIAGNOSE,
  },
  BrokerLate: {
    means: 'The broker accepts connections, but does not complete the TLS handshake in time.',
    todo: 'Check whether the broker hangs or is overloaded, or a proxy interferes.',
    shows: [...DIAGNOSE, 'log of the agent'],
  },
  ProxyRefused: {
    means: 'The proxy does not answer, or does not connect to the broker or to a relay on port 443.',
    todo: "Check `HTTPS_PROXY` and its password, let the proxy CONNECT to the broker's port, or name the broker in `NO_PROXY`.",
    shows: [...DIAGNOSE, 'log of the agent', 'log of the gateway'],
  },
  ProxyAuthUnsupported: {
    means: 'The proxy wants NTLM, Negotiate or another scheme. Sealane supports basic authentication only.',
    todo: 'Let the proxy take a user and password, put a local proxy in front, or use `NO_PROXY`.',
    shows: [...DIAGNOSE, 'log of the agent', 'log of the gateway'],
  },
  UdpOneWay: {
    means: 'Packets of the links to a cluster pass in one direction only.',
    todo: 'Open the named UDP port in the firewall of the named end.',
    shows: DIAGNOSE,
  },
  NeitherEndHears: {
    means: 'Neither end of the links between two members receives packets of the other.',
    todo: 'Open the named UDP port at one of the two ends, in and out.',
    shows: DIAGNOSE,
  },
  LinkEndsDiffer: {
    means: 'The two ends of a link report different states.',
    todo: 'Run the command again. If it lasts, check that both know the same gateways (`sealane show endpoints`).',
    shows: DIAGNOSE,
  },
  MemberMissing: {
    means: 'One of two members of a clusterset does not know the other.',
    todo: 'Check its agent: the connection to the broker, and what its log refuses.',
    shows: DIAGNOSE,
  },
  RecordsDiffer: {
    means: 'A member has outdated ranges or gateways of another.',
    todo: 'Check the connection of both to the broker.',
    shows: DIAGNOSE,
  },
  ImportsMissing: {
    means: 'A member does not import services that the other exports.',
    todo: 'Create their namespaces where you want them. The condition `sealane.io/Imported` of the exports says more.',
    shows: DIAGNOSE,
  },
  ClustersetsDiffer: {
    means: 'The two clusters are not in the same clusterset, so they cannot be compared.',
    todo: 'Name clusters of one clusterset.',
    shows: DIAGNOSE,
  },
  MemberTwice: {
    means: 'Two of the named clusters are the same member.',
    todo: 'Name each once. If there are two, one is a copy: join one of them again.',
    shows: DIAGNOSE,
  },
} as const satisfies ReasonTable
