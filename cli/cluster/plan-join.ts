/** Plans a join from the discovered facts and the options: settings, objects and labels. Pure. */
import { formatYaml } from '../../kubeapi/kubeapi.ts'
import {
  DNS_CONTAINER_PORT,
  type InstallValues,
  type ManifestObject,
  SITE_CONFIG,
  SITE_KEY,
} from '../../install/values/values.ts'
import { EXPOSURES, type Exposure } from '../../model/access/access.ts'
import { DEFAULT_ACTIVE_GATEWAYS } from '../../model/lanes/lanes.ts'
import { type ClusterId, VXLAN_PORT, isDnsLabel } from '../../model/model.ts'
import { titleOf } from '../../kubeapi/kube/kube.ts'
import {
  type Ask,
  type Discovery,
  at,
  documentIn,
  outsideText,
  podsOutside,
  textAt,
  textsAt,
} from '../discovery/discovery.ts'
import { type GatewayOption, type GatewayOptions, planGateways } from './plan-gateways.ts'
import {
  type AskedOptions,
  type InstalledObjects,
  type InstalledValues,
  type NodeChange,
  objectsToRemove,
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
  /** The UDP port of the overlay. If undefined, the installed one. */
  readonly overlayPort?: number
  /** What other members may call. If undefined, a member keeps what it has, and a new one gets `exports`. */
  readonly exposure?: Exposure
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
  /** The UDP port of the overlay. */
  readonly overlayPort: number
  /** The text of the site file. */
  readonly site: string
  /** The nodes whose label or annotation has to change. */
  readonly nodes: readonly NodeChange[]
  /** All objects to apply except CRDs and the Secret, in order. */
  readonly objects: readonly ManifestObject[]
  /** Objects of an earlier join that go, in the order of their creation. */
  readonly removed: readonly ManifestObject[]
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
  const overlayPort = given.overlayPort ?? installed?.overlayPort ?? VXLAN_PORT
  const exposure = given.exposure ?? installed?.exposure
  const facts = { name: given.clusterId, ...lists, activeGateways, overlayPort, exposure }
  const site = siteText(facts, installed)
  const criticalPodsQuota = values.member.criticalPodsQuota || discovery.distribution.value === 'gke'
  const defaults = forMachines({ ...values, member: { ...values.member, criticalPodsQuota } }, discovery)
  const read = readInstalledValues(defaults, asked, live)
  return {
    clusterId: given.clusterId,
    values: read,
    notes: [
      ...read.leftOut.map(leftOutNote),
      ...notes,
      ...podsNotes(discovery, given.podCIDRs),
      ...portNotes(overlayPort, installed),
      ...exposureNotes(discovery, exposure),
    ],
    podCIDRs,
    serviceCIDRs,
    gateways,
    activeGateways,
    overlayPort,
    site,
    nodes,
    objects: planInstalledMember(read, site, live),
    removed: objectsToRemove(defaults, asked, live),
  }
}

/** The values of a first join that depend on the operating system of the nodes. */
function forMachines(values: InstallValues, { platform }: Discovery): InstallValues {
  const is = (key: string): boolean => platform.some(({ value }) => value === key)
  const { gateway } = values
  return {
    ...values,
    // The kernels of both have WireGuard, and /dev/net/tun exists only where the machine configuration loads module tun.
    // A pod that mounts a device that does not exist never starts.
    gateway: { ...gateway, userSpaceWireguard: gateway.userSpaceWireguard && !is('talos') && !is('bottlerocket') },
    platform: {
      ...values.platform,
      // In OpenShift, the SecurityContextConstraints sets the type.
      seLinuxOptions: is('container-selinux') && !values.platform.openshift ? { type: 'spc_t' } : {},
    },
  }
}

interface SiteFacts {
  readonly name: string
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
  readonly allowedNamespaces: readonly string[]
  readonly activeGateways: number
  /** The UDP port of the overlay. */
  readonly overlayPort: number
  /** Undefined if the file does not say: a member keeps what it has, and a new one exposes exports. */
  readonly exposure: Exposure | undefined
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
  const port = at(document, 'spec', 'overlay', 'port')
  const overlayPort = typeof port === 'number' ? port : VXLAN_PORT
  const stated = textAt(document, 'spec', 'exposure')
  const exposure = EXPOSURES.find((one) => one === stated)
  const facts = { name, ...lists, activeGateways, overlayPort, exposure }
  return { text, document: document as object, ...facts }
}

function changedLabels(
  before: Readonly<Record<string, string>>,
  given: JoinOptions['labels'],
): Readonly<Record<string, string>> {
  const entries = Object.entries({ ...before, ...given })
  return Object.fromEntries(entries.filter((pair): pair is [string, string] => pair[1] !== null))
}

