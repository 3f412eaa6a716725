/** Reads the settings of an installed broker, whatever tool installed it. They stay until an option changes them. */
import {
  ETCD_LOGIN_VOLUME,
  EVERYWHERE,
  EXTERNAL_TRAFFIC_POLICY,
  TOPOLOGY_FROM,
  planBroker,
} from '../../../install/install.ts'
import {
  BROKER_CLAIM,
  DEFAULT_VALUES,
  ETCD_VOLUME,
  type EtcdLogin,
  type InstallValues,
  type ManifestObject,
  type MarkValues,
  type ResourceValues,
  type TolerationValues,
  formatImageName,
  objectName,
  parseImageName,
} from '../../../install/values/values.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { hasOpenMetrics, imageValues, readMarks, upgradedImage } from '../../installation/installation.ts'

// Parses the arguments of an installed broker, however they are written. Pure.

/** The flags of `sealane broker serve` in this release. Each takes a value, except that those in ALONE may omit it. */
export const SERVE_FLAGS: readonly string[] = [
  '--state',
  '--listen',
  '--advertise',
  '--relay',
  '--relay-here',
  '--status-listen',
  '--clusterset',
  '--global-range',
  '--clusterset-ip-range',
  '--allow-namespace',
  '--external-traffic-policy',
  '--accept-empty',
  '--approve',
  '--admin-listen',
  '--audit-log',
  '--audit-log-size',
  '--audit-log-keep',
  '--quota-records',
  '--quota-bytes',
  '--quota-changes',
  '--quota-streams',
  '--max-members',
  '--renewal-grace',
  '--store',
  '--etcd-ca',
  '--etcd-cert',
  '--etcd-key',
  '--etcd-password-file',
  '--connection-age',
  '--default-access',
  '--topology-from',
  '--drain',
  '--ca-dir',
  '--ca-signer',
  '--ca-signer-arg',
  '--log-level',
]

/** The value of a flag that is given without one. */
const ALONE: Readonly<Record<string, string>> = { '--approve': 'yes', '--relay-here': 'yes' }

interface ServeArgs {
  /** `--flag=value` each, in their order. */
  readonly known: readonly string[]
  /** The arguments that this release does not know, as they are written. */
  readonly unknown: readonly string[]
}

const COMMAND = ['broker', 'serve']

/** Splits `broker serve --flag value --flag=value …`. */
function readServeArgs(args: readonly string[]): ServeArgs {
  const known: string[] = []
  const unknown: string[] = []
  const words = COMMAND.every((word, i) => args[i] === word) ? args.slice(COMMAND.length) : [...args]
  for (let i = 0; i < words.length; i += 1) {
    const [word = '', next] = [words[i], words[i + 1]]
    const [flag = ''] = word.split('=', 1)
    const apart = flag === word && word.startsWith('--') && next !== undefined && !next.startsWith('--')
    if (apart) i += 1
    const alone = flag === word ? ALONE[flag] : undefined
    if (SERVE_FLAGS.includes(flag) && (apart || flag !== word)) known.push(apart ? `${word}=${next}` : word)
    else if (alone !== undefined) known.push(`${word}=${alone}`)
    else unknown.push(apart ? `${word} ${next}` : word)
  }
  return { known, unknown }
}

/** All values of one flag, in their order. */
function saidFor({ known }: ServeArgs, flag: string): readonly string[] {
  return known.filter((one) => one.startsWith(`${flag}=`)).map((one) => one.slice(flag.length + 1))
}

/** The objects of the installed broker. Undefined if they do not exist. */
export interface InstalledBroker {
  /** The workload of a single broker with a volume of its own. */
  readonly statefulSet: ManifestObject | undefined
  /** The workload of replicas. */
  readonly deployment: ManifestObject | undefined
  /** The StatefulSet of the etcd that was installed with the broker. */
  readonly etcd: ManifestObject | undefined
  readonly hasEtcdData: boolean
  readonly service: ManifestObject | undefined
  readonly claim: ManifestObject | undefined
  readonly networkPolicy: ManifestObject | undefined
}

