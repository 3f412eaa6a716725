/** From what was found and what was said to what a join will do: settings, objects and labels. Pure. */
import { formatYaml } from '../../kubeapi/kubeapi.ts'
import {
  DNS_CONTAINER_PORT,
  type InstallValues,
  type ManifestObject,
  SITE_CONFIG,
  SITE_KEY,
} from '../../install/values/values.ts'
import { DEFAULT_ACTIVE_GATEWAYS } from '../../model/lanes/lanes.ts'
import { type ClusterId, isDnsLabel } from '../../model/model.ts'
import { titleOf } from '../../kubeapi/kube/kube.ts'
import { type Ask, type Discovery, at, documentIn, textAt, textsAt } from '../discovery/discovery.ts'
import { type GatewayOption, type GatewayOptions, planGateways } from './plan-gateways.ts'
import {
  type AskedOptions,
  type InstalledObjects,
  type InstalledValues,
  type NodeChange,
  planInstalledMember,
  readInstalledValues,
} from '../installation/installation.ts'

/** What flags and answers say; absent where they say nothing. */
export interface JoinOptions extends GatewayOptions {
  readonly clusterId?: ClusterId
  readonly podCIDRs?: readonly string[]
  readonly serviceCIDRs?: readonly string[]
  /** Beside those of an earlier join; null takes one of them away. */
  readonly labels: Readonly<Record<string, string | null>>
  /** Beside those of an earlier join. */
  readonly allowedNamespaces?: readonly string[]
}

/** What is in the cluster already, and what of it is to change. */
export interface InstalledInit {
  readonly live: InstalledObjects
  readonly asked: AskedOptions
}

const NOTHING_STANDS: InstalledInit = { live: new Map(), asked: {} }

export interface JoinPlan {
  readonly clusterId: ClusterId
  /** What is installed, part by part. */
  readonly values: InstalledValues
  /** What is not as it could be and stays so, one sentence each. */
  readonly notes: readonly string[]
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly gateways: readonly GatewayOption[]
  /** How many of the gateways are active at once. */
  readonly activeGateways: number
  /** Text of the site file. */
  readonly site: string
  /** Nodes whose label or annotation differs from what is wanted. */
  readonly nodes: readonly NodeChange[]
  /** Everything to apply but CRDs and the Secret, in order. */
  readonly objects: readonly ManifestObject[]
}

/** What only a person can say, after the wishes. */
export function openQuestions(discovery: Discovery, given: JoinOptions): readonly Ask[] {
  return discovery.asks.filter(({ field }) => {
    if (field === 'podCIDRs') return given.podCIDRs === undefined
    if (field === 'serviceCIDRs') return given.serviceCIDRs === undefined
    return given.gateways.length === 0
  })
}

/**
 * Call once openQuestions() is empty. What is installed counts for more than what is found, and flags for more than
 * both.
 */
export function planJoin(
  discovery: Discovery,
  given: JoinOptions & { readonly clusterId: ClusterId },
  values: InstallValues,
  { live, asked }: InstalledInit = NOTHING_STANDS,
): JoinPlan {
  const installed = installedSite(values, live)
  const found = { podCIDRs: discovery.podCIDRs?.value ?? [], serviceCIDRs: discovery.serviceCIDRs?.value ?? [] }
  const podCIDRs = given.podCIDRs ?? installed?.podCIDRs ?? found.podCIDRs
  const serviceCIDRs = given.serviceCIDRs ?? installed?.serviceCIDRs ?? found.serviceCIDRs
  const { gateways, activeGateways, nodes, notes } = planGateways(discovery, given, installed?.activeGateways)
  const labels = changedLabels(installed?.labels ?? discovery.earlier.labels, given.labels)
  const allowed = new Set([...(installed?.allowedNamespaces ?? []), ...(given.allowedNamespaces ?? [])])
  const lists = { podCIDRs, serviceCIDRs, labels, allowedNamespaces: [...allowed] }
  const facts = { name: given.clusterId, ...lists, activeGateways }
  const site = siteText(facts, installed)
  const criticalPodsQuota = values.member.criticalPodsQuota || discovery.distribution.value === 'gke'
  const defaults = { ...values, member: { ...values.member, criticalPodsQuota } }
  const read = readInstalledValues(defaults, asked, live)
  return {
    clusterId: given.clusterId,
    values: read,
    notes: [...read.leftOut.map(leftOutNote), ...notes],
    podCIDRs,
    serviceCIDRs,
    gateways,
    activeGateways,
    site,
    nodes,
    objects: planInstalledMember(read, site, live),
  }
}

