/**
 * Derives a discovery from a snapshot of a cluster: runs every detector, takes the most reliable answer to each
 * question, and reports answers that contradict it. Pure: the same snapshot always gives the same discovery.
 */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  type Prefix,
  containsAddress,
  networksAround,
  overlaps,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  CLUSTERSET_IPV6_PREFIX,
  DEFAULT_CLUSTERSET_IP_RANGE,
  DEFAULT_GLOBAL_RANGE,
  LANE_ADDRESS_RANGE,
} from '../../model/model.ts'
import { clusterDns, kubeProxy } from './addons.ts'
import {
  controlPlaneFlags,
  kubeadmConfig,
  nodePodNetworks,
  openshiftNetwork,
  rancherServers,
  serviceCidrObjects,
  serviceProbes,
} from './cidr-sources.ts'
import { calico } from './cni/calico.ts'
import { cilium } from './cni/cilium.ts'
import { awsVpc, azure, gke } from './cni/cloud.ts'
import {
  antrea,
  antreaPools,
  canal,
  flannel,
  isolatedNetworks,
  kindnet,
  kubeOvn,
  kubeRouter,
  openshiftSdn,
  ovnKubernetes,
  weave,
} from './cni/others.ts'
import { type EarlierInstall, earlierInstall, earlierJoin } from './earlier-install.ts'
import {
  type Cni,
  type Confidence,
  type Distribution,
  type DnsFlavour,
  type Evidence,
  type Finding,
  type KubeProxy,
  type OtherProduct,
  isAbout,
} from './evidence.ts'
import { type GatewayNodes, gatewayNodes } from './gateway-candidates.ts'
import { otherProducts } from './other-products.ts'
import { type KubernetesVersion, distribution, kubernetesVersion, platform, tooOld } from './platform.ts'
import { type ObservedPod, nodeAddresses, outsideText, podAddresses, podsOutside } from './pod-addresses.ts'
import { covers } from './prefix-texts.ts'
import { dnsServer } from './product.ts'
import {
  type ClusterSnapshot,
  type Unread,
  type World,
  listAt,
  nameOf,
  openSnapshot,
  printable,
  printableText,
  textAt,
} from './snapshot.ts'

// All detectors. Of two equally reliable answers, that of the earlier detector counts.

type Detector = (world: World) => readonly Evidence[]

const DETECTORS: readonly Detector[] = [
  earlierJoin,
  distribution,
  // The API server's own statement about Services precedes everything that configures it.
  serviceCidrObjects,
  serviceProbes,
  openshiftNetwork,
  // CNIs that replace others come before those that they replace.
  cilium,
  gke,
  canal,
  calico,
  antrea,
  kubeOvn,
  kubeRouter,
  weave,
  kindnet,
  ovnKubernetes,
  openshiftSdn,
  awsVpc,
  azure,
  flannel,
  rancherServers,
  controlPlaneFlags,
  kubeadmConfig,
  kubeProxy,
  nodePodNetworks,
  clusterDns,
  otherProducts,
  platform,
]

/** A question that only the user can answer. */
export interface Ask {
  readonly field: 'podCIDRs' | 'serviceCIDRs' | 'gateways'
  /** A sentence that says why the question is asked. */
  readonly why: string
  /** Values to offer to the user. Empty if there are none. They are not reliable enough for `--yes`. */
  readonly suggestion: readonly string[]
}

export interface Discovery {
  readonly version: Finding<KubernetesVersion> | undefined
  readonly distribution: Finding<Distribution>
  readonly podCIDRs: Finding<readonly string[]> | undefined
  readonly serviceCIDRs: Finding<readonly string[]> | undefined
  readonly cni: Finding<Cni> | undefined
  readonly kubeProxy: Finding<KubeProxy> | undefined
  readonly dns: {
    readonly flavour: Finding<DnsFlavour>
    /** The workload of CoreDNS, wherever it is. Undefined if there is none, or another server. */
    readonly server: ObjectRef | undefined
    readonly address: Finding<string> | undefined
    readonly domain: Finding<string>
  }
  /** PLATFORM_KEYS of platform.ts. */
  readonly platform: readonly Finding<string>[]
  readonly gateways: GatewayNodes
  readonly others: readonly Finding<OtherProduct>[]
  readonly earlier: EarlierInstall
  /** The addresses that pods have now, as far as they could be read. */
  readonly pods: readonly ObservedPod[]
  /** Contradictions, and objects that could not be read. Whole sentences. */
  readonly warnings: readonly string[]
  /** Problems that prevent a join until they are fixed. Whole sentences. */
  readonly obstacles: readonly string[]
  readonly asks: readonly Ask[]
}

