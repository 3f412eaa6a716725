/** The version of each part in a cluster: as the part reports it, else by the image of its pods. */
import { type ComponentName, DEFAULT_VALUES, type ManifestObject, objectName } from '../../install/values/values.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { brokerWorkload, podBroker } from '../broker/broker.ts'
import type { ClusterAdmin } from '../context/context.ts'

export interface PartVersion {
  readonly part: ComponentName | 'kubernetes'
  /** Undefined if it is not known. */
  readonly version?: string
  /** The reason why it is not known. */
  readonly unknown?: string
  /** The source of the version: `status of c1n1, c1n2`, `image`, `the pod`. */
  readonly source?: string
  readonly image?: string
}

export interface ReadVersionsInit {
  /** `--context c1`, for the commands that messages recommend. */
  readonly flags: string
  readonly signal: AbortSignal
  /** Runs one question with its own time limit. */
  readonly limited: <T>(ask: (signal: AbortSignal) => Promise<T>) => Promise<T>
}

type Admin = Pick<ClusterAdmin, 'title' | 'version' | 'get' | 'list' | 'forward'>

/** Rejects only after the signal. A version that cannot be determined is reported as unknown. */
export async function readVersions(admin: Admin, init: ReadVersionsInit): Promise<readonly PartVersion[]> {
  const server = await answered(init, 'kubernetes', async (signal) => {
    const { gitVersion } = (await admin.version(signal)) as { readonly gitVersion?: string }
    return [{ part: 'kubernetes', version: gitVersion ?? 'not reported', source: 'the API server' }]
  })
  // An API server that does not answer this question does not answer any other.
  if (server.some(({ unknown }) => unknown !== undefined)) return server
  const parts = await Promise.all([
    ...(['agent', 'dns'] as const).map((part) => answered(init, part, (signal) => byImage(admin, part, signal))),
    answered(init, 'gateway', (signal) => byStatus(admin, 'gateway', signal)),
    answered(init, 'routeagent', (signal) => byStatus(admin, 'routeagent', signal)),
    answered(init, 'broker', (signal) => ofBroker(admin, init.flags, signal)),
  ])
  return [...server, ...parts.flat()]
}

async function answered(
  { limited, signal }: ReadVersionsInit,
  part: PartVersion['part'],
  ask: (signal: AbortSignal) => Promise<readonly PartVersion[]>,
): Promise<readonly PartVersion[]> {
  try {
    return await limited(ask)
  } catch (error) {
    signal.throwIfAborted()
    return [{ part, unknown: messageOf(error) }]
  }
}

const WORKLOADS: Readonly<Record<Exclude<ComponentName, 'broker'>, string>> = {
  agent: 'Deployment',
  dns: 'Deployment',
  console: 'Deployment',
  gateway: 'DaemonSet',
  routeagent: 'DaemonSet',
}

async function workloadOf(admin: Admin, part: ComponentName, signal: AbortSignal): Promise<ManifestObject | undefined> {
  if (part === 'broker') {
    const { statefulSet, deployment } = await brokerWorkload(admin, DEFAULT_VALUES.broker.namespace, signal)
    return statefulSet ?? deployment
  }
  const { namespace } = DEFAULT_VALUES.member
  return admin.get({ apiVersion: 'apps/v1', kind: WORKLOADS[part], namespace, name: objectName(part) }, signal)
}

async function imageOf(admin: Admin, part: ComponentName, signal: AbortSignal): Promise<string | undefined> {
  const spec = (await workloadOf(admin, part, signal))?.['spec'] as WorkloadSpec | undefined
  return spec?.template?.spec?.containers?.[0]?.image
}

interface WorkloadSpec {
  readonly template?: { readonly spec?: { readonly containers?: readonly { readonly image?: string }[] } }
}

async function byImage(admin: Admin, part: ComponentName, signal: AbortSignal): Promise<readonly PartVersion[]> {
  const image = await imageOf(admin, part, signal)
  if (image === undefined) return [{ part, unknown: 'not in this cluster' }]
  return [{ part, version: tagOf(image), source: 'image', image }]
}

/** The tag of `localhost:5000/sealane:0.1.0@sha256:…` is 0.1.0. */
function tagOf(image: string): string {
  const [name = '', digest] = image.split('@')
  const tag = name.slice(name.lastIndexOf('/') + 1).split(':')[1]
  return tag ?? digest ?? 'latest'
}

/** The versions that the processes on the nodes report, with one row for each version. */
async function byStatus(
  admin: Admin,
  part: 'gateway' | 'routeagent',
  signal: AbortSignal,
): Promise<readonly PartVersion[]> {
  const kind = part === 'gateway' ? 'Gateway' : 'RouteAgent'
  const [objects, [wanted]] = await Promise.all([
    admin.list('sealane.io/v1alpha1', kind, {}, signal),
    byImage(admin, part, signal),
  ])
  const nodes = new Map<string, string[]>()
  for (const object of objects) {
    const version = versionOf(object)
    if (version !== undefined) nodes.set(version, [...(nodes.get(version) ?? []), object.metadata.name])
  }
  if (nodes.size === 0) return wanted === undefined ? [] : [wanted]
  const image = wanted?.image === undefined ? {} : { image: wanted.image }
  return [...nodes].map(([version, names]) => ({ part, version, source: `status of ${names.join(', ')}`, ...image }))
}

function versionOf(object: ManifestObject): string | undefined {
  const status = object['status'] as { readonly version?: unknown } | null | undefined
  return typeof status?.version === 'string' ? status.version : undefined
}

/** Asks the broker in its pod. The version of a broker in another cluster is not known here. */
async function ofBroker(admin: Admin, flags: string, signal: AbortSignal): Promise<readonly PartVersion[]> {
  const image = await imageOf(admin, 'broker', signal)
  if (image === undefined) return [{ part: 'broker', unknown: 'not in this cluster' }]
  const { version } = await podBroker(admin, { flags, signal }).version()
  return [{ part: 'broker', version, source: 'the pod', image }]
}
