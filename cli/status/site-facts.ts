/**
 * Gathers the facts of a site without Kubernetes: its directories, and the status pages of the processes on this
 * machine.
 */
import { type AnyObject, type Fact, type FactKind, readReport, slimmed } from '../../explain/facts/facts.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { FileApi, type FileProblem, formatProblem } from '../../kubeapi/files/files.ts'
import { LABEL_SOURCE_CLUSTER } from '../../model/model.ts'
import { askFor, textOfPage } from './ask.ts'

export interface SiteFactsInit {
  /** The path of the site file. */
  readonly file: string
  /** The host:port of each status page. */
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
  'TrafficPolicy',
  'ClusterTrafficPolicy',
] as const satisfies readonly FactKind[]

/** The time limit of a status page. A process on this machine answers at once or hangs. */
const PAGE_MS = 700
/** The maximum size of a page. A page has a few lines, but another program may answer there. */
const MAX_PAGE = 1 << 20

export async function siteFacts(api: ClusterApi, init: SiteFactsInit): Promise<readonly Fact[]> {
  const { signal, timeoutMs: ms, pages } = init
  const source = `state of ${init.file}`
  const listed = KINDS.map((kind) =>
    askFor({ what: kind, source, needed: true, ms, ask: (limited) => objectsOf(api, kind, source, limited) }, signal),
  )
  const said = pages.map((address) => {
    const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => [
      readReport(await pageOf(address, limited), {
        name: address,
        source: `http://${address}/status`,
        at: new Date(),
      }),
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
  // EndpointSlices of the site's own Services are not imports. Those with results of a check count.
  const items = (cache.list() as readonly unknown[] as readonly (AnyObject & Labelled)[]).filter(
    (item) =>
      kind !== 'EndpointSlice' ||
      item.metadata.labels?.[LABEL_SOURCE_CLUSTER] !== undefined ||
      item['status'] !== undefined,
  )
  const kept = items.map((item) => slimmed(kind, item))
  return [{ t: 'objects', kind, source, at: new Date().toISOString(), items: kept }]
}

interface Labelled {
  readonly metadata: { readonly labels?: Readonly<Record<string, string>> }
}

/** The maximum number of files. The log of the processes names all of them. */
const MOST_FILES = 20

/** Files and directories that cannot be read: the objects in them are missing from the lists above. */
function troubled(api: ClusterApi, source: string): readonly Fact[] {
  if (!(api instanceof FileApi)) return []
  const files = api.problems().slice(0, MOST_FILES)
  return [...files.map((problem) => fileFact(problem, source)), ...stateFacts(api, source)]
}

/** A file of the user that is invalid. Its previous content stays in effect, or another file has the same object. */
function fileFact(problem: FileProblem, source: string): Fact {
  const at = new Date().toISOString()
  const [what, message] = [`File ${problem.file}`, formatProblem(problem)]
  return { t: 'unanswered', what, reason: 'NotReadable', message, needed: problem.isKnown !== true, source, at }
}

function stateFacts(api: FileApi, source: string): readonly Fact[] {
  return api.troubledState().map(({ path, reason }) => ({
    t: 'unanswered',
    what: `State ${path}`,
    ...(reason === 'DiskFull' || reason === 'DiskReadOnly'
      ? { reason, message: 'it cannot be written' }
      : { reason: 'NotReadable', message: 'it cannot be read: its content is unknown' }),
    needed: true,
    source,
    at: new Date().toISOString(),
  }))
}

async function pageOf(address: string, signal: AbortSignal): Promise<unknown> {
  const text = await textOfPage(address, '/status', MAX_PAGE, signal)
  try {
    return JSON.parse(text)
  } catch {
    throw new Error(`${address} answers no JSON: something else listens there`)
  }
}
