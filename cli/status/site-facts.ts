/** Facts of a site without Kubernetes: its folders, and the status page of what runs on this machine. */
import { request } from 'node:http'
import type { Fact } from '../../explain/facts/fact.ts'
import type { FactKind } from '../../explain/facts/shapes.ts'
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import { FileApi } from '../../kubeapi/files/file-api.ts'
import { LABEL_SOURCE_CLUSTER } from '../../model/spec-constants.ts'
import { type AnyObject, readReport, slimmed } from './facts-from.ts'
import { NothingRunsError, askFor } from './ask.ts'

export interface SiteFactsInit {
  /** The site file. */
  readonly file: string
  /** host:port of status pages. */
  readonly pages: readonly string[]
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

const KINDS = [
  'Membership',
  'Cluster',
  'Endpoint',
  'Gateway',
  'RouteAgent',
  'Node',
  'ServiceExport',
  'ServiceImport',
  'EndpointSlice',
  'Lease',
] as const satisfies readonly FactKind[]

/** This machine answers at once, or hangs. */
const PAGE_MS = 700
/** A page is a few lines; another program may answer there. */
const MAX_PAGE = 1 << 20

export async function siteFacts(api: ClusterApi, init: SiteFactsInit): Promise<readonly Fact[]> {
  const { signal, timeoutMs: ms, pages } = init
  const source = `state of ${init.file}`
  const listed = KINDS.map((kind) =>
    askFor({ what: kind, source, needed: true, ms, ask: (limited) => objectsOf(api, kind, source, limited) }, signal),
  )
  const said = pages.map((address) => {
    const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => [
      readReport(await pageOf(address, limited), address, `http://${address}/status`),
    ]
    return askFor({ what: `Page ${address}`, source: 'this machine', needed: false, ms: PAGE_MS, ask }, signal)
  })
  const facts = (await Promise.all([...listed, ...said])).flat()
  return [...facts, ...troubled(api, source)]
}

async function objectsOf(
  api: ClusterApi,
  kind: (typeof KINDS)[number],
  source: string,
  signal: AbortSignal,
): Promise<readonly Fact[]> {
  const cache = api.cache(kind)
  await cache.whenSynced(signal)
  // Slices of the site's own Services are no imports.
  const items = (cache.list() as readonly unknown[] as readonly (AnyObject & Labelled)[]).filter(
    ({ metadata }) => kind !== 'EndpointSlice' || metadata.labels?.[LABEL_SOURCE_CLUSTER] !== undefined,
  )
  const kept = items.map((item) => slimmed(kind, item))
  return [{ t: 'objects', kind, source, at: new Date().toISOString(), items: kept }]
}

interface Labelled {
  readonly metadata: { readonly labels?: Readonly<Record<string, string>> }
}

/** What is in a folder that cannot be read is missing above. */
function troubled(api: ClusterApi, source: string): readonly Fact[] {
  const paths = api instanceof FileApi ? api.troubledState() : []
  return paths.map((path) => ({
    t: 'unanswered',
    what: `State ${path}`,
    reason: 'NotReadable',
    message: 'it cannot be read: what is in it is not known',
    needed: true,
    source,
    at: new Date().toISOString(),
  }))
}

function pageOf(address: string, signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const asked = request(`http://${address}/status`, { signal, agent: false }, (response) => {
      const chunks: Buffer[] = []
      let size = 0
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        size += chunk.length
        if (size > MAX_PAGE) asked.destroy(new Error(`${address} answers more than a status page has`))
      })
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode !== 200) {
          reject(new Error(`${address} answers ${response.statusCode ?? 0}: its release may not say how it does`))
          return
        }
        try {
          resolve(JSON.parse(Buffer.concat(chunks).toString()))
        } catch {
          reject(new Error(`${address} answers no JSON: something else listens there`))
        }
      })
    })
    asked.on('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'ECONNREFUSED' ? new NothingRunsError(address) : error)
    })
    asked.end()
  })
}
