/**
 * Derives a discovery from a snapshot of a cluster: runs every detector, takes the most reliable answer to each
 * question, and reports answers that contradict it. Pure: the same snapshot always gives the same discovery.
 */
import { overlaps, parsePrefix } from '../../model/addresses/addresses.ts'
import { CLUSTERSET_IPV6_PREFIX, DEFAULT_CLUSTERSET_IP_RANGE, DEFAULT_GLOBAL_RANGE } from '../../model/model.ts'
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
import { antrea, canal, flannel, kindnet, kubeRouter, openshiftSdn, ovnKubernetes, weave } from './cni/others.ts'
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
import { covers } from './prefix-texts.ts'
import { type ClusterSnapshot, type Unread, type World, openSnapshot, printable } from './snapshot.ts'

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
    readonly address: Finding<string> | undefined
    readonly domain: Finding<string>
  }
  /** PLATFORM_KEYS of platform.ts. */
  readonly platform: readonly Finding<string>[]
  readonly gateways: GatewayNodes
  readonly others: readonly Finding<OtherProduct>[]
  readonly earlier: EarlierInstall
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
      address: best(claims.filter(isAbout('dnsAddress'))),
      domain: best(claims.filter(isAbout('dnsDomain'))) ?? { value: 'cluster.local', ...none('the default') },
    },
    platform: claims.filter(isAbout('platform')),
    gateways,
    others: claims.filter(isAbout('other')),
    earlier: earlierInstall(world),
    warnings: [
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
      ...snapshot.unread.map(weaker),
    ],
    obstacles: obstacles(version?.value, snapshot),
    asks: asks({ podCIDRs, serviceCIDRs, gateways }),
  }
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

function collisions(pods: readonly string[], services: readonly string[]): string[] {
  const reserved = [DEFAULT_GLOBAL_RANGE, DEFAULT_CLUSTERSET_IP_RANGE, CLUSTERSET_IPV6_PREFIX]
  const meets = (a: string, b: string): boolean => overlaps(parsePrefix(a), parsePrefix(b))
  return [
    ...pods.flatMap((pod) =>
      services
        .filter((service) => meets(pod, service))
        .map((service) => `pod CIDR ${pod} overlaps service CIDR ${service}`),
    ),
    ...[...pods, ...services].flatMap((text) =>
      reserved
        .filter((range) => meets(text, range))
        .map((range) => `${text} overlaps ${range}, which Sealane uses itself`),
    ),
  ]
}

function weaker(unread: Unread): string {
  const what = unread.weaker.length === 0 ? '' : `: detection of ${unread.weaker.join(', ')} is less reliable`
  return printable(`${unread.why === 'not allowed' ? 'not allowed to read' : 'cannot read'} ${unread.what}${what}`)
}

function obstacles(version: KubernetesVersion | undefined, snapshot: ClusterSnapshot): string[] {
  const age = version === undefined ? undefined : tooOld(version)
  const blind = snapshot.unread.find((unread) => unread.what === 'Nodes')
  return [
    ...(age === undefined ? [] : [printable(age)]),
    ...(blind === undefined
      ? []
      : ['Nodes cannot be read: expected a user who may list Nodes, such as one with cluster-admin']),
  ]
}

function asks(found: Pick<Discovery, 'podCIDRs' | 'serviceCIDRs' | 'gateways'>): Ask[] {
  const network = (field: 'podCIDRs' | 'serviceCIDRs', what: string): Ask[] => {
    const finding = found[field]
    if (finding !== undefined && finding.confidence !== 'guess') return []
    const why =
      finding === undefined ? `the ${what} could not be detected` : `the ${what} are only guessed: ${finding.how}`
    return [{ field, why, suggestion: finding?.value ?? [] }]
  }
  const { candidates, unfit } = found.gateways
  // A labelled node stays a gateway while it is cordoned or unavailable, so the user need not choose one.
  const nobody = candidates.length === 0 && unfit.every(({ lane, isAway }) => lane === undefined || !isAway)
  return [
    ...network('podCIDRs', 'pod CIDRs'),
    ...network('serviceCIDRs', 'service CIDRs'),
    ...(nobody ? [{ field: 'gateways', why: whyNoGateway(found.gateways), suggestion: [] } as const] : []),
  ]
}

function whyNoGateway({ unfit }: GatewayNodes): string {
  if (unfit.length === 0) return 'the cluster has no Node'
  const reported = unfit.slice(0, 3).map(({ node, why }) => `${node}: ${why}`)
  return printable(`no node can be a gateway (${reported.join('; ')}${unfit.length > 3 ? '; …' : ''})`)
}
