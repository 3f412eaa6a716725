/** Plans a join from the discovered facts and the options: settings, objects and labels. Pure. */
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

/** The options and answers of the user. A field is undefined if the user has not set it. */
export interface JoinOptions extends GatewayOptions {
  readonly clusterId?: ClusterId
  readonly podCIDRs?: readonly string[]
  readonly serviceCIDRs?: readonly string[]
  /** Added to the labels of an earlier join. Null removes a label. */
  readonly labels: Readonly<Record<string, string | null>>
  /** Added to those of an earlier join. */
  readonly allowedNamespaces?: readonly string[]
}

/** The objects that are installed already, and the values to change. */
export interface InstalledInit {
  readonly live: InstalledObjects
  readonly asked: AskedOptions
}

const NOTHING_STANDS: InstalledInit = { live: new Map(), asked: {} }

export interface JoinPlan {
  readonly clusterId: ClusterId
  /** The values to install, for each part. */
  readonly values: InstalledValues
  /** Remarks about settings that could be better and stay as they are, one sentence each. */
  readonly notes: readonly string[]
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly gateways: readonly GatewayOption[]
  /** How many of the gateways are active at once. */
  readonly activeGateways: number
  /** The text of the site file. */
  readonly site: string
  /** The nodes whose label or annotation has to change. */
  readonly nodes: readonly NodeChange[]
  /** All objects to apply except CRDs and the Secret, in order. */
  readonly objects: readonly ManifestObject[]
}

/** The questions that neither discovery nor the options have answered. */
export function openQuestions(discovery: Discovery, given: JoinOptions): readonly Ask[] {
  return discovery.asks.filter(({ field }) => {
    if (field === 'podCIDRs') return given.podCIDRs === undefined
    if (field === 'serviceCIDRs') return given.serviceCIDRs === undefined
    return given.gateways.length === 0
  })
}

/** Call this once openQuestions() is empty. Installed values override discovered ones, and options override both. */
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

/** The installed site file. Undefined if there is none that can be parsed. */
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
  return `ValidatingAdmissionPolicyBinding ${name} was deleted and is not restored: its policy is not in force`
}

/** A text that is equal for equal facts, whatever the order of the labels. */
function factsText(facts: SiteFacts): string {
  const { name, podCIDRs, serviceCIDRs, labels, allowedNamespaces, activeGateways } = facts
  const lists = [podCIDRs, serviceCIDRs, allowedNamespaces]
  return JSON.stringify([name, activeGateways, ...lists, Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1))])
}

/** Returns the installed text unchanged if no fact changes, because any change of the text restarts all pods. */
function siteText(site: SiteFacts, installed: InstalledSite | undefined): string {
  const { name, podCIDRs, serviceCIDRs, labels, allowedNamespaces, activeGateways } = site
  // Fields with default values are left out, because an image of the previous release rejects fields that it does not
  // know.
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

/** Derives a cluster id from the name of the cluster in the kubeconfig. Undefined if no valid id can be derived. */
export function idFromName(name: string | undefined): string | undefined {
  // Names of cloud providers are paths: arn:aws:eks:…:cluster/name, gke_project_zone_name.
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