/** Pods outside the networks that the user stated. They are the user's decision, so they are only told. */
function podsNotes({ pods }: Discovery, stated: readonly string[] | undefined): string[] {
  const outside = stated === undefined ? [] : podsOutside(pods, stated)
  if (stated === undefined || outside.length === 0) return []
  const text = outsideText(outside, `the pod CIDRs given (${stated.join(', ')})`)
  return [`${text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '?')}: other clusters do not reach such pods`]
}

function portNotes(port: number, installed: InstalledSite | undefined): string[] {
  if (installed === undefined || installed.overlayPort === port) return []
  return [
    `the overlay moves from UDP ${installed.overlayPort} to UDP ${port}: open it between the nodes; nodes with different ports cannot reach each other, so calls to other clusters fail on some nodes until all routeagents have restarted`,
  ]
}

function exposureNotes({ earlier }: Discovery, stated: Exposure | undefined): string[] {
  // The agent lets a member keep what it has, and a new one expose exports.
  const kept = earlier.clusterId === undefined ? 'exports' : (earlier.exposure ?? 'pods')
  if ((stated ?? kept) !== 'pods') return []
  return ['other members may call all pods of this cluster: --expose exports lets them call exported services only']
}

function leftOutNote(name: string): string {
  return `ValidatingAdmissionPolicyBinding ${name} was deleted and is not restored: its policy is not in force`
}

/** A text that is equal for equal facts, whatever the order of the labels. */
function factsText(facts: SiteFacts): string {
  const { name, podCIDRs, serviceCIDRs, labels, allowedNamespaces, activeGateways, overlayPort, exposure } = facts
  const lists = [podCIDRs, serviceCIDRs, allowedNamespaces]
  return JSON.stringify([
    name,
    activeGateways,
    overlayPort,
    exposure ?? null,
    ...lists,
    Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)),
  ])
}

/**
 * Returns the installed text unchanged if no fact changes, and dns listens where it has to, because any change of the
 * text restarts all pods.
 */
function siteText(site: SiteFacts, installed: InstalledSite | undefined): string {
  const { name, podCIDRs, serviceCIDRs, labels, allowedNamespaces, activeGateways, overlayPort, exposure } = site
  // Fields with default values are left out, because an image of the previous release rejects fields that it does not
  // know.
  const optional = {
    ...(allowedNamespaces.length === 0 ? {} : { allowedNamespaces }),
    ...(activeGateways === DEFAULT_ACTIVE_GATEWAYS ? {} : { activeGateways }),
    ...overlayField(overlayPort, installed),
    ...(exposure === undefined ? {} : { exposure }),
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
        dns: { listen: dnsListen(site) },
      },
    })
  }
  const { text, document } = installed
  const [now, wanted] = [textsAt(document, 'spec', 'dns', 'listen'), dnsListen(site)]
  // An earlier build stated the first of two addresses alone. What a user wrote stays.
  const isToListen = now.join() === ALL_IPV4 && wanted.join() !== ALL_IPV4
  if (factsText(installed) === factsText(site) && !isToListen) return text
  const [metadata, spec] = [at(document, 'metadata'), at(document, 'spec')] as [object, Record<string, unknown>]
  const { activeGateways: _before, overlay: _overlay, ...rest } = spec
  const listens = isToListen ? { dns: { ...(at(spec, 'dns') as object | undefined), listen: wanted } } : {}
  return formatYaml({
    ...document,
    metadata: { ...metadata, name },
    spec: { ...rest, ...listens, podCIDRs, serviceCIDRs, labels, ...optional },
  })
}

const ALL_IPV4 = `0.0.0.0:${DNS_CONTAINER_PORT}`

/**
 * Where dns listens in its pod. In a cluster with IPv6, its Service may have an IPv6 address, which is the one of pods
 * that come first there. A node without IPv6 has no such address.
 */
function dnsListen({ podCIDRs, serviceCIDRs }: Pick<SiteFacts, 'podCIDRs' | 'serviceCIDRs'>): readonly string[] {
  const hasIpv6 = [...podCIDRs, ...serviceCIDRs].some((cidr) => cidr.includes(':'))
  return hasIpv6 ? [ALL_IPV4, `[::]:${DNS_CONTAINER_PORT}`] : [ALL_IPV4]
}

/** The field of the site file, with what else it has. No field if it would be empty. */
function overlayField(port: number, installed: InstalledSite | undefined): { readonly overlay?: object } {
  const { port: _before, ...rest } = { port, ...(at(installed?.document, 'spec', 'overlay') as object | undefined) }
  const overlay = port === VXLAN_PORT ? rest : { port, ...rest }
  return Object.keys(overlay).length === 0 ? {} : { overlay }
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
