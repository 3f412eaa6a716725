/** All objects of a cluster as text, to be compared with what they were. */
import type { Json, KubeObject, KubeRequest } from './kube-request.ts'

interface Resource {
  readonly name: string
  readonly kind: string
  readonly verbs: readonly string[]
}

export interface DumpOptions {
  /** False: not even that an object was written again the same. Default true: only what it says counts. */
  readonly contentOnly?: boolean
}

/** Kinds that a cluster changes by itself all the time, or that repeat another kind. */
const RESTLESS: ReadonlySet<string> = new Set(['events', 'leases', 'componentstatuses', 'endpoints'])
/** Written again and again by the kubelet, the rest of them counts. */
const BEATING: ReadonlySet<string> = new Set(['nodes'])

/** Each object's path with its content: without status, and without what the server stamps. */
export async function dumpObjects(api: KubeRequest, options: DumpOptions = {}): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  for (const group of await groups(api)) {
    // A group whose CRDs have just gone is still in the list.
    const known = await api.find<{ resources: readonly Resource[] }>(group)
    for (const { name, verbs } of known?.resources ?? []) {
      if (name.includes('/') || !verbs.includes('list') || RESTLESS.has(name)) continue
      // So is a kind whose CRD has just gone.
      const listed = await api.find<{ items: readonly KubeObject[] }>(`${group}/${name}`)
      for (const object of listed?.items ?? []) {
        const { namespace = '-', name: own } = object.metadata
        found.set(`${group}/${name} ${namespace}/${own}`, content(object, options, BEATING.has(name)))
      }
    }
  }
  return found
}

/** `+ path`, `- path`, `~ path: before → after`, sorted; empty when nothing differs. */
export function dumpDifference(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): string[] {
  const paths = [...new Set([...before.keys(), ...after.keys()])].sort()
  return paths.flatMap((path) => {
    const [was, is] = [before.get(path), after.get(path)]
    if (was === is) return []
    if (was === undefined) return [`+ ${path}`]
    if (is === undefined) return [`- ${path}`]
    return [`~ ${path}: ${was} → ${is}`]
  })
}

/** `/api/v1` and one version of each group, the preferred. */
async function groups(api: KubeRequest): Promise<readonly string[]> {
  const { groups: found } = await api.get<{ groups: { preferredVersion: { groupVersion: string } }[] }>('/apis')
  return ['/api/v1', ...found.map(({ preferredVersion }) => `/apis/${preferredVersion.groupVersion}`)]
}

/** When the controller last looked, printed for measuring. */
const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time'

function content(object: KubeObject, { contentOnly = true }: DumpOptions, beats: boolean): string {
  const { managedFields: _fields, resourceVersion, generation: _generation, ...metadata } = object.metadata as Json
  const { status: _status, metadata: _metadata, ...rest } = object
  const { [TRIGGER_TIME]: _at, ...annotations } = object.metadata.annotations ?? {}
  const version = contentOnly || beats ? {} : { resourceVersion }
  return JSON.stringify({ ...rest, metadata: { ...metadata, annotations, ...version } })
}
