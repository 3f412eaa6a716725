/** From what was found and what was said to what a join will do: settings, objects and labels. Pure. */
import { formatYaml } from '../../cluster/yaml.ts'
import { planMember } from '../../install/plan-member.ts'
import type { ManifestObject } from '../../install/manifest-object.ts'
import { DNS_CONTAINER_PORT } from '../../install/ports.ts'
import type { InstallValues } from '../../install/values.ts'
import { ANNOTATION_PUBLIC_ADDRESS, LABEL_GATEWAY } from '../../model/gateway-node.ts'
import { type ClusterId, isDnsLabel } from '../../model/ids.ts'
import type { Ask, Discovery } from '../discovery/discover.ts'

/** What flags and answers say; absent where they say nothing. */
export interface JoinWishes {
  readonly clusterId?: ClusterId
  readonly podCIDRs?: readonly string[]
  readonly serviceCIDRs?: readonly string[]
  /** Empty: those of an earlier join. */
  readonly labels: Readonly<Record<string, string>>
  readonly gateways: readonly GatewayWish[]
}

export interface GatewayWish {
  readonly node: string
  readonly publicAddress?: string
}

export interface NodeChange {
  readonly node: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

export interface JoinPlan {
  readonly clusterId: ClusterId
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly gateways: readonly GatewayWish[]
  /** Text of the site file. */
  readonly site: string
  /** Nodes whose label or annotation differs from what is wanted. */
  readonly nodes: readonly NodeChange[]
  /** Everything to apply but CRDs and the Secret, in order. */
  readonly objects: readonly ManifestObject[]
}

/** What only a person can say, after the wishes. */
export function openQuestions(discovery: Discovery, wishes: JoinWishes): readonly Ask[] {
  return discovery.asks.filter(({ field }) => {
    if (field === 'podCIDRs') return wishes.podCIDRs === undefined
    if (field === 'serviceCIDRs') return wishes.serviceCIDRs === undefined
    return wishes.gateways.length === 0
  })
}

/** Call once openQuestions() is empty. */
export function planJoin(
  discovery: Discovery,
  wishes: JoinWishes & { readonly clusterId: ClusterId },
  values: InstallValues,
): JoinPlan {
  const podCIDRs = wishes.podCIDRs ?? discovery.podCIDRs?.value ?? []
  const serviceCIDRs = wishes.serviceCIDRs ?? discovery.serviceCIDRs?.value ?? []
  const gateways = chooseGateways(discovery, wishes.gateways)
  const criticalPodsQuota = values.member.criticalPodsQuota || discovery.distribution.value === 'gke'
  const lanes = newLanes(discovery, gateways, wishes.gateways.length > 0)
  const labels = Object.keys(wishes.labels).length > 0 ? wishes.labels : discovery.earlier.labels
  const site = siteText({ name: wishes.clusterId, podCIDRs, serviceCIDRs, labels })
  return {
    clusterId: wishes.clusterId,
    podCIDRs,
    serviceCIDRs,
    gateways,
    site,
    nodes: gateways.flatMap((gateway) => nodeChange(discovery, gateway, lanes.get(gateway.node))),
    objects: planMember({ ...values, member: { ...values.member, site, criticalPodsQuota } }).flatMap(
      (part) => part.objects,
    ),
  }
}

/** One serves, and one stands by for it. */
const GATEWAYS_OF_A_LANE = 2

/** What was asked for; else every Node that is labelled; else the best candidates. */
function chooseGateways(discovery: Discovery, wished: readonly GatewayWish[]): readonly GatewayWish[] {
  if (wished.length > 0) return wished
  const { candidates } = discovery.gateways
  const labelled = candidates.filter(({ lane }) => lane !== undefined)
  return (labelled.length > 0 ? labelled : candidates.slice(0, GATEWAYS_OF_A_LANE)).map(({ node, publicAddress }) => ({
    node,
    ...(publicAddress === undefined ? {} : { publicAddress }),
  }))
}

/**
 * Lanes for gateways that have none yet, by node. Those that were asked for get one each, none that another Node is
 * labelled with; those that were found share one.
 */
function newLanes(
  discovery: Discovery,
  gateways: readonly GatewayWish[],
  wasAsked: boolean,
): ReadonlyMap<string, number> {
  const present = new Map(discovery.gateways.candidates.map(({ node, lane }) => [node, lane]))
  const taken = new Set(present.values())
  const lanes = new Map<string, number>()
  for (const [i, { node }] of gateways.entries()) {
    if (present.get(node) !== undefined) continue
    let lane = wasAsked ? i : 0
    while (wasAsked && taken.has(lane)) lane += 1
    taken.add(lane)
    lanes.set(node, lane)
  }
  return lanes
}

function nodeChange(
  discovery: Discovery,
  { node, publicAddress }: GatewayWish,
  lane: number | undefined,
): NodeChange[] {
  const known = discovery.gateways.candidates.find((candidate) => candidate.node === node)
  const labels = lane === undefined ? {} : { [LABEL_GATEWAY]: String(lane) }
  // An ExternalIP that was found is not stated yet: the gateway reads the annotation alone.
  const same = publicAddress === undefined || (known?.annotated === true && publicAddress === known.publicAddress)
  const annotations = same ? {} : { [ANNOTATION_PUBLIC_ADDRESS]: publicAddress }
  const nothing = Object.keys(labels).length + Object.keys(annotations).length === 0
  return nothing ? [] : [{ node, labels, annotations }]
}

function siteText(site: {
  readonly name: string
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
}): string {
  const { name, podCIDRs, serviceCIDRs, labels } = site
  return formatYaml({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Site',
    metadata: { name },
    spec: { kubernetes: {}, podCIDRs, serviceCIDRs, labels, dns: { listen: [`0.0.0.0:${DNS_CONTAINER_PORT}`] } },
  })
}

const MAX_ID = 63

/** A cluster id made of the cluster's name in the kubeconfig; undefined where nothing of it can be used. */
export function idFromName(name: string | undefined): string | undefined {
  // Cloud providers' names are paths: arn:aws:eks:…:cluster/name, gke_project_zone_name.
  const last =
    (name ?? '')
      .toLowerCase()
      .split(/[/:_@]/)
      .filter(Boolean)
      .at(-1) ?? ''
  const id = last
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/^-+/, '')
    .slice(0, MAX_ID)
    .replace(/-+$/, '')
  return isDnsLabel(id) ? id : undefined
}
