/** Reasons that are found by looking closer than at objects: at kernels, at servers that are asked, from several ends. */
import type { ReasonTable } from './reason-row.ts'

const DIAGNOSE = ['output of the command'] as const

export const PROBE_REASONS = {
  FirewallDrops: {
    means: 'A firewall on the node drops packets that Sealane needs; the message says where.',
    todo: 'Allow these packets in the table and chain that the message names. No table of Sealane can undo a drop.',
    shows: DIAGNOSE,
  },
  ForwardingOff: {
    means: 'The kernel of the node does not forward packets, so pods reach no other cluster through it.',
    todo: 'Find what sets the settings that the message names to 0, often a file in `/etc/sysctl.d`. Sealane restores `net.ipv4.ip_forward` and those of its own devices, but not those of the CNI and the uplink.',
    shows: DIAGNOSE,
  },
  DeviceSettingsDiffer: {
    means: 'A kernel setting of a Sealane device differs from what Sealane sets.',
    todo: 'Find what sets it, often a file in `/etc/sysctl.d` or a program that follows devices. Sealane sets it again.',
    shows: DIAGNOSE,
  },
  StrictReversePath: {
    means: 'The kernel checks sources strictly on a Sealane device, and drops what comes by another gateway.',
    todo: 'Find what sets `rp_filter` to 1 on all devices, often a file in `/etc/sysctl.d`. 2 is strict enough.',
    shows: DIAGNOSE,
  },
  KernelTableMissing: {
    means: 'Something keeps removing an nftables table of a part that works.',
    todo: 'Find the program that flushes the whole ruleset, often `nftables.service`, and have it flush its own tables.',
    shows: DIAGNOSE,
  },
  KernelRoutesMissing: {
    means: 'Something keeps removing the kernel route to a cluster whose link is up.',
    todo: 'Find the program that removes routes, with `ip monitor route` on that node.',
    shows: DIAGNOSE,
  },
  PortTaken: {
    means: 'Another program has a UDP port that Sealane needs; the message names both.',
    todo: 'Stop that program, or move it to another port. Sealane then takes the port by itself.',
    shows: DIAGNOSE,
  },
  ConnectionTableFull: {
    means: 'The connection tracking table of the kernel is full, or nearly: it drops new connections.',
    todo: 'Raise `net.netfilter.nf_conntrack_max`, and find out who opens so many connections.',
    shows: DIAGNOSE,
  },
  DiskFull: {
    means: 'The disk or quota of a folder that Sealane writes to is full, or nearly.',
    todo: 'Free some space. Sealane retries.',
    shows: [...DIAGNOSE, 'log of every component at a site'],
  },
  DiskReadOnly: {
    means: 'A folder that Sealane writes to is on a read-only file system.',
    todo: 'Check the kernel log for disk errors, repair the disk, and mount it for writing.',
    shows: [...DIAGNOSE, 'log of every component at a site'],
  },
  FilesNearlyOut: {
    means: 'A process of Sealane has nearly reached its limit of open files and sockets.',
    todo: 'Raise the limit, and report it: it should need a few hundred.',
    shows: DIAGNOSE,
  },
  DnsServerSilent: {
    means: 'A server for clusterset names does not answer.',
    todo: 'Check that it runs and listens there, and that a firewall lets UDP and TCP 53 pass.',
    shows: DIAGNOSE,
  },
  DnsServerFails: {
    means: 'A server for clusterset names gives a wrong answer; the message has it.',
    todo: 'Check its log. SERVFAIL: it has not read the services. REFUSED: another program answers.',
    shows: DIAGNOSE,
  },
  DnsUpstreamSilent: {
    means: 'An upstream server for names outside the clusterset does not answer.',
    todo: 'Correct `dns.upstreams`, or check that server.',
    shows: DIAGNOSE,
  },
  DnsLoop: {
    means: 'The DNS forwards names to a server that forwards them back, so they are never answered.',
    todo: 'Name a server in `dns.upstreams` that does not forward to this one.',
    shows: DIAGNOSE,
  },
  BrokerSilent: {
    means: 'No address of the broker answers from here.',
    todo: 'Check that the broker runs, and that TCP to its port passes from here.',
    shows: DIAGNOSE,
  },
  BrokerNoTls: {
    means: 'The address of the broker accepts TCP, but does not speak the TLS of a broker.',
    todo: 'Find out what listens there: a proxy, or another program.',
    shows: DIAGNOSE,
  },
  BrokerLate: {
    means: 'The broker accepts connections, but does not complete the TLS handshake in time.',
    todo: 'Check whether the process of the broker hangs or is overloaded, or whether a proxy holds the connection.',
    shows: [...DIAGNOSE, 'log of the agent'],
  },
  UdpOneWay: {
    means: 'Packets of the links to a cluster pass in one direction only.',
    todo: 'Open the UDP port that the message names in the firewall of the end that it names.',
    shows: DIAGNOSE,
  },
  NeitherEndHears: {
    means: 'Neither end of the links between two members receives packets of the other.',
    todo: 'Open the UDP port that the message names at one of the two ends, in and out.',
    shows: DIAGNOSE,
  },
  LinkEndsDiffer: {
    means: 'The two ends of a link report different states.',
    todo: 'Run the command again in some seconds. If it lasts, check that both know the same gateways (`sealane show endpoints`).',
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
    todo: 'Name each once. If they are two clusters, one is a copy of the other: join one of them again.',
    shows: DIAGNOSE,
  },
} as const satisfies ReasonTable