interface SiteFacts {
  readonly name: string
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  readonly allowedNamespaces: readonly string[]
  readonly activeGateways: number
}

interface InstalledSite extends SiteFacts {
  readonly text: string
  readonly document: object
}

/** The site file that is there; undefined where there is none that can be read. */
export function installedSite(values: InstallValues, live: InstalledObjects): InstalledSite | undefined {
  const { namespace } = values.member
  const text = textAt(live.get(titleOf({ kind: 'ConfigMap', namespace, name: SITE_CONFIG })), 'data', SITE_KEY)
  const document = documentIn(text)
  const [name, podCIDRs] = [textAt(document, 'metadata', 'name'), textsAt(document, 'spec', 'podCIDRs')]
  if (text === undefined || name === undefined || podCIDRs.length === 0 || at(document, 'kind') !== 'Site') {
    return undefined
  }
  const labels = Object.entries(at(document, 'spec', 'labels') ?? {}).filter(
    (pair): pair is [string, string] => typeof pair[1] === 'string',
  )
  const serviceCIDRs = textsAt(document, 'spec', 'serviceCIDRs')
  const allowedNamespaces = textsAt(document, 'spec', 'allowedNamespaces')
  const count = at(document, 'spec', 'activeGateways')
  const activeGateways = typeof count === 'number' ? count : DEFAULT_ACTIVE_GATEWAYS
  const lists = { podCIDRs, serviceCIDRs, labels: Object.fromEntries(labels), allowedNamespaces }
  const facts = { name, ...lists, activeGateways }
  return { text, document: document as object, ...facts }
}

function changedLabels(
  before: Readonly<Record<string, string>>,
  given: JoinOptions['labels'],
): Readonly<Record<string, string>> {
  const entries = Object.entries({ ...before, ...given })
  return Object.fromEntries(entries.filter((pair): pair is [string, string] => pair[1] !== null))
}

function leftOutNote(name: string): string {
  return `ValidatingAdmissionPolicyBinding ${name} was taken away and stays away: its policy is not in force`
}

/** The same for the same facts, whatever the order of labels. */
function factsText(facts: SiteFacts): string {
  const { name, podCIDRs, serviceCIDRs, labels, allowedNamespaces, activeGateways } = facts
  const lists = [podCIDRs, serviceCIDRs, allowedNamespaces]
  return JSON.stringify([name, activeGateways, ...lists, Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1))])
}

/** To the byte as it is where nothing is to change: a change starts all pods anew. */
function siteText(site: SiteFacts, installed: InstalledSite | undefined): string {
  const { name, podCIDRs, serviceCIDRs, labels, allowedNamespaces, activeGateways } = site
  // An image of the last release does not start with fields that it does not know.
  const optional = {
    ...(allowedNamespaces.length === 0 ? {} : { allowedNamespaces }),
    ...(activeGateways === DEFAULT_ACTIVE_GATEWAYS ? {} : { activeGateways }),
  }
  if (installed === undefined) {
    return formatYaml({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Site',
      metadata: { name },
      spec: {
        kubernetes: {},
        podCIDRs,
        serviceCIDRs,
        labels,
        ...optional,
        dns: { listen: [`0.0.0.0:${DNS_CONTAINER_PORT}`] },
      },
    })
  }
  const { text, document } = installed
  if (factsText(installed) === factsText(site)) return text
  const [metadata, spec] = [at(document, 'metadata'), at(document, 'spec')] as [object, Record<string, unknown>]
  const { activeGateways: _before, ...rest } = spec
  return formatYaml({
    ...document,
    metadata: { ...metadata, name },
    spec: { ...rest, podCIDRs, serviceCIDRs, labels, ...optional },
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
