/**
 * Reads the objects that the detectors need from a cluster. Objects that this user may not read are reported and do not
 * stop the rest.
 */
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import type { DynamicClient, DynamicObject } from '../../kubeapi/kube/kube.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import { dnsServices, wantedSettings } from './product.ts'
import { type ClusterSnapshot, type Unread, type World, nameOf, openSnapshot, textAt } from './snapshot.ts'

// The objects that detectors need: a table with one request in each row.

interface Wanted {
  readonly apiVersion: string
  readonly kind: string
  /** The name of one object. Undefined for all objects of the kind. */
  readonly name?: string
  readonly namespace?: string
  readonly labelSelector?: string
  readonly fieldSelector?: string
  /** The request is made only if this CRD exists. */
  readonly crd?: string
  /** The findings that depend on the object. If it is empty, a missing right to read the object is not reported. */
  readonly for: readonly string[]
}

const MOST_OBJECTS = 2000

const PODS = 'pod CIDRs'
const SERVICES = 'service CIDRs'
const CNI = 'CNI'
const PROXY = 'service proxy'
const DNS = 'cluster DNS'

function custom(apiVersion: string, kind: string, plural: string, found: readonly string[], name?: string): Wanted {
  const crd = `${plural}.${apiVersion.split('/')[0] ?? ''}`
  return { apiVersion, kind, crd, for: found, ...(name === undefined ? {} : { name }) }
}

const WANTED: readonly Wanted[] = [
  { apiVersion: 'v1', kind: 'Node', for: [PODS, CNI, 'gateways'] },
  // The static pods of the control plane.
  { apiVersion: 'v1', kind: 'Pod', namespace: 'kube-system', for: [PODS, SERVICES, PROXY] },
  // What pods really have. The API server leaves out the pods on the host network, of which every node has several.
  { apiVersion: 'v1', kind: 'Pod', fieldSelector: 'spec.hostNetwork=false,status.phase=Running', for: [PODS] },
  { apiVersion: 'apps/v1', kind: 'DaemonSet', for: [CNI, PROXY] },
  { apiVersion: 'apps/v1', kind: 'Deployment', labelSelector: 'k8s-app=kube-dns', for: [DNS] },
  { apiVersion: 'apps/v1', kind: 'Deployment', labelSelector: 'app.kubernetes.io/name=coredns', for: [] },
  ...['coredns', 'kube-dns'].map((name): Wanted => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    fieldSelector: `metadata.name=${name}`,
    for: [],
  })),
  { apiVersion: 'networking.k8s.io/v1', kind: 'ServiceCIDR', for: [SERVICES] },
  // Calico's own API server serves these pools if it is installed, and there is no CRD for them.
  { apiVersion: 'projectcalico.org/v3', kind: 'IPPool', for: [] },
  custom('crd.projectcalico.org/v1', 'IPPool', 'ippools', [PODS]),
  custom('crd.projectcalico.org/v1', 'FelixConfiguration', 'felixconfigurations', [CNI], 'default'),
  custom('operator.tigera.io/v1', 'Installation', 'installations', [CNI], 'default'),
  custom('cilium.io/v2', 'CiliumNode', 'ciliumnodes', [PODS]),
  // Which version is served depends on the release, and one that is not served is not there.
  custom('cilium.io/v2alpha1', 'CiliumPodIPPool', 'ciliumpodippools', [PODS]),
  custom('cilium.io/v2', 'CiliumPodIPPool', 'ciliumpodippools', [PODS]),
  custom('kubeovn.io/v1', 'Subnet', 'subnets', [PODS]),
  custom('crd.antrea.io/v1beta1', 'IPPool', 'ippools', [PODS]),
  custom('config.openshift.io/v1', 'ClusterVersion', 'clusterversions', ['distribution']),
  custom('config.openshift.io/v1', 'Network', 'networks', [PODS, SERVICES, CNI]),
  custom('operator.openshift.io/v1', 'Network', 'networks', [CNI]),
  custom('operator.openshift.io/v1', 'DNS', 'dnses', [DNS], 'default'),
  custom('acn.azure.com/v1alpha', 'NodeNetworkConfig', 'nodenetworkconfigs', [PODS]),
  custom('networking.gke.io/v1', 'GKENetworkParamSet', 'gkenetworkparamsets', [PODS], 'default'),
  // Objects of an earlier join.
  { apiVersion: 'v1', kind: 'Namespace', name: SYSTEM_NAMESPACE, for: [] },
  { apiVersion: 'apps/v1', kind: 'Deployment', namespace: SYSTEM_NAMESPACE, for: ['an earlier install'] },
  {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    labelSelector: 'app.kubernetes.io/managed-by=sealane',
    for: ['an earlier install'],
  },
  custom('sealane.io/v1alpha1', 'Membership', 'memberships', ['an earlier install']),
  custom('sealane.io/v1alpha1', 'Cluster', 'clusters', ['an earlier install']),
]