/** The workload of an installed broker, which is one of the two. */
export async function brokerWorkload(
  admin: Pick<ClusterAdmin, 'get'>,
  namespace: string,
  signal: AbortSignal,
): Promise<Pick<InstalledBroker, 'statefulSet' | 'deployment'>> {
  const ref = { apiVersion: 'apps/v1', namespace, name: objectName('broker') }
  return {
    statefulSet: await admin.get({ ...ref, kind: 'StatefulSet' }, signal),
    deployment: await admin.get({ ...ref, kind: 'Deployment' }, signal),
  }
}

export async function installedBroker(
  admin: Pick<ClusterAdmin, 'get'>,
  namespace: string,
  signal: AbortSignal,
): Promise<InstalledBroker> {
  const own = objectName('broker')
  const data = `${ETCD_VOLUME}-${objectName('etcd')}-0`
  const kept = await admin.get({ apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name: data }, signal)
  return {
    ...(await brokerWorkload(admin, namespace, signal)),
    etcd: await admin.get({ apiVersion: 'apps/v1', kind: 'StatefulSet', namespace, name: objectName('etcd') }, signal),
    hasEtcdData: kept !== undefined,
    service: await admin.get({ apiVersion: 'v1', kind: 'Service', namespace, name: own }, signal),
    claim: await admin.get({ apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name: BROKER_CLAIM }, signal),
    networkPolicy: await admin.get(
      { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', namespace, name: own },
      signal,
    ),
  }
}

/** True if there are settings to keep. */
export function isInstalled({ service, ...earlier }: InstalledBroker): boolean {
  return service !== undefined || hasState(earlier)
}

/** True if there is, or may be, a state that a broker of another form would not use. */
export function hasState(earlier: Omit<InstalledBroker, 'service' | 'networkPolicy'>): boolean {
  const { statefulSet, deployment, etcd, claim, hasEtcdData } = earlier
  return (statefulSet ?? deployment ?? etcd ?? claim) !== undefined || hasEtcdData
}

function workloadOf({ statefulSet, deployment }: InstalledBroker): ManifestObject | undefined {
  return statefulSet ?? deployment
}

interface PodSpec {
  readonly containers?: readonly ContainerSpec[]
  readonly imagePullSecrets?: readonly { readonly name: string }[]
  readonly nodeSelector?: Readonly<Record<string, string>>
  readonly tolerations?: readonly TolerationValues[]
  readonly priorityClassName?: string
  readonly volumes?: readonly { readonly name: string; readonly secret?: { readonly secretName?: string } }[]
}
interface ContainerSpec {
  readonly name: string
  readonly image?: string
  readonly imagePullPolicy?: string
  readonly args?: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value?: string }[]
  readonly resources?: ResourceValues
}

/**
 * `values` with the settings of the installed objects. Settings that the objects do not determine keep their values.
 * Without a workload `broker.advertise` is empty, because nothing is advertised yet. Pure.
 */
export function keepInstalled(values: InstallValues, earlier: InstalledBroker): InstallValues {
  const { broker } = values
  const pod = podOf(workloadOf(earlier))
  const container = containerOf(workloadOf(earlier))
  const { image, imagePullPolicy = values.image.pullPolicy } = container ?? {}
  const args = readServeArgs(container?.args ?? [])
  return withExtraArgs(
    {
      ...values,
      ...keptMarks(earlier),
      image: image === undefined ? values.image : { ...parseImageName(image), pullPolicy: imagePullPolicy },
      imagePullSecrets: pod?.imagePullSecrets ?? values.imagePullSecrets,
      metrics: { ...values.metrics, open: hasOpenMetrics(container) },
      logLevel: saidFor(args, '--log-level').at(-1) ?? values.logLevel,
      broker: {
        ...broker,
        networkPolicies: keptPolicies(earlier, image),
        advertise: saidFor(args, '--advertise'),
        clusterset: saidFor(args, '--clusterset').at(-1) ?? broker.clusterset,
        topologyFrom: container?.env?.find(({ name }) => name === TOPOLOGY_FROM)?.value ?? broker.topologyFrom,
        resources: container?.resources ?? broker.resources,
        nodeSelector: pod?.nodeSelector ?? broker.nodeSelector,
        tolerations: pod?.tolerations ?? broker.tolerations,
        priorityClassName: pod === undefined ? broker.priorityClassName : (pod.priorityClassName ?? ''),
        service: keptService(broker.service, earlier.service),
        storage: keptStorage(broker.storage, earlier.claim),
        ...keptStore(broker, earlier, args),
      },
      etcd: keptEtcd(values.etcd, earlier),
    },
    args.known,
  )
}

