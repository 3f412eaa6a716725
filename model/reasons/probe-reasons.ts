/** Reasons that are found by looking closer than at objects: at kernels, at servers that are asked, from several ends. */
import type { ReasonTable } from './reason-row.ts'

const DIAGNOSE = ['output of the command'] as const

export const PROBE_REASONS = {
  FirewallDrops: {
    means: 'A firewall of somebody else on the node drops packets that Sealane needs; the message says where.',
    todo: 'Let these packets pass in the table and chain that the message names. No table of Sealane can undo a drop.',
    shows: DIAGNOSE,
  },
  ForwardingOff: {
    means: 'The kernel of the node hands on no packets of others, so that pods reach no other cluster by it.',
    todo: 'Find what sets the settings that the message names to 0, often a file in `/etc/sysctl.d`. Sealane sets `net.ipv4.ip_forward` and those of its own devices to 1 again; those of the CNI and of the uplink it only looks at.',
    shows: DIAGNOSE,
  },
  DeviceSettingsDiffer: {
    means: "A device of Sealane's has a setting of the kernel that Sealane does not give it.",
    todo: 'Find what sets it, often a file in `/etc/sysctl.d` or a program that follows devices. Sealane sets it again.',
    shows: DIAGNOSE,
  },
  StrictReversePath: {
    means: "The kernel checks sources strictly on a device of Sealane's, and drops what comes by another gateway.",
    todo: 'Find what sets `rp_filter` to 1 on all devices, often a file in `/etc/sysctl.d`. 2 is strict enough.',
    shows: DIAGNOSE,
  },
  KernelTableMissing: {
    means: "A table of Sealane's is not in nftables although its part works on the node: somebody removes it.",
    todo: 'Find the program that flushes the whole ruleset, often `nftables.service`, and have it flush its own tables.',
    shows: DIAGNOSE,
  },
  KernelRoutesMissing: {
    means: 'The kernel of the node has no route to a cluster that has a link: somebody removes it.',
    todo: 'Find the program that removes routes of others, with `ip monitor route` on that node.',
    shows: DIAGNOSE,
  },
  PortTaken: {
    means: 'Another program has a UDP port that Sealane needs; the message names both.',
    todo: 'End that program, or move it to another port. Sealane takes the port by itself then.',
    shows: DIAGNOSE,
  },
  ConnectionTableFull: {
    means: 'The table in which the kernel tracks connections is full, or nearly: new connections are dropped.',
    todo: 'Make `net.netfilter.nf_conntrack_max` larger, and look who opens so many connections.',
    shows: DIAGNOSE,
  },
  DiskFull: {
    means: 'The disk of a folder in which Sealane writes is full, or nearly, or a quota of it is used up.',
    todo: 'Make room there. What cannot be written is told in the log, and tried again.',
    shows: [...DIAGNOSE, 'log of every component at a site'],
  },
  DiskReadOnly: {
    means: 'A folder in which Sealane writes is on a file system that takes no writes.',
    todo: 'Look in the log of the kernel for errors of the disk, repair it, and mount it for writing.',
    shows: [...DIAGNOSE, 'log of every component at a site'],
  },
  FilesNearlyOut: {
    means: 'A process of Sealane has nearly as many files and sockets open as it may.',
    todo: 'Raise its limit of open files, and report it: it should need a few hundred.',
    shows: DIAGNOSE,
  },
  DnsServerSilent: {
    means: 'A server that answers names of the clusterset did not answer when it was asked.',
    todo: 'Look whether it runs and listens there, and whether a firewall lets UDP and TCP 53 pass.',
    shows: DIAGNOSE,
  },
  DnsServerFails: {
    means: 'A server that answers names of the clusterset gave another answer than it should; the message has it.',
    todo: 'Look at its log. SERVFAIL says that it has not read the services; REFUSED, that another program answers.',
    shows: DIAGNOSE,
  },
  DnsUpstreamSilent: {
    means: 'A server to which the DNS hands on what is not in the clusterset does not answer.',
    todo: 'Correct `dns.upstreams`, or look at that server.',
    shows: DIAGNOSE,
  },
  DnsLoop: {
    means: 'The DNS hands names on to a server that hands them back: these names are answered by nobody.',
    todo: 'Name a server in `dns.upstreams` that does not ask this one.',
    shows: DIAGNOSE,
  },
  BrokerSilent: {
    means: 'Nobody answers at any address of the broker, as seen from here.',
    todo: 'Check that the broker runs, and that TCP to its port passes from here.',
    shows: DIAGNOSE,
  },
  BrokerNoTls: {
    means: 'At the address of the broker TCP is answered, and no TLS as a broker has it.',
    todo: 'Find out what listens there: a proxy in between, or another program in the place of the broker.',
    shows: DIAGNOSE,
  },
  BrokerLate: {
    means: 'The broker takes connections, and does not end the TLS handshake in its time.',
    todo: 'Look at the broker: whether its process hangs, or has more to do than it can. It may be a proxy that is silent.',
    shows: [...DIAGNOSE, 'log of the agent'],
  },
  UdpOneWay: {
    means: 'Packets of the links to a cluster pass in one direction only.',
    todo: 'Open the UDP port that the message names in the firewall of the end that it names.',
    shows: DIAGNOSE,
  },
  NeitherEndHears: {
    means: 'Two members were looked at, and neither end of the links between them hears the other.',
    todo: 'Open the UDP port that the message names at one of the two ends, in and out.',
    shows: DIAGNOSE,
  },
  LinkEndsDiffer: {
    means: 'Two members were looked at, and the two ends of a link say different things of it.',
    todo: 'Look again in some seconds. If it stays, see whether both know the same gateways (`sealane show endpoints`).',
    shows: DIAGNOSE,
  },
  MemberMissing: {
    means: 'Two members of one clusterset were looked at, and one of them does not know the other.',
    todo: 'Look at the agent of the one that does not know it: its way to the broker, and what its log refuses.',
    shows: DIAGNOSE,
  },
  RecordsDiffer: {
    means: 'Two members were looked at, and one knows other ranges or gateways of the other than that one has.',
    todo: 'Look at the way to the broker of both. What is known is as old as the last word from there.',
    shows: DIAGNOSE,
  },
  ImportsMissing: {
    means: 'Two members were looked at, and services that one exports are not imported by the other.',
    todo: 'Create their namespaces where they are wanted. The condition `sealane.io/Imported` of the exports says more.',
    shows: DIAGNOSE,
  },
  ClustersetsDiffer: {
    means: 'Two clusters were looked at that are not in the same clusterset, so that nothing can be compared.',
    todo: 'Name clusters of one clusterset.',
    shows: DIAGNOSE,
  },
  MemberTwice: {
    means: 'Two of the clusters that were looked at are the same member.',
    todo: 'Name each once. If they are two, one has been made from a copy of the other: let one of them join anew.',
    shows: DIAGNOSE,
  },
} as const satisfies ReasonTable