/**
 * The operations of a Kubernetes client that the discovery needs. All of them reject with ClusterApiError: NotFound,
 * Forbidden …
 */
export interface SnapshotReader {
  /** Rejects with NotFound if the object does not exist or its kind is not served. */
  get(apiVersion: string, kind: string, name: string, namespace?: string, signal?: AbortSignal): Promise<unknown>
  /**
   * The items, at most `limit`; of all namespaces if none is given. With `metadataOnly` the items contain only
   * metadata.
   */
  list(
    apiVersion: string,
    kind: string,
    options: {
      readonly namespace?: string
      readonly labelSelector?: string
      readonly fieldSelector?: string
      readonly limit?: number
      readonly metadataOnly?: boolean
    },
    signal?: AbortSignal,
  ): Promise<readonly unknown[]>
  /** Creates the object with dryRun=All. Rejects with the error of the API server. */
  dryRunCreate(object: object, signal?: AbortSignal): Promise<unknown>
  /** `GET /version` */
  version(signal?: AbortSignal): Promise<unknown>
}

/** The number of parallel requests, so that a distant API server does not make the join slow. */
const AT_ONCE = 8

/**
 * Rejects if the API server cannot be reached (with the reader's own error from `version`), and with the signal's
 * reason. Changes nothing in the cluster.
 */
export async function readSnapshot(reader: SnapshotReader, signal: AbortSignal): Promise<ClusterSnapshot> {
  const version = await reader.version(signal)
  const unread: Unread[] = []
  const crds = await readCrds(reader, unread, signal)
  const wanted = WANTED.filter(({ crd }) => crd === undefined || crds === undefined || crds.includes(crd))
  const lists = await inTurns(wanted, (one) => readOne(reader, one, unread, signal))
  // The settings of a product are read in the namespace in which its workload was found.
  const products = openSnapshot({ version, objects: lists.flat(), crds, serviceProbes: [], unread: [] })
  const settings = await inTurns(settingsOf(products), (one) => readOne(reader, one, unread, signal))
  const objects = distinct([...lists.flat(), ...settings.flat()])
  const known = objects.some((object) => (object as { readonly kind?: unknown }).kind === 'ServiceCIDR')
  const serviceProbes = known ? [] : await probeServices(reader, unread, signal)
  return { version, objects, crds, serviceProbes, unread: unread.sort((a, b) => (a.what < b.what ? -1 : 1)) }
}

function settingsOf(products: World): Wanted[] {
  return [
    ...wantedSettings(products).map((one): Wanted => ({ apiVersion: 'v1', kind: 'ConfigMap', ...one })),
    ...dnsServices(products).map((one): Wanted => ({ apiVersion: 'v1', kind: 'Service', ...one, for: [DNS] })),
  ]
}

/** Several requests may find the same object. */
function distinct(objects: readonly object[]): object[] {
  return [...new Map(objects.map((object) => [keyOf(object), object])).values()]
}

function keyOf(object: object): string {
  const group = textAt(object, 'apiVersion')?.split('/').at(-2) ?? ''
  return [group, textAt(object, 'kind'), textAt(object, 'metadata', 'namespace'), nameOf(object)].join(' ')
}

async function readCrds(reader: SnapshotReader, unread: Unread[], signal: AbortSignal): Promise<string[] | undefined> {
  try {
    const options = { limit: 5000, metadataOnly: true }
    const items = await reader.list('apiextensions.k8s.io/v1', 'CustomResourceDefinition', options, signal)
    return items.map(nameOf)
  } catch (error) {
    unread.push({ what: 'CustomResourceDefinitions', why: whyNot(error, signal), weaker: ['CNI', 'other products'] })
    return undefined
  }
}