const SURENESS: Readonly<Record<Confidence, number>> = { certain: 0, likely: 1, guess: 2 }

export function discover(snapshot: ClusterSnapshot): Discovery {
  const world = openSnapshot(snapshot)
  const claims = DETECTORS.flatMap((detect) => detect(world)).map(readable)
  const podCIDRs = best(claims.filter(isAbout('podCIDRs')))
  const serviceCIDRs = best(claims.filter(isAbout('serviceCIDRs')))
  const cni = best(claims.filter(isAbout('cni')))
  const kubeProxy = best(claims.filter(isAbout('kubeProxy')))
  const version = kubernetesVersion(snapshot.version)
  const gateways = gatewayNodes(world)
  const pods = reachablePods(world)
  const outside = podsOutside(pods, podCIDRs?.value ?? [])
  const suggestion = suggestedNetworks(world, { claims, podCIDRs, serviceCIDRs, pods, outside })
  // An earlier join has settled the question. The answer may have become outdated.
  const isSettled = podCIDRs !== undefined && earlierJoin(world).some(({ how }) => printable(how) === podCIDRs.how)
  const none = (how: string): { confidence: Confidence; how: string } => ({ confidence: 'guess', how })
  return {
    version,
    distribution: best(claims.filter(isAbout('distribution'))) ?? { value: 'unknown', ...none('not recognized') },
    podCIDRs,
    serviceCIDRs,
    cni,
    kubeProxy,
    dns: {
      flavour: best(claims.filter(isAbout('dnsFlavour'))) ?? { value: 'unknown', ...none('no known cluster DNS') },
      server: dnsServer(world),
      address: best(claims.filter(isAbout('dnsAddress'))),
      domain: best(claims.filter(isAbout('dnsDomain'))) ?? { value: 'cluster.local', ...none('the default') },
    },
    platform: claims.filter(isAbout('platform')),
    gateways,
    others: claims.filter(isAbout('other')),
    earlier: earlierInstall(world),
    pods,
    warnings: [
      ...(isSettled && outside.length > 0 ? [outgrown(outside, podCIDRs.value, suggestion)] : []),
      ...networkDisagreements(
        'pod CIDRs',
        podCIDRs,
        claims.filter(isAbout('podCIDRs')),
        cni?.value.podRanges === 'own',
      ),
      ...networkDisagreements('service CIDRs', serviceCIDRs, claims.filter(isAbout('serviceCIDRs')), false),
      ...disagreements('CNI', (value) => value.name, claims.filter(isAbout('cni'))),
      ...disagreements('Service proxy', (value) => value.insteadOf ?? value.mode, claims.filter(isAbout('kubeProxy'))),
      ...collisions(podCIDRs?.value ?? [], serviceCIDRs?.value ?? []),
      ...nodeCollisions(world),
      ...snapshot.unread.map(weaker),
    ],
    obstacles: obstacles(version?.value, snapshot),
    asks: asks({ podCIDRs, serviceCIDRs, gateways }, { outside: isSettled ? [] : outside, suggestion }),
  }
}

/** Without the pods of networks that no node reaches, whose addresses are no question. */
function reachablePods(world: World): readonly ObservedPod[] {
  const { isolated, routed } = isolatedNetworks(world)
  const pods = podAddresses(world)
  const apart = new Set(podsOutside(pods, routed))
  const others = new Set(podsOutside(pods, isolated))
  return pods.filter((pod) => !apart.has(pod) || others.has(pod))
}

/** The most reliable claim. Of equally reliable ones the first, in the order of the detectors. */
function best<T extends Evidence>(claims: readonly T[]): T | undefined {
  return claims.reduce<T | undefined>(
    (found, claim) => (found === undefined || SURENESS[claim.confidence] < SURENESS[found.confidence] ? claim : found),
    undefined,
  )
}

function readable<T extends Evidence>(claim: T): T {
  return { ...claim, how: printable(claim.how) }
}

