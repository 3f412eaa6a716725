/** Reads from a cluster what the detectors look at. What may not be read is reported, and does not stop the rest. */
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { nameOf } from './raw.ts'
import type { ClusterSnapshot, Unread } from './snapshot.ts'
import { MOST_OBJECTS, WANTED, type Wanted } from './what-to-read.ts'

/** As little of a Kubernetes client as this needs. All reject with ClusterApiError: NotFound, Forbidden … */
export interface SnapshotReader {
  /** Of an object that does not exist, or a kind that is not served: NotFound. */
  get(apiVersion: string, kind: string, name: string, namespace?: string, signal?: AbortSignal): Promise<unknown>
  /** The items, at most `limit`; without a namespace those of all. `metadataOnly`: nothing else of them is needed. */
  list(
    apiVersion: string,
    kind: string,
    options: {
      readonly namespace?: string
      readonly labelSelector?: string
      readonly limit?: number
      readonly metadataOnly?: boolean
    },
    signal?: AbortSignal,
  ): Promise<readonly unknown[]>
  /** Creates with dryRun=All. Rejects with what the API server says. */
  dryRunCreate(object: object, signal?: AbortSignal): Promise<unknown>
  /** `GET /version` */
  version(signal?: AbortSignal): Promise<unknown>
}

/** How many requests are under way at once: an API server that is far away need not make the join slow. */
const AT_ONCE = 8

/**
 * Rejects when the API server cannot be reached at all (the reader's own error from `version`), and with the signal's
 * reason. Nothing is changed in the cluster.
 */
export async function readSnapshot(reader: SnapshotReader, signal: AbortSignal): Promise<ClusterSnapshot> {
  const version = await reader.version(signal)
  const unread: Unread[] = []
  const crds = await readCrds(reader, unread, signal)
  const wanted = WANTED.filter(({ crd }) => crd === undefined || crds === undefined || crds.includes(crd))
  const lists = await inTurns(wanted, (one) => readOne(reader, one, unread, signal))
  const objects = lists.flat()
  const known = objects.some((object) => (object as { readonly kind?: unknown }).kind === 'ServiceCIDR')
  const serviceProbes = known ? [] : await probeServices(reader, unread, signal)
  return { version, objects, crds, serviceProbes, unread: unread.sort((a, b) => (a.what < b.what ? -1 : 1)) }
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
  const { apiVersion, kind, name, namespace, labelSelector } = wanted
  try {
    const found =
      name === undefined
        ? await reader.list(
            apiVersion,
            kind,
            {
              limit: MOST_OBJECTS,
              ...(namespace === undefined ? {} : { namespace }),
              ...(labelSelector === undefined ? {} : { labelSelector }),
            },
            signal,
          )
        : [await reader.get(apiVersion, kind, name, namespace, signal)]
    // Items of a list do not say what they are.
    return found.filter((one) => typeof one === 'object' && one !== null).map((one) => ({ apiVersion, kind, ...one }))
  } catch (error) {
    const why = whyNot(error, signal)
    if (why !== NOT_THERE && wanted.for.length > 0) unread.push({ what: whatOf(wanted), why, weaker: wanted.for })
    return []
  }
}

const NOT_THERE = 'not there'

/** Throws what is not about one object: a signal, a mistake in the program. */
function whyNot(error: unknown, signal: AbortSignal): string {
  signal.throwIfAborted()
  if (!(error instanceof ClusterApiError)) throw error
  if (error.code === 'NotFound') return NOT_THERE
  return error.code === 'Forbidden' ? 'not allowed' : error.message
}

function whatOf({ kind, name, namespace }: Wanted): string {
  if (name !== undefined) return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
  return `${kind}s${namespace === undefined ? '' : ` in ${namespace}`}`
}

/** Addresses for documentation (RFC 5737, RFC 3849), which no cluster gives to its Services. */
const OUTSIDE = [
  { ip: '192.0.2.1', family: 'IPv4' },
  { ip: '2001:db8::1', family: 'IPv6' },
] as const

/** Before Kubernetes 1.33 the API server's refusal is the only place where its own flag can be read. */
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