async function readOne(
  reader: SnapshotReader,
  wanted: Wanted,
  unread: Unread[],
  signal: AbortSignal,
): Promise<readonly object[]> {
  const { apiVersion, kind, name, namespace, labelSelector, fieldSelector } = wanted
  try {
    const found =
      name === undefined
        ? await reader.list(
            apiVersion,
            kind,
            {
              limit: MOST_OBJECTS + 1,
              ...(namespace === undefined ? {} : { namespace }),
              ...(labelSelector === undefined ? {} : { labelSelector }),
              ...(fieldSelector === undefined ? {} : { fieldSelector }),
            },
            signal,
          )
        : [await reader.get(apiVersion, kind, name, namespace, signal)]
    if (found.length > MOST_OBJECTS && wanted.for.length > 0) {
      unread.push({
        what: whatOf(wanted),
        why: `only the first ${MOST_OBJECTS} were read`,
        weaker: wanted.for,
        isCut: true,
      })
    }
    const read = found.slice(0, MOST_OBJECTS)
    // The items of a list do not contain apiVersion and kind.
    return read.filter((one) => typeof one === 'object' && one !== null).map((one) => ({ apiVersion, kind, ...one }))
  } catch (error) {
    const why = whyNot(error, signal)
    if (why !== NOT_THERE && wanted.for.length > 0) unread.push({ what: whatOf(wanted), why, weaker: wanted.for })
    return []
  }
}

const NOT_THERE = 'not there'

/** Throws errors that are not about one object: the reason of a signal, or a programming error. */
function whyNot(error: unknown, signal: AbortSignal): string {
  signal.throwIfAborted()
  if (!(error instanceof ClusterApiError)) throw error
  if (error.code === 'NotFound') return NOT_THERE
  return error.code === 'Forbidden' ? 'not allowed' : error.message
}

function whatOf({ kind, name, namespace, fieldSelector }: Wanted): string {
  if (kind === 'Pod' && fieldSelector !== undefined) return 'Pods of all namespaces'
  if (name !== undefined) return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
  return `${kind}s${namespace === undefined ? '' : ` in ${namespace}`}`
}

/** Addresses from the documentation ranges (RFC 5737, RFC 3849), which no cluster allocates to Services. */
const OUTSIDE = [
  { ip: '192.0.2.1', family: 'IPv4' },
  { ip: '2001:db8::1', family: 'IPv6' },
] as const

/** Before Kubernetes 1.33 the API server reports its service network only in the message of this refusal. */
async function probeServices(reader: SnapshotReader, unread: Unread[], signal: AbortSignal): Promise<string[]> {
  const texts: string[] = []
  for (const { ip, family } of OUTSIDE) {
    const service = {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: `sealane-probe-${family.toLowerCase()}`, namespace: 'default' },
      spec: { clusterIP: ip, ipFamilies: [family], ports: [{ name: 'probe', port: 1, protocol: 'TCP' }] },
    }
    try {
      await reader.dryRunCreate(service, signal)
    } catch (error) {
      const why = whyNot(error, signal)
      if (why !== 'not allowed') texts.push(why)
      else if (family === 'IPv4')
        unread.push({ what: 'the answer to a dry run of a Service', why, weaker: ['service CIDRs'] })
    }
  }
  return texts
}

async function inTurns<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  let next = 0
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const i = next++
      const item = items[i]
      if (item !== undefined) results[i] = await work(item)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  return results
}

/** The operations of DynamicClient that the discovery needs. */
export type Lookable = Pick<DynamicClient, 'get' | 'list' | 'create' | 'read'>

/** A SnapshotReader on top of the project's own API client. */
export function snapshotReader(dynamic: Lookable): SnapshotReader {
  return {
    get: async (apiVersion, kind, name, namespace, signal) => {
      const found = await dynamic.get({ apiVersion, kind, name, namespace }, signal)
      if (found === undefined) throw new ClusterApiError('NotFound', `${kind} ${name} does not exist`)
      return found
    },
    list: async (apiVersion, kind, { namespace, labelSelector, fieldSelector, limit, metadataOnly = false }, signal) =>
      dynamic.list(
        {
          metadataOnly,
          apiVersion,
          kind,
          ...(namespace === undefined ? {} : { namespace }),
          ...(labelSelector === undefined ? {} : { labelSelector }),
          ...(fieldSelector === undefined ? {} : { fieldSelector }),
          ...(limit === undefined ? {} : { most: limit }),
        },
        signal,
      ),
    dryRunCreate: (object, signal) => dynamic.create(object as DynamicObject, { dryRun: true }, signal),
    version: (signal) => dynamic.read('/version', signal),
  }
}
