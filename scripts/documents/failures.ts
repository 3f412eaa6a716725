/** The failure table: what people notice, and the reason code by which `sealane diagnose` and `status` name its cause. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/**
 * How it is seen. machine: `sealane diagnose`, which for a site has to be on the machine that has it. anywhere:
 * `sealane status` and `sealane diagnose`, from wherever the objects of the cluster or site are read. ends: `sealane
 * diagnose` of several.
 */
export type SeenBy = 'machine' | 'anywhere' | 'ends'

export interface FailureRow {
  /** What is noticed, as a heading. */
  readonly symptom: string
  readonly code: ReasonCode
  readonly by: SeenBy
}

function rows(by: SeenBy, all: Partial<Readonly<Record<ReasonCode, string>>>): readonly FailureRow[] {
  return Object.entries(all).map(([code, symptom]) => ({ code: code as ReasonCode, symptom, by }))
}

/** By what is noticed. Each code stands once. */
export const FAILURES: Readonly<Record<string, readonly FailureRow[]>> = {
  'Links and what they carry': [
    ...rows('machine', {
      FirewallDrops: 'Links are down, or pods get no answer, and a firewall of the node is why',
      PortTaken: 'A gateway has no link, since another program has its port',
      ForwardingOff: 'The gateway itself reaches other clusters, and pods do not',
      DeviceSettingsDiffer: 'Something changes settings of devices of Sealane again and again',
      StrictReversePath: 'Some connections hang where there are several gateways',
      KernelRoutesMissing: 'Links are up, and nothing gets to other clusters',
      KernelTableMissing: 'Links are up, and calls are refused or come from wrong addresses',
      ConnectionTableFull: 'New connections hang, and old ones go on',
    }),
    ...rows('anywhere', {
      UdpOneWay: 'A link stays down, and packets of the other end arrive',
      NeitherEndCallable: 'A link never comes up between two sites behind address translation',
      ClusterCutOff: 'One cluster is not reached',
      AllClustersCutOff: 'No cluster is reached',
      GatewayCutOff: 'One gateway here has no link, and the others have',
      FarGatewayUnreached: 'One gateway of another cluster is reached by nobody',
      LaneProbeTimeout: 'A single link is down',
      LaneConnecting: 'A single link does not come up',
      LinkLossy: 'Calls to a cluster are slow, or now and then fail',
      LinkFlaps: 'A link goes up and down',
      PathMtuReduced: 'Small calls work, and large ones hang or are slow',
      NodesCutOff: 'Pods of some nodes reach no cluster, and those of others do',
      GatewayNodeSilent: 'Nodes have lost one of several gateway nodes',
      GatewayNodeUnheard: 'Pods of a node reach no cluster from its start on, and its links are up',
      WorkerNodeSilent: 'Calls to pods of one node get no answer, or take a longer way',
    }),
  ],
  'Gateways and nodes': rows('anywhere', {
    GatewaySilent: 'A gateway does not report',
    GatewayStatusStale: 'Whether a cluster is reached is not known',
    Starting: 'A cluster or site has just started, and nothing is reached yet',
    NoGateway: 'This cluster has no gateway',
    NoLane: 'Another cluster has a gateway, and no link to it is made',
    FarGatewayAwaited: 'A cluster has just joined, or all its gateways have gone, and it is not reached',
    OneGatewayOnly: 'The loss of one node would cut the cluster off',
    GatewayDraining: 'A gateway is leaving',
    RoundFailed: 'A gateway or node says that it could not do its work',
    RouteAgentMissing: 'A node has no routeagent',
    NodeNotReady: 'Kubernetes has lost a node',
    GatewayWithoutIPv4: 'A gateway that was chosen has no link: its node has no address that others could call',
  }),
  'The broker and identities': [
    ...rows('machine', {
      BrokerSilent: 'New services do not appear, and nobody answers at the broker',
      BrokerLate: 'The broker takes connections and says nothing',
      BrokerNoTls: 'The broker takes connections and closes them, or something else listens there',
      ClockDiffers: 'The broker refuses this cluster, or is refused, and a clock is wrong',
      CertificateNotYetValid: 'A certificate of the broker begins in the future',
      CertificateUntrusted: 'Another broker answers than the one that was joined',
      CertificateOtherClusterset: 'The broker of another clusterset answers',
      CertificateWrongIdentity: 'Something answers that is no broker',
    }),
    ...rows('anywhere', {
      BrokerUnreached: 'New services do not appear, in either direction',
      BrokerAddressFailing: 'One of several addresses of the broker is dead',
      BrokerClockDiffers: 'Times that the broker says do not fit, and everything else is well',
      StoreSlow: 'New services appear late, and everything else is well',
      CertificateExpired: 'The certificate of this cluster has ended',
      CertificateEndsSoon: 'The certificate of this cluster is not renewed',
      AgentSilent: 'Nothing is published and nothing is learnt',
      Silent: 'Another cluster is not heard by the broker',
      NoMembership: 'This cluster has not joined',
      TokenUsed: 'A join does not come to an end: its token was used before',
      TokenExpired: 'A join does not come to an end: its token came too late',
      ClusterIdTaken: 'A join does not come to an end: another cluster has the id',
      JoinAwaitsApproval: 'A join does not come to an end, and nothing is wrong with it',
      MemberEvicted: 'No cluster is reached, and nothing is learnt: this one was put out',
      LeavingClusterset: 'This cluster is leaving',
      OwnClusterMissing: 'Gateways do not know which addresses are their own',
    }),
  ],
  Names: [
    ...rows('machine', {
      DnsServerSilent: 'Names below `clusterset.local` are not answered',
      DnsServerFails: 'Names below `clusterset.local` get a wrong answer',
      DnsUpstreamSilent: 'Names of the clusterset are answered, and all others are not',
      DnsLoop: 'Names that are not of the clusterset are answered by nobody',
    }),
    ...rows('anywhere', { DoesNotAnswer: "The cluster's own DNS does not hand the clusterset's names on" }),
  ],
  Services: rows('anywhere', {
    ImportsWithoutBackends: 'A service of another cluster is refused at once',
    PolicyKeepsOut: 'Calls to an exported service hang, and its pods are ready',
    PolicyKeepsIn: 'Pods of one namespace reach no other cluster, and those of others do',
    NoService: 'An export is not valid: it has no Service',
    InvalidServiceType: 'An export is not valid: its Service is only a name',
    NamespaceNotAllowed: 'An export of a system namespace is refused',
    AddressOutsidePods: 'Some pods of a service are reached from nowhere else: their range was not stated when joining',
    NamespaceMissing: 'An export is imported by nobody, since its namespace is missing there',
    NotImported: 'An export is imported by nobody',
    PortConflict: 'Two clusters export the same service with other ports',
    TypeConflict: 'Two clusters export the same service, one of them headless',
    Pending: 'An export waits',
    Failed: 'An export is refused',
  }),
  'Machines and processes': [
    ...rows('machine', {
      DiskFull: 'A gateway, or what it knows, stays as it was: the disk is full',
      DiskReadOnly: 'A gateway, or what it knows, stays as it was: the disk takes no writes',
      FilesNearlyOut: 'A part stops to answer or to write: it has no more files',
      NothingRuns: 'On a machine of a site nothing of Sealane runs',
      DefinitionOutdated: 'After an update some fields are never there: a definition was not updated',
      OtherProduct: 'ServiceImports or conditions change to and fro: somebody else writes them, too',
    }),
    ...rows('anywhere', {
      PartMissing: 'A part is not installed',
      PartNotReady: 'Pods of a part do not run',
      PolicyStopsPart: 'A part runs, and a NetworkPolicy keeps it from what it needs',
      VersionSkew: 'Parts are of different releases',
      CommandClockDiffers: 'Ages that other programs show are wrong',
    }),
  ],
  'Several members, looked at together': rows('ends', {
    NeitherEndHears: 'A link is down, and nothing arrives at either end',
    LinkEndsDiffer: 'One end says that a link is up, and the other that it is down',
    MemberMissing: 'One member does not know another',
    RecordsDiffer: 'One member has old addresses of another',
    ImportsMissing: 'A service is exported, and another member does not have it',
    ClustersetsDiffer: 'Clusters that were named belong to different clustersets',
    MemberTwice: 'Two clusters are the same member',
  }),
  'The API server': rows('anywhere', {
    PartForbidden: 'A part is alive and does nothing: it has lost its rights',
    IdentityMissing: 'The certificate of a cluster is not renewed: its Secret was deleted',
    AdmissionRefuses:
      'A part is alive and nothing of what it writes is kept: a webhook, a policy or a quota refuses it',
    ApiServerReadOnly: 'Everything stays as it was: the API server takes no writes',
    ObjectNotWritten: 'Some objects are never there: the API server does not take them as they are',
  }),
  'Looking itself': rows('anywhere', {
    NotAnswered: 'A part, a page or an API server does not answer in time',
    RightMissing: 'Something may not be read',
    KindMissing: 'A kind of object is not known to the API server',
    NotReadable: 'An object or a file is not as it has to be: a name that is too long, say',
    InternalError: 'A check itself failed',
  }),
}

/** All rows. */
export const ALL_FAILURES = Object.values(FAILURES).flat()