function networkDisagreements(
  what: string,
  chosen: Finding<readonly string[]> | undefined,
  claims: readonly Finding<readonly string[]>[],
  ownBooks: boolean,
): string[] {
  if (chosen === undefined) return []
  return (
    claims
      .filter((claim) => claim.how !== chosen.how && !covers(chosen.value, claim.value))
      // A CNI with its own IPAM ignores the ranges that nodes got, so these are no contradiction.
      .filter((claim) => !(ownBooks && claim.confidence !== 'certain'))
      .map(
        (claim) =>
          `${what}: ${claim.how} has ${claim.value.join(', ')}, but ${chosen.how} has ${chosen.value.join(', ')}, which takes precedence`,
      )
  )
}

function disagreements<T>(
  what: string,
  name: (value: T) => string,
  claims: readonly (Evidence & Finding<T>)[],
): string[] {
  const chosen = best(claims)
  if (chosen === undefined) return []
  return claims
    .filter((claim) => claim.confidence === 'certain' && name(claim.value) !== name(chosen.value))
    .map((claim) => `${what}: ${claim.how} shows ${name(claim.value)}, but ${chosen.how} shows ${name(chosen.value)}`)
}

/**
 * The ranges that Sealane uses itself. A join token does not say those of its clusterset, so these are the defaults;
 * the broker refuses an overlap with the actual ones.
 */
const OWN_RANGES = [DEFAULT_GLOBAL_RANGE, DEFAULT_CLUSTERSET_IP_RANGE, LANE_ADDRESS_RANGE, CLUSTERSET_IPV6_PREFIX]

function collisions(pods: readonly string[], services: readonly string[]): string[] {
  const meets = (a: string, b: string): boolean => overlaps(parsePrefix(a), parsePrefix(b))
  return [
    ...pods.flatMap((pod) =>
      services
        .filter((service) => meets(pod, service))
        .map((service) => `pod CIDR ${pod} overlaps service CIDR ${service}`),
    ),
    ...[...pods, ...services].flatMap((text) =>
      OWN_RANGES.filter((range) => meets(text, range)).map(
        (range) => `${text} overlaps ${range}, which Sealane uses itself`,
      ),
    ),
  ]
}

/** Most nodes that one warning names. */
const MOST_NODES = 3

/** One warning for each range of ours that contains addresses of nodes. */
function nodeCollisions(world: World): string[] {
  const nodes = world.list('Node', '').flatMap((node) => addressesOf(node).map((address) => ({ node, address })))
  return OWN_RANGES.flatMap((range) => {
    const inside = nodes.filter(({ address }) => contains(range, address))
    if (inside.length === 0) return []
    const named = inside.slice(0, MOST_NODES).map(({ node, address }) => `${nameOf(node)} ${address}`)
    const more = inside.length > MOST_NODES ? ` and ${inside.length - MOST_NODES} more` : ''
    return [printable(`nodes have addresses in ${range}, which Sealane uses itself: ${named.join(', ')}${more}`)]
  })
}

function addressesOf(node: unknown): string[] {
  return listAt(node, 'status', 'addresses')
    .filter((entry) => ['InternalIP', 'ExternalIP'].includes(textAt(entry, 'type') ?? ''))
    .flatMap((entry) => textAt(entry, 'address') ?? [])
}

function contains(range: string, text: string): boolean {
  try {
    return containsAddress(parsePrefix(range), parseAddress(text))
  } catch {
    // A Node may state anything as its address.
    return false
  }
}

function weaker(unread: Unread): string {
  const what = unread.weaker.length === 0 ? '' : `: detection of ${unread.weaker.join(', ')} is less reliable`
  if (unread.isCut === true) return printable(`${unread.what}: ${unread.why}${what}`)
  return printable(`${unread.why === 'not allowed' ? 'not allowed to read' : 'cannot read'} ${unread.what}${what}`)
}

function obstacles(version: KubernetesVersion | undefined, snapshot: ClusterSnapshot): string[] {
  const age = version === undefined ? undefined : tooOld(version)
  const blind = snapshot.unread.find(({ what, isCut }) => what === 'Nodes' && isCut !== true)
  return [
    ...(age === undefined ? [] : [printable(age)]),
    ...(blind === undefined
      ? []
      : ['Nodes cannot be read: expected a user who may list Nodes, such as one with cluster-admin']),
  ]
}

