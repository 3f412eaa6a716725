/**
 * Which findings of `diagnose` concern a call, and at which station: the one list behind `sealane explain` and
 * docs/explain.md. A code that is not here ends no call: it concerns what the next change brings.
 */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Finding } from '../facts/facts.ts'
import type { Station } from './document.ts'

/**
 * breaks: packets end at the station if the finding is about an object on the way. why: the station sees by itself that
 * packets end there, and the finding says why. may: some packets end there. note: worth knowing at the station.
 */
export type Effect = 'breaks' | 'why' | 'may' | 'note'

export interface OnPath {
  /** Of several, the first whose object the finding is about. */
  readonly at: readonly Station[]
  readonly effect: Effect
  /** The way back meets it, not the way there. */
  readonly onReturn?: true
}

const on = (effect: Effect, ...at: readonly Station[]): OnPath => ({ at, effect })
const LINK_WHY = on('why', 'link')
const NAME_WHY = on('why', 'name')

export const ON_PATH: Partial<Readonly<Record<ReasonCode, OnPath>>> = {
  NoMembership: on('breaks', 'caller'),
  PolicyKeepsIn: on('breaks', 'caller'),

  DnsLoop: on('breaks', 'name'),
  DnsServerSilent: on('breaks', 'name'),
  DnsServerFails: on('breaks', 'name'),
  DoesNotAnswer: on('breaks', 'name'),
  PartNotReady: NAME_WHY,
  PartMissing: NAME_WHY,
  PolicyStopsPart: NAME_WHY,
  NoService: NAME_WHY,
  InvalidServiceType: NAME_WHY,
  NamespaceNotAllowed: NAME_WHY,
  NamespaceMissing: NAME_WHY,
  NotImported: NAME_WHY,
  ImportsMissing: NAME_WHY,
  Pending: NAME_WHY,
  Failed: NAME_WHY,
  ResolverSettings: on('note', 'name'),
  AgentSilent: on('note', 'name'),
  BrokerUnreached: on('note', 'name'),
  PortConflict: on('note', 'name'),
  TypeConflict: on('note', 'name'),

  TrafficPolicyInvalid: on('note', 'shares'),
  ClusterDrained: on('note', 'shares'),
  ServiceDrained: on('note', 'shares'),

  ImportsWithoutBackends: on('why', 'backends'),
  AddressOutsidePods: on('why', 'backends'),
  PodsOutsideRanges: on('why', 'backends'),
  BackendDown: on('why', 'backends'),

  KernelTableMissing: on('breaks', 'balance', 'gateway'),
  KernelSetFault: on('note', 'balance', 'gateway'),
  HairpinOff: on('note', 'balance'),

  NodesCutOff: on('why', 'node'),
  RouteAgentMissing: on('why', 'node'),
  RouteAgentSilent: on('note', 'node'),
  OverlayPortDiffers: on('breaks', 'node'),
  ChecksumOffloadNotSwitched: on('breaks', 'node'),
  ForwardPoliciesMissing: on('note', 'node'),
  OpenWithoutTables: on('note', 'node'),
  GatewayNodeUnheard: on('may', 'node'),
  GatewayNodeSilent: on('why', 'node'),
  KernelRoutesMissing: on('breaks', 'node', 'gateway'),
  ForwardingOff: on('breaks', 'node', 'gateway'),
  FirewallDrops: on('breaks', 'node', 'gateway', 'link'),
  ConnectionTableFull: on('breaks', 'node', 'gateway'),
  DeviceSettingsDiffer: on('note', 'node', 'gateway'),
  RoundFailed: on('note', 'node', 'gateway'),
  NodeNotReady: on('note', 'node', 'gateway'),
  NoGateway: on('why', 'gateway'),
  GatewayDraining: on('note', 'gateway'),
  GatewayWithoutIPv4: on('note', 'gateway'),
  OneGatewayOnly: on('note', 'gateway'),

  NoLane: LINK_WHY,
  FarGatewayAwaited: LINK_WHY,
  ClusterCutOff: LINK_WHY,
  AllClustersCutOff: LINK_WHY,
  UdpOneWay: LINK_WHY,
  NeitherEndCallable: LINK_WHY,
  NeitherEndHears: LINK_WHY,
  LinkEndsDiffer: LINK_WHY,
  GatewayCutOff: LINK_WHY,
  FarGatewayUnreached: LINK_WHY,
  LaneProbeTimeout: LINK_WHY,
  LaneConnecting: LINK_WHY,
  GatewaySilent: LINK_WHY,
  GatewayStatusStale: LINK_WHY,
  PortTaken: LINK_WHY,
  MemberEvicted: LINK_WHY,
  Silent: LINK_WHY,
  LinkLossy: on('note', 'link'),
  LinkFlaps: on('note', 'link'),
  PathMtuReduced: on('note', 'link'),

  PolicyKeepsOut: on('breaks', 'far-pod'),

  StrictReversePath: { at: ['gateway'], effect: 'may', onReturn: true },
  WorkerNodeSilent: { at: ['node'], effect: 'may', onReturn: true },
}

/** What station an own station is, seen from the other side. */
const MIRRORED: Partial<Readonly<Record<Station, Station>>> = { node: 'far-node', gateway: 'far-gateway' }

/** The stations and the effect of a finding. Undefined if it ends no call. */
export function onPath({ reason, severity }: Finding, isFar = false): OnPath | undefined {
  const row = Object.hasOwn(ON_PATH, reason) ? ON_PATH[reason] : undefined
  if (row === undefined) return undefined
  const at = isFar ? row.at.map((station) => MIRRORED[station] ?? station) : row.at
  return { ...row, at, effect: effectOf(row.effect, reason, severity) }
}

/**
 * A notice breaks nothing. Two are more than that for one call: a policy that lets in some clusters only, and one that
 * lets no pod of its namespace out.
 */
function effectOf(effect: Effect, reason: ReasonCode, severity: Finding['severity']): Effect {
  if (effect !== 'breaks' || severity !== 'notice' || reason === 'PolicyKeepsIn') return effect
  return reason === 'PolicyKeepsOut' ? 'may' : 'note'
}