function keptMarks({ statefulSet, deployment, etcd, service, claim, networkPolicy }: InstalledBroker): MarkValues {
  const all = [statefulSet, deployment, etcd, service, claim, networkPolicy]
  return readMarks(all.filter((object) => object !== undefined))
}

/** A missing NetworkPolicy was turned off by a user, unless the broker is of an earlier release, which had none. */
function keptPolicies(earlier: InstalledBroker, image: string | undefined): boolean {
  const { networkPolicy } = earlier
  if (workloadOf(earlier) === undefined || networkPolicy !== undefined) return true
  return image !== undefined && upgradedImage(image, formatImageName(DEFAULT_VALUES.image)) !== undefined
}

/**
 * Arguments that this release does not know, as they are written. A broker of this release would not start with them.
 * Pure.
 */
export function unknownArgs(earlier: InstalledBroker): readonly string[] {
  return readServeArgs(containerOf(workloadOf(earlier))?.args ?? []).unknown
}

/** These flags have values of their own. The last flag is only valid for one deploy. */
const OWN_VALUES = ['--advertise', '--clusterset', '--log-level', '--accept-empty']

/** Keeps the arguments that no other value produces. */
function withExtraArgs(values: InstallValues, known: readonly string[]): InstallValues {
  const workload = planBroker({ ...values, broker: { ...values.broker, extraArgs: [] } })
    .flatMap(({ objects }) => objects)
    .find((object) => containerOf(object) !== undefined)
  const { args = [], env = [] } = containerOf(workload) ?? {}
  const policy = env.find(({ name }) => name === EXTERNAL_TRAFFIC_POLICY)?.value ?? ''
  const listening = readServeArgs(args).known
  // An earlier release listened on IPv4 alone. Both places at once would be one too many.
  const earlier = listening.map((one) => one.replace(`=${EVERYWHERE}:`, '=0.0.0.0:'))
  const planned = [...listening, ...earlier, `--external-traffic-policy=${policy}`]
  const extraArgs = known.filter((one) => !planned.includes(one) && !OWN_VALUES.includes(one.split('=', 1)[0] ?? ''))
  return { ...values, broker: { ...values.broker, extraArgs } }
}

function containerOf(workload: ManifestObject | undefined): ContainerSpec | undefined {
  return podOf(workload)?.containers?.find(({ name }) => name === 'broker')
}

/**
 * Replaces the image of an earlier release, in any repository, by that of this release. Keeps any other image. Pure.
 */
export function withThisRelease(kept: InstallValues): InstallValues {
  const image = upgradedImage(formatImageName(kept.image), formatImageName(DEFAULT_VALUES.image))
  return image === undefined ? kept : imageValues(kept, image, kept.image.pullPolicy)
}

/**
 * The value of `--store` of the broker in this workload. Undefined if the broker has a volume of its own, or if there
 * is no broker. Pure.
 */
export function storeUrlOf(workload: ManifestObject | undefined): string | undefined {
  return saidFor(readServeArgs(containerOf(workload)?.args ?? []), '--store').at(-1)
}

function podOf(workload: ManifestObject | undefined): PodSpec | undefined {
  const spec = workload?.['spec'] as { readonly template?: { readonly spec?: PodSpec } } | undefined
  return spec?.template?.spec
}

/**
 * Annotations are not read, because they belong to the cloud provider and other owners. Server-side apply does not
 * change them.
 */
