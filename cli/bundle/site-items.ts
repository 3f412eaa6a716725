/**
 * The items of a bundle about a site without Kubernetes: its objects, the pages of its parts, and the kernel of this
 * machine.
 */
import { open } from 'node:fs/promises'
import { KERNEL_QUESTIONS, askKernel } from '../../compose/compose.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import type { SiteConfig } from '../../kubeapi/files/files.ts'
import { type EndpointSlice, LABEL_K8S_SERVICE_NAME, LABEL_SOURCE_CLUSTER, type Service } from '../../model/model.ts'
import { checkReadable } from '../../runtime/runtime.ts'
import { SILENT_PROGRESS, gatherFacts, siteFacts, siteProbes, textOfPage } from '../status/status.ts'
import { REPORT_FIELDS } from './kind-fields.ts'
import { type Answer, type BundleItem, exportedFile, factsItem, maxBytesOf, objectsFile } from './items.ts'

export interface SiteItemsInit {
  readonly config: SiteConfig
  /** The host:port of each status page. */
  readonly pages: readonly string[]
  /** The files to which the parts write their logs. */
  readonly logs: readonly string[]
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

const KINDS = [
  ...([
    'Membership',
    'ClusterAccessPolicy',
    'ClusterTrafficPolicy',
    'Cluster',
    'Endpoint',
    'Gateway',
    'RouteAgent',
    'Node',
    'Lease',
  ] as const),
  ...(['Service', 'ServiceExport', 'ServiceImport', 'EndpointSlice', 'AccessPolicy', 'TrafficPolicy'] as const),
]
const PAGES = [
  { path: '/debug/plan', folder: 'plans' },
  { path: '/metrics', folder: 'metrics' },
  { path: '/status', folder: 'status' },
  { path: '/readyz', folder: 'ready' },
]
const MAX_BYTES = 8 << 20
const MAX_LOG = 2 << 20

export function siteItems(api: ClusterApi, init: SiteItemsInit): readonly BundleItem[] {
  const { config, pages, logs, timeoutMs: ms, signal } = init
  // Includes the probes of `sealane diagnose`, so that it can be run on the bundle.
  const facts = async (): ReturnType<typeof siteFacts> => {
    const said = siteFacts(api, { file: config.file, pages, timeoutMs: ms, signal })
    const closer = siteProbes(api, { config, area: undefined, progress: SILENT_PROGRESS, signal })
    return (await Promise.all([said, closer])).flat()
  }
  const objects = KINDS.map((kind): BundleItem => {
    const ask = async (limited: AbortSignal): Promise<Answer> => {
      const cache = api.cache(kind)
      await cache.whenSynced(limited)
      return { items: cache.list(), kind }
    }
    return { name: objectsFile(kind), ms, maxBytes: maxBytesOf(kind), ask }
  })
  // The folder of a site is small: these are among the objects above too.
  const exported = (['Service', 'EndpointSlice'] as const).map((kind): BundleItem => {
    const ask = async (limited: AbortSignal): Promise<Answer> => {
      const [exports, all] = [api.cache('ServiceExport'), api.cache(kind)]
      await Promise.all([exports.whenSynced(limited), all.whenSynced(limited)])
      const isExported = ({ metadata: { namespace, name, labels = {} } }: Service | EndpointSlice): boolean => {
        if (kind === 'Service') return exports.get(name, namespace) !== undefined
        const service = labels[LABEL_K8S_SERVICE_NAME]
        return (
          service !== undefined && !(LABEL_SOURCE_CLUSTER in labels) && exports.get(service, namespace) !== undefined
        )
      }
      return { items: all.list().filter(isExported), kind }
    }
    return { name: exportedFile(kind), ms, maxBytes: MAX_BYTES, ask }
  })
  const said = pages.flatMap((address) =>
    PAGES.map(({ path, folder }): BundleItem => {
      const ask = async (limited: AbortSignal): Promise<Answer> => {
        const text = await textOfPage(address, path, MAX_BYTES, limited)
        if (folder === 'status') return { json: jsonOf(text), allowed: REPORT_FIELDS }
        return folder === 'metrics' ? { metrics: text } : { text }
      }
      return { name: `${folder}/${fileName(address)}.txt`, ms, maxBytes: MAX_BYTES, keeps: 'beginning', ask }
    }),
  )
  const kernel = KERNEL_QUESTIONS.map((question): BundleItem => {
    const { name, keeps } = question
    const ask = async (limited: AbortSignal): Promise<Answer> => {
      const text = await askKernel(question, ms, limited)
      if (name.startsWith('logs/')) return { log: text }
      return name.endsWith('.json') ? jsonOrText(text) : { text }
    }
    return { name, ms, maxBytes: name.startsWith('logs/') ? MAX_LOG : MAX_BYTES, keeps, ask }
  })
  const written = logs.map((file, index): BundleItem => {
    const ask = async (): Promise<Answer> => ({ log: await endOf(file) })
    return { name: `logs/file-${index + 1}.txt`, ms, maxBytes: MAX_LOG, keeps: 'end', ask }
  })
  // The facts have time limits of their own and report what was late.
  return [
    factsItem(2 * ms + 1000, () => gatherFacts(`site ${config.name}`, facts)),
    ...objects,
    ...exported,
    ...said,
    ...kernel,
    ...written,
  ]
}

/** Replaces the error of JSON.parse(), whose message contains a part of the text. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new Error('it is not JSON: something else listens there')
  }
}

function jsonOrText(text: string): Answer {
  try {
    return { json: JSON.parse(text) as unknown }
  } catch {
    return { text }
  }
}

function fileName(address: string): string {
  return address.replaceAll(/[^A-Za-z0-9.:-]/g, '').slice(0, 60)
}

/** Reads only the part of a log that is kept. */
async function endOf(file: string): Promise<string> {
  checkReadable(file)
  const handle = await open(file, 'r')
  try {
    const found = await handle.stat()
    if (!found.isFile()) throw new Error(`${file}: it is not a regular file`)
    const length = Math.min(found.size, MAX_LOG)
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, found.size - length)
    const text = buffer.subarray(0, bytesRead).toString()
    // A cut line could lack the name that marks the secret after it, so it is dropped.
    return found.size > length ? text.slice(text.indexOf('\n') + 1) : text
  } finally {
    await handle.close()
  }
}
