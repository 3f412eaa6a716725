/**
 * Reads the values of an installation back from the objects in the cluster, whether the command line, the chart,
 * kustomize or a user created them. So a second join changes only what the user asks for. Pure.
 */
import { planMember } from '../../install/install.ts'
import {
  type InstallValues,
  type ManifestObject,
  type MarkKind,
  type MarkValues,
  type Marks,
  type PartName,
  type PodValues,
  REPLACE_POLICIES,
  type ReplacePolicy,
  SITE_CONFIG,
  SITE_KEY,
  digest,
  isReservedKey,
  objectName,
  partLabels,
} from '../../install/values/values.ts'
import { PROXY_ENV, REPLACE_GATEWAYS, STATUS_METRICS } from '../../install/workloads/workloads.ts'
import { type ManagedFieldsEntry, appliedFields, ownedPart, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import { at, listAt, textAt } from '../discovery/discovery.ts'
import { type AskedOptions, asksResources, imageValues, withMarks } from './values-options.ts'

/** The live objects by title, such as `Deployment sealane-system/sealane-agent`. */
export type InstalledObjects = ReadonlyMap<string, ManifestObject>

export type MemberPart = Exclude<PartName, 'broker'>

/** The order in which the parts determine the common values: the first part that exists counts. */
export const MEMBER_PARTS = ['agent', 'dns', 'gateway', 'routeagent'] as const satisfies readonly MemberPart[]

export interface InstalledValues {
  /** At least one workload of Sealane exists. */
  readonly installed: boolean
  /** The values of objects that belong to no part, and of a part that is missing. */
  readonly common: InstallValues
  readonly parts: Readonly<Record<MemberPart, InstallValues>>
  /** The names of ValidatingAdmissionPolicyBindings that a user has deleted, and that are not created again. */
  readonly leftOut: readonly string[]
}

/** Every object that an installation with these values may have. */
export function installedRefs(values: InstallValues): readonly ManifestObject[] {
  return wholePlan(values).flatMap((part) => part.objects)
}

/** The objects to remove, in the order of their creation: those of a console that the user does not want any more. */
export function objectsToRemove(
  values: InstallValues,
  { console }: AskedOptions,
  live: InstalledObjects,
): readonly ManifestObject[] {
  const going = console === false ? wholePlan(values).filter(({ name }) => name === 'console') : []
  return going.flatMap(({ objects }) => objects).filter((object) => live.has(titleOf(refOf(object))))
}

function wholePlan(values: InstallValues): ReturnType<typeof planMember> {
  const member = {
    ...values.member,
    createNamespace: true,
    site: '-',
    admissionPolicies: true,
    networkPolicies: true,
    criticalPodsQuota: true,
  }
  const { podMonitors } = values.metrics
  return planMember({
    ...values,
    member,
    platform: { ...values.platform, openshift: true },
    gateway: { ...values.gateway, statusListen: 'node' },
    routeagent: { ...values.routeagent, statusListen: 'node' },
    console: { ...values.console, enabled: true },
    metrics: { open: true, podMonitors: { ...podMonitors, enabled: true } },
  })
}

/** `defaults` contain the values that the user asked for, and for all other values those of a first join. */
export function readInstalledValues(
  defaults: InstallValues,
  asked: AskedOptions,
  live: InstalledObjects,
): InstalledValues {
  const { namespace } = defaults.member
  const workloads = MEMBER_PARTS.flatMap((part) => {
    const object = live.get(titleOf({ kind: WORKLOADS[part], namespace, name: objectName(part) }))
    return object === undefined ? [] : [{ part, object }]
  })
  const installed = workloads.length > 0
  const first = workloads[0]
  const shared = installed ? readShared(defaults, asked, live) : defaults
  const common = first === undefined ? shared : readPod(shared, asked, first.part, first.object)
  const parts = Object.fromEntries(
    MEMBER_PARTS.map((part) => {
      const object = workloads.find((one) => one.part === part)?.object
      return [part, object === undefined ? common : readPart(shared, asked, { part, object, live })]
    }),
  ) as Record<MemberPart, InstallValues>
  return { installed, common, parts, leftOut: installed ? missingBindings(defaults, live) : [] }
}

/** All objects to apply: those of planMember(), with each part's own values, and without the marks of other owners. */
export function planInstalledMember(
  { common, parts, leftOut }: InstalledValues,
  site: string,
  live: InstalledObjects,
): readonly ManifestObject[] {
  const withSite = (values: InstallValues): InstallValues => ({ ...values, member: { ...common.member, site } })
  // Objects that belong to no part may depend on the values of the parts.
  const all = { ...common, gateway: parts.gateway.gateway, routeagent: parts.routeagent.routeagent }
  const objects = planMember(withSite(all)).flatMap((part) => {
    const own = MEMBER_PARTS.find((name) => name === part.name)
    if (own === undefined) return part.objects
    // The agent knows on which nodes gateways may run, and gateways call relays through the agent's proxy.
    const agent = { ...parts[own].agent, proxySecret: parts.agent.agent.proxySecret }
    const values = { ...parts[own], agent, gateway: parts.gateway.gateway }
    return planMember(withSite(values)).find(({ name }) => name === own)?.objects ?? []
  })
  return objects
    .filter(({ kind, metadata }) => kind !== BINDING || !leftOut.includes(metadata.name))
    .map(withoutEmpty)
    .map((object) => keepMarks(object, live.get(titleOf(refOf(object))), { live, site, common }))
}

const WORKLOADS = { agent: 'Deployment', dns: 'Deployment', gateway: 'DaemonSet', routeagent: 'DaemonSet' } as const
const POLICY = 'ValidatingAdmissionPolicy'
const BINDING = 'ValidatingAdmissionPolicyBinding'
const SITE_DIGEST = 'sealane.io/site-digest'

function readShared(defaults: InstallValues, asked: AskedOptions, live: InstalledObjects): InstallValues {
  const { namespace } = defaults.member
  const home = live.get(titleOf({ kind: 'Namespace', name: namespace }))
  const kinds = new Set([...live.values()].map(({ kind }) => kind))
  const member = {
    ...defaults.member,
    // A namespace without Sealane's label was created by another tool or user, who keeps it.
    createNamespace: home === undefined || home.metadata.labels?.['app.kubernetes.io/name'] === 'sealane',
    admissionPolicies: kinds.has(POLICY),
    networkPolicies: kinds.has('NetworkPolicy') || isOfBefore(live),
    criticalPodsQuota: kinds.has('ResourceQuota'),
  }
  const podMonitors = readMonitors(defaults, live)
  const agent = live.get(titleOf({ kind: WORKLOADS.agent, namespace, name: objectName('agent') }))
  // If there are PodMonitors, these open the metrics.
  const isOpen = agent !== undefined && !podMonitors.enabled && hasOpenMetrics(containerOf('agent', agent))
  const open = asked.statusListen === undefined ? isOpen : defaults.metrics.open
  const gateway = agent === undefined ? defaults.gateway : { ...defaults.gateway, replace: readReplace(agent) }
  const metrics = { open, podMonitors }
  const console = readConsole(defaults, asked, live)
  return withMarks({ ...defaults, ...readMarks(live.values()), member, gateway, metrics, console }, asked)
}

/** A console stays, as it is, unless this join asks for none. */
function readConsole(
  { console, member }: InstallValues,
  asked: AskedOptions,
  live: InstalledObjects,
): InstallValues['console'] {
  if (asked.console === false) return { ...console, enabled: false }
  const object = live.get(titleOf({ kind: 'Deployment', namespace: member.namespace, name: objectName('console') }))
  return object === undefined ? console : { ...readPlacement('console', object), enabled: true }
}

/** An installation of an earlier release has no such variable, as one with the default. */
function readReplace(agent: ManifestObject): ReplacePolicy {
  const entry = listAt(containerOf('agent', agent), 'env').find((one) => textAt(one, 'name') === REPLACE_GATEWAYS)
  return REPLACE_POLICIES.find((word) => word === textAt(entry, 'value')) ?? 'gone'
}

/**
 * True for an installation of a release that had no NetworkPolicies yet. It has the first of these two policies, but
 * not the second.
 */
function isOfBefore(live: InstalledObjects): boolean {
  const has = (name: string): boolean => live.has(titleOf({ kind: POLICY, name }))
  return has('sealane-agent-slices') && !has('sealane-agent-imports')
}

/** True if the container of agent, dns or broker serves metrics to other pods. */
export function hasOpenMetrics(container: unknown): boolean {
  return hasVariable(container, STATUS_METRICS)
}

function hasVariable(container: unknown, name: string): boolean {
  return listAt(container, 'env').some((entry) => textAt(entry, 'name') === name)
}

/** Reads the values of the PodMonitors from the agent's, which every installation with PodMonitors has. */
function readMonitors({ metrics: { podMonitors }, member }: InstallValues, live: InstalledObjects) {
  const monitor = live.get(titleOf({ kind: 'PodMonitor', namespace: member.namespace, name: objectName('agent') }))
  if (monitor === undefined) return podMonitors
  const [endpoint] = listAt(monitor, 'spec', 'podMetricsEndpoints')
  const ours = partLabels('agent')
  // Labels that all objects have are values of their own. Counted here too, they could not be changed or removed.
  const marks = readMarks(live.values()).objects.labels
  const labels = Object.entries(monitor.metadata.labels ?? {}).filter(
    ([key, value]) => !Object.hasOwn(ours, key) && marks[key] !== value,
  )
  return {
    enabled: true,
    interval: textAt(endpoint, 'interval') ?? podMonitors.interval,
    labels: Object.fromEntries(labels),
  }
}

/** The names of bindings that are missing although their policies exist. */
function missingBindings(values: InstallValues, live: InstalledObjects): readonly string[] {
  return installedRefs(values)
    .filter(({ kind, metadata: { name } }) => {
      return kind === BINDING && live.has(titleOf({ kind: POLICY, name })) && !live.has(titleOf({ kind, name }))
    })
    .map(({ metadata }) => metadata.name)
}

interface InstalledPart {
  readonly part: MemberPart
  readonly object: ManifestObject
  readonly live: InstalledObjects
}

function readPart(values: InstallValues, asked: AskedOptions, { part, object, live }: InstalledPart): InstallValues {
  const read = readPod(values, asked, part, object)
  const placement = readPlacement(part, object)
  const own = {
    ...read[part],
    ...placement,
    ...(asksResources(asked, part) ? { resources: values[part].resources } : {}),
  }
  const statusListen = asked.statusListen ?? (listensOnNode(part, object) ? 'node' : 'loopback')
  const count = at(object, 'spec', 'replicas')
  const replicas = typeof count === 'number' ? { replicas: count } : {}
  if (part === 'agent') {
    const proxySecret = asked.proxySecret ?? proxySecretOf(containerOf(part, object))
    return { ...read, agent: { ...read.agent, ...own, ...replicas, proxySecret } }
  }
  if (part === 'dns') return { ...read, dns: { ...read.dns, ...own, ...replicas, clusterIP: chosenIp(values, live) } }
  const platform = { ...read.platform, seLinuxOptions: readSeLinux(object) ?? read.platform.seLinuxOptions }
  if (part === 'routeagent') return { ...read, platform, routeagent: { ...read.routeagent, ...own, statusListen } }
  const userSpaceWireguard = listAt(podOf(object), 'volumes').some((volume) => textAt(volume, 'name') === 'tun')
  return { ...read, platform, gateway: { ...read.gateway, ...own, userSpaceWireguard, statusListen } }
}

/** Undefined if the pods have none, as those of earlier releases. */
function readSeLinux(object: ManifestObject): Readonly<Record<string, string>> | undefined {
  const options = at(podOf(object), 'securityContext', 'seLinuxOptions')
  return options === undefined ? undefined : (options as Readonly<Record<string, string>>)
}

/** Empty if the agent uses no proxy. */
function proxySecretOf(container: unknown): string {
  const entry = listAt(container, 'env').find((one) => textAt(one, 'name') === PROXY_ENV)
  return textAt(entry, 'valueFrom', 'secretKeyRef', 'name') ?? ''
}

/** True if the status page listens on an address of the node in addition to loopback. */
function listensOnNode(part: MemberPart, object: ManifestObject): boolean {
  const places = listAt(containerOf(part, object), 'args').filter((_, i, args) => args[i - 1] === '--status-listen')
  return places.some((place) => typeof place === 'string' && place.includes('$(NODE_IP)'))
}

/** The values that all parts share. */
function readPod(values: InstallValues, asked: AskedOptions, part: MemberPart, object: ManifestObject): InstallValues {
  const pod = podOf(object)
  const container = containerOf(part, object)
  const earlier = textAt(container, 'image')
  const image =
    asked.image !== undefined || earlier === undefined
      ? imageText(values)
      : (upgradedImage(earlier, imageText(values)) ?? earlier)
  const pullPolicy = asked.imagePullPolicy ?? textAt(container, 'imagePullPolicy') ?? values.image.pullPolicy
  const secrets = listAt(pod, 'imagePullSecrets') as InstallValues['imagePullSecrets']
  return {
    ...imageValues(values, image, pullPolicy),
    imagePullSecrets: asked.imagePullSecret === undefined ? secrets : values.imagePullSecrets,
    logLevel: argumentOf(container, '--log-level') ?? values.logLevel,
  }
}

function readPlacement(part: MemberPart, object: ManifestObject): PodValues {
  const pod = podOf(object)
  return {
    resources: at(containerOf(part, object), 'resources') ?? {},
    nodeSelector: (at(pod, 'nodeSelector') ?? {}) as PodValues['nodeSelector'],
    tolerations: listAt(pod, 'tolerations') as PodValues['tolerations'],
    priorityClassName: textAt(pod, 'priorityClassName') ?? '',
  }
}

function podOf(object: ManifestObject): unknown {
  return at(object, 'spec', 'template', 'spec')
}

function containerOf(part: MemberPart, object: ManifestObject): unknown {
  return listAt(podOf(object), 'containers').find((one) => textAt(one, 'name') === part)
}

function argumentOf(container: unknown, flag: string): string | undefined {
  const args = listAt(container, 'args')
  const value = args[args.indexOf(flag) + 1]
  return args.includes(flag) && typeof value === 'string' ? value : undefined
}

/** The cluster IP that a user requested. One that the server allocated is not a value of the installation. */
function chosenIp(values: InstallValues, live: InstalledObjects): string {
  const { namespace } = values.member
  const service = live.get(titleOf({ kind: 'Service', namespace, name: objectName('dns') }))
  const asked = listAt(service, 'metadata', 'managedFields').some(
    (entry) => at(entry, 'fieldsV1', 'f:spec', 'f:clusterIP') !== undefined,
  )
  return (asked ? textAt(service, 'spec', 'clusterIP') : undefined) ?? values.dns.clusterIP
}

/** The image name as it is in a pod. */
function imageText(values: InstallValues): string {
  const [agent] = planMember(values)
    .flatMap((part) => part.objects)
    .filter(({ kind, metadata }) => kind === 'Deployment' && metadata.name === objectName('agent'))
  return (agent === undefined ? undefined : textAt(containerOf('agent', agent), 'image')) ?? ''
}

/** The fields of a pod that may be empty. */
const MAY_BE_EMPTY = new Set(['nodeSelector', 'tolerations', 'imagePullSecrets', 'resources'])

/**
 * Removes empty fields. The server does not store them, but records the manager that applied them. Another manager that
 * applies the same fields would then get a conflict about nothing.
 */
function withoutEmpty(object: ManifestObject): ManifestObject {
  const text = JSON.stringify(object, (key, value: unknown) =>
    MAY_BE_EMPTY.has(key) && typeof value === 'object' && value !== null && Object.keys(value).length === 0
      ? undefined
      : value,
  )
  return object.kind === 'Deployment' || object.kind === 'DaemonSet' ? (JSON.parse(text) as ManifestObject) : object
}

interface MarkWorld {
  readonly live: InstalledObjects
  readonly site: string
  readonly common: InstallValues
}

function keepMarks(object: ManifestObject, present: ManifestObject | undefined, world: MarkWorld): ManifestObject {
  if (present === undefined) return object
  const owner = present.metadata.labels?.[LABEL_APP_MANAGED_BY]
  const labels = { ...object.metadata.labels, ...(owner === undefined ? {} : { [LABEL_APP_MANAGED_BY]: owner }) }
  const owned =
    owner === undefined || owner === APP_MANAGED_BY_SEALANE
      ? object
      : { ...object, metadata: { ...object.metadata, labels } }
  const reported = textAt(present, 'spec', 'template', 'metadata', 'annotations', SITE_DIGEST)
  return reported !== undefined && reported === digest('') && isSiteInstalled(world)
    ? withDigest(owned, reported)
    : owned
}

/**
 * The chart and kustomize may leave the site file to others. Then a change of the site file does not restart the pods,
 * and a join must not restart them either.
 */
function isSiteInstalled({ live, site, common }: MarkWorld): boolean {
  const map = live.get(titleOf({ kind: 'ConfigMap', namespace: common.member.namespace, name: SITE_CONFIG }))
  return textAt(map, 'data', SITE_KEY) === site
}

function withDigest(object: ManifestObject, value: string): ManifestObject {
  const spec = object['spec'] as { readonly template: { readonly metadata: ManifestObject['metadata'] } }
  const annotations = { ...spec.template.metadata.annotations, [SITE_DIGEST]: value }
  const metadata = { ...spec.template.metadata, annotations }
  return { ...object, spec: { ...spec, template: { ...spec.template, metadata } } }
}

// Reads the marks that an earlier command set: those that, according to managedFields, Sealane applied. Marks of Helm,
// Argo CD, a cloud provider or a user belong to them and stay without being applied.

/** If several objects differ, the first one counts. Pure. */
export function readMarks(objects: Iterable<ManifestObject>): MarkValues {
  const all = [...objects].reverse()
  const object = mergedMarks(all.map((one) => ownMarks(one)))
  const pod = mergedMarks(all.map((one) => ownMarks(one, 'spec', 'template')))
  const alone = (kind: MarkKind): Marks['labels'] =>
    Object.fromEntries(Object.entries(pod[kind]).filter(([key, value]) => object[kind][key] !== value))
  return { objects: object, pods: { labels: alone('labels'), annotations: alone('annotations') } }
}

function mergedMarks(all: readonly Marks[]): Marks {
  const merged = (kind: MarkKind): Marks['labels'] =>
    Object.assign({}, ...all.map((marks) => marks[kind])) as Marks['labels']
  return { labels: merged('labels'), annotations: merged('annotations') }
}

function ownMarks(object: ManifestObject, ...path: readonly string[]): Marks {
  const entries = at(object, 'metadata', 'managedFields') as readonly ManagedFieldsEntry[] | undefined
  const fields = appliedFields(entries, object.apiVersion)
  const owned = fields === undefined ? {} : ownedPart(object, fields)
  const ownOf = (kind: MarkKind): Marks['labels'] => {
    // The labels of PodMonitors are a value of their own.
    if (object.kind === 'PodMonitor' && kind === 'labels') return {}
    const found = Object.entries(at(owned, ...path, 'metadata', kind) ?? {})
    return Object.fromEntries(found.filter(([key]) => !isReservedKey(key)))
  }
  return { labels: ownOf('labels'), annotations: ownOf('annotations') }
}

// Decides which image replaces that of an earlier release. Pure.

/**
 * The image of this release in the current repository, if the current image is that of an earlier release. Undefined
 * for a tag that is no release, for a digest, and for the same or a newer release.
 */
export function upgradedImage(earlier: string, ours: string): string | undefined {
  const [from, to] = [releaseOf(earlier), releaseOf(ours)]
  if (from === undefined || to === undefined || !isBefore(from.numbers, to.numbers)) return undefined
  return `${from.repository}:${from.prefix}${to.text}`
}

interface Release {
  readonly repository: string
  /** `v` or empty. */
  readonly prefix: string
  readonly text: string
  readonly numbers: readonly number[]
}

function releaseOf(image: string): Release | undefined {
  const match = /^([^@]+):(v?)((\d{1,6})\.(\d{1,6})\.(\d{1,6}))$/.exec(image)
  if (match === null) return undefined
  const [, repository = '', prefix = '', text = '', ...numbers] = match
  return { repository, prefix, text, numbers: numbers.map(Number) }
}

function isBefore(a: readonly number[], b: readonly number[]): boolean {
  const i = a.findIndex((number, at) => number !== b[at])
  return i >= 0 && (a[i] ?? 0) < (b[i] ?? 0)
}