// What pods really have is held against what configuration says.

interface SuggestionWorld {
  readonly claims: readonly Evidence[]
  readonly podCIDRs: Finding<readonly string[]> | undefined
  readonly serviceCIDRs: Finding<readonly string[]> | undefined
  readonly pods: readonly ObservedPod[]
  readonly outside: readonly ObservedPod[]
}

/** A declared network this wide would be a mistake, not a suggestion. */
const WIDEST_DECLARED = { 4: 8, 6: 32 } as const

/**
 * The networks found and those of the pods outside them. A network that is not certain and has no pod is left out if
 * pods are elsewhere: a CNI with its own IPAM ignores the range that kubeadm wrote down.
 */
function suggestedNetworks(world: World, found: SuggestionWorld): readonly string[] {
  const { claims, podCIDRs, serviceCIDRs, pods, outside } = found
  const value = podCIDRs?.value ?? []
  if (outside.length === 0) return value
  const isUsed = (cidr: string): boolean =>
    podCIDRs?.confidence === 'certain' || podsOutside(pods, [cidr]).length < pods.length
  // A guess is itself a network around addresses.
  const stated = claims.filter(isAbout('podCIDRs')).filter(({ confidence }) => confidence !== 'guess')
  const declared = [...stated.flatMap((claim) => claim.value), ...antreaPools(world)]
  const added = networksAround(
    outside.map(({ address }) => address),
    {
      declared: declared.map((text) => parsePrefix(text)).filter((one) => one.length >= WIDEST_DECLARED[one.family]),
      taken: (serviceCIDRs?.value ?? []).map((text): Prefix => parsePrefix(text)),
      nodes: nodeAddresses(world),
    },
  )
  return [...new Set([...value.filter((cidr) => isUsed(cidr) && !covers(added, [cidr])), ...added])]
}

/** For a member: the join does not ask, because the user settled the networks before. */
function outgrown(outside: readonly ObservedPod[], joined: readonly string[], suggestion: readonly string[]): string {
  const flags = suggestion.map((cidr) => `--pod-cidr ${cidr}`).join(' ')
  const text = outsideText(outside, `the pod CIDRs of this member (${joined.join(', ')})`)
  return `${printableText(text)}: other clusters do not reach such pods; to add their networks, join again with ${flags}`
}

interface Observed {
  readonly outside: readonly ObservedPod[]
  /** Networks that contain the addresses of all pods. */
  readonly suggestion: readonly string[]
}

function asks(found: Pick<Discovery, 'podCIDRs' | 'serviceCIDRs' | 'gateways'>, observed: Observed): Ask[] {
  const network = (field: 'podCIDRs' | 'serviceCIDRs', what: string, { outside, suggestion }: Observed): Ask[] => {
    const finding = found[field]
    const isSure = finding !== undefined && finding.confidence !== 'guess'
    if (isSure && outside.length === 0) return []
    const why =
      finding === undefined
        ? `the ${what} could not be detected`
        : isSure
          ? printableText(outsideText(outside, `the ${what} found (${finding.value.join(', ')}, from ${finding.how})`))
          : `the ${what} are only guessed: ${finding.how}`
    const offered = field === 'podCIDRs' && suggestion.length > 0 ? suggestion : (finding?.value ?? [])
    return [{ field, why, suggestion: offered }]
  }
  const { candidates, unfit } = found.gateways
  // A labelled node stays a gateway while it is cordoned or unavailable, so the user need not choose one.
  const nobody = candidates.length === 0 && unfit.every(({ lane, isAway }) => lane === undefined || !isAway)
  return [
    ...network('podCIDRs', 'pod CIDRs', observed),
    ...network('serviceCIDRs', 'service CIDRs', { outside: [], suggestion: [] }),
    ...(nobody ? [{ field: 'gateways', why: whyNoGateway(found.gateways), suggestion: [] } as const] : []),
  ]
}

function whyNoGateway({ unfit }: GatewayNodes): string {
  if (unfit.length === 0) return 'the cluster has no Node'
  const reported = unfit.slice(0, 3).map(({ node, why }) => `${node}: ${why}`)
  return printable(`no node can be a gateway (${reported.join('; ')}${unfit.length > 3 ? '; …' : ''})`)
}