function keptService(
  service: InstallValues['broker']['service'],
  found: ManifestObject | undefined,
): InstallValues['broker']['service'] {
  const spec = (found?.['spec'] ?? {}) as {
    readonly type?: string
    readonly loadBalancerClass?: string
    readonly externalTrafficPolicy?: string
  }
  const { type = service.type, loadBalancerClass = service.loadBalancerClass } = spec
  const { externalTrafficPolicy = service.externalTrafficPolicy } = spec
  return { ...service, type, loadBalancerClass, externalTrafficPolicy }
}

function keptStorage(
  storage: InstallValues['broker']['storage'],
  claim: ManifestObject | undefined,
): InstallValues['broker']['storage'] {
  const spec = (claim?.['spec'] ?? {}) as {
    readonly storageClassName?: string
    readonly resources?: { readonly requests?: { readonly storage?: string } }
  }
  const { storageClassName = storage.storageClassName, resources } = spec
  return { size: resources?.requests?.storage ?? storage.size, storageClassName }
}

/** Continues to use the data that an uninstall has left. */
function keptStore(
  { etcd, replicas }: InstallValues['broker'],
  { statefulSet, deployment, hasEtcdData, claim, etcd: included }: InstalledBroker,
  args: ServeArgs,
): Pick<InstallValues['broker'], 'store' | 'replicas' | 'etcd'> {
  const url = saidFor(args, '--store').at(-1)
  if (deployment === undefined || statefulSet !== undefined || url === undefined) {
    const isEtcd = statefulSet === undefined && claim === undefined && (included !== undefined || hasEtcdData)
    return { store: isEtcd ? 'etcd' : 'sqlite', replicas, etcd }
  }
  const secret = podOf(deployment)?.volumes?.find(({ name }) => name === ETCD_LOGIN_VOLUME)?.secret?.secretName
  const hasPassword = saidFor(args, '--etcd-password-file').length > 0
  const { replicas: kept = replicas } = (deployment['spec'] ?? {}) as { readonly replicas?: number }
  const login: EtcdLogin = hasPassword ? 'password' : 'certificate'
  return { store: 'etcd', replicas: kept, etcd: { url, login, secret: secret ?? etcd.secret } }
}

function keptEtcd(
  etcd: InstallValues['etcd'],
  { etcd: found, hasEtcdData, ...earlier }: InstalledBroker,
): InstallValues['etcd'] {
  if (found === undefined)
    return { ...etcd, enabled: hasEtcdData && workloadOf({ etcd: found, hasEtcdData, ...earlier }) === undefined }
  const pod = podOf(found)
  const container = pod?.containers?.find(({ name }) => name === 'etcd')
  const { volumeClaimTemplates: [claim] = [] } = (found['spec'] ?? {}) as {
    readonly volumeClaimTemplates?: readonly ManifestObject[]
  }
  return {
    enabled: true,
    image: container?.image ?? etcd.image,
    resources: container?.resources ?? etcd.resources,
    nodeSelector: pod?.nodeSelector ?? etcd.nodeSelector,
    tolerations: pod?.tolerations ?? etcd.tolerations,
    priorityClassName: pod === undefined ? etcd.priorityClassName : (pod.priorityClassName ?? ''),
    storage: claim === undefined ? etcd.storage : keptStorage({ ...etcd.storage, storageClassName: '' }, claim),
  }
}

/** `image.tag: 0.1.0 → 0.2.0`, one line each, in the order of the values. Unchanged values are left out. Pure. */
export function changedValues(before: InstallValues, after: InstallValues): readonly string[] {
  const was = new Map(leaves('', before))
  const is = new Map(leaves('', after))
  return [...new Set([...was.keys(), ...is.keys()])].flatMap((path) => {
    const [from, to] = [was.get(path) ?? 'nothing', is.get(path) ?? 'nothing']
    return from === to ? [] : [`${path}: ${from} → ${to}`]
  })
}

function leaves(path: string, value: unknown): readonly (readonly [string, string])[] {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return Object.entries(value).flatMap(([key, inner]) => leaves(path === '' ? key : `${path}.${key}`, inner))
  }
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return [[path, text === '' || text === '[]' ? 'nothing' : text]]
}
