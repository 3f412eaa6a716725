/** The failure table: symptoms, and the reason code by which `sealane diagnose` and `status` name the cause. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/**
 * How it is seen. machine: `sealane diagnose`, which for a site has to be on the machine that has it. anywhere:
 * `sealane status` and `sealane diagnose`, from wherever the objects of the cluster or site are read. ends: `sealane
 * diagnose` of several.
 */
export type SeenBy = 'machine' | 'anywhere' | 'ends'

export interface FailureRow {
  /** What people notice, as far as the meaning of the code does not say it: else empty. */
  readonly symptom: string
  readonly code: ReasonCode
  readonly by: SeenBy
}

function rows(by: SeenBy, all: Partial<Readonly<Record<ReasonCode, string>>>): readonly FailureRow[] {
  return Object.entries(all).map(([code, symptom]) => ({ code: code as ReasonCode, symptom, by }))
}

/** By symptom. Each code occurs once. */
export const FAILURES: Readonly<Record<string, readonly FailureRow[]>> = {
  'Links and traffic': [
    ...rows('machine', {
      FirewallDrops: '',
      PortTaken: '',
      ForwardingOff: 'The gateway reaches other clusters, but pods do not',
      DeviceSettingsDiffer: '',
      StrictReversePath: 'Some connections hang if there are several gateways',
      KernelRoutesMissing: 'Links are up, but no traffic reaches other clusters',
      KernelSetFault: 'A set of nftables cannot be reloaded: "File exists"',
      KernelTableMissing: 'Links are up, but calls are refused or come from wrong addresses',
      ConnectionTableFull: 'New connections hang, existing ones continue',
    }),
    ...rows('anywhere', {
      UdpOneWay: '',
      NeitherEndCallable: '',
      ClusterCutOff: '',
      AllClustersCutOff: '',
      GatewayCutOff: '',
      FarGatewayUnreached: '',
      LaneProbeTimeout: '',
      LaneConnecting: '',
      LinkLossy: 'Calls to a cluster are slow or fail at times',
      LinkFlaps: '',
      PathMtuReduced: 'Small calls work, large ones hang or are slow',
      NodesCutOff: '',
      GatewayNodeSilent: '',
      OverlayPortDiffers: 'Pods of one node reach no cluster after a change of the overlay port',
      ChecksumOffloadNotSwitched: '',
      ForwardPoliciesMissing: '',
      OpenWithoutTables: '',
      GatewayNodeUnheard: 'Pods of a new node reach no cluster, although links are up',
      WorkerNodeSilent: 'Calls to pods of one node time out or take a detour',
    }),
  ],
  'Gateways and nodes': rows('anywhere', {
    GatewaySilent: '',
    GatewayStatusStale: 'The state of a cluster is unknown',
    Starting: '',
    NoGateway: '',
    NoLane: '',
    FarGatewayAwaited: '',
    OneGatewayOnly: '',
    GatewayNotReplaced: '',
    GatewayDraining: '',
    RoundFailed: '',
    RouteAgentMissing: '',
    RouteAgentSilent: '',
    NodeWithoutRouteAgent: '',
    NodeNotReady: '',
    GatewayWithoutIPv4: '',
  }),
  'The broker and identities': [
    ...rows('machine', {
      BrokerSilent: 'New services do not appear',
      BrokerLate: '',
      BrokerNoTls: '',
      ClockDiffers: 'The broker refuses this cluster',
      CertificateNotYetValid: '',
      CertificateUntrusted: '',
      CertificateOtherClusterset: '',
      CertificateWrongIdentity: '',
    }),
    ...rows('anywhere', {
      BrokerUnreached: '',
      BrokerAddressFailing: '',
      BrokerClockDiffers: '',
      StoreSlow: 'New services appear late, everything else works',
      CertificateExpired: '',
      CertificateEndsSoon: '',
      AgentSilent: '',
      Silent: '',
      NoMembership: '',
      TokenUsed: '',
      TokenExpired: '',
      ClusterIdTaken: '',
      JoinAwaitsApproval: 'A join does not finish, without an error',
      MemberEvicted: '',
      LeavingClusterset: '',
      AllPodsExposed: '',
      OwnClusterMissing: '',
    }),
  ],
  Names: [
    ...rows('machine', {
      DnsServerSilent: '',
      DnsServerFails: '',
      DnsUpstreamSilent: 'Only names of the clusterset get answers',
      DnsLoop: '',
    }),
    ...rows('anywhere', { DoesNotAnswer: '', ResolverSettings: '', HairpinOff: '' }),
  ],
  Services: rows('anywhere', {
    ImportsWithoutBackends: 'A service of another cluster refuses connections at once',
    BackendDown: '',
    PolicyKeepsOut: 'Calls to an exported service hang, although its pods are ready',
    PolicyKeepsIn: '',
    NoService: '',
    InvalidServiceType: '',
    NamespaceNotAllowed: '',
    AddressOutsidePods: 'Some pods of a service are unreachable',
    PodsOutsideRanges: '',
    NamespaceMissing: '',
    NotImported: '',
    PortConflict: '',
    TypeConflict: '',
    TrafficPolicyInvalid: '',
    ClusterDrained: 'A cluster gets no new connections',
    ServiceDrained: '',
    Pending: '',
    Failed: '',
  }),
  'Machines and processes': [
    ...rows('machine', {
      DiskFull: '',
      DiskReadOnly: '',
      FilesNearlyOut: '',
      NothingRuns: '',
      DefinitionOutdated: '',
      OtherProduct: '',
    }),
    ...rows('anywhere', {
      PartMissing: '',
      PartNotReady: '',
      MaxUnavailableRaised: '',
      PolicyStopsPart: '',
      VersionSkew: '',
      CommandClockDiffers: 'Other programs show wrong ages',
    }),
  ],
  'Several members compared': rows('ends', {
    NeitherEndHears: '',
    LinkEndsDiffer: '',
    MemberMissing: '',
    RecordsDiffer: '',
    ImportsMissing: '',
    ClustersetsDiffer: '',
    MemberTwice: '',
  }),
  'The API server': rows('anywhere', {
    PartForbidden: '',
    IdentityMissing: '',
    AdmissionRefuses: '',
    ApiServerReadOnly: '',
    ObjectNotWritten: '',
  }),
  'The commands themselves': rows('anywhere', {
    NotAnswered: '',
    RightMissing: '',
    KindMissing: '',
    NotReadable: '',
    InternalError: '',
  }),
}

/** All rows. */
export const ALL_FAILURES = Object.values(FAILURES).flat()
