/**
 * Changes labels and annotations of an object in the user's folder, for `sealane gateway drain` and `rotate-keys`. The
 * rest of the file stays, with its comments; a change that would alter anything else is refused.
 */
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { type Document, LineCounter, isMap } from 'yaml'
import type { Kind, KubeObject } from '../../../model/model.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { checkAddress, objectTitle } from '../../driver/driver.ts'
import { parseDocuments } from '../../kubeapi.ts'
import { writeFileAtomic } from '../atomic-write.ts'
import { type ParsedFile, parseObjects } from './parse-objects.ts'
import { UserObjectError, findUserObject } from './user-objects.ts'

/** New values by key; null removes the key. */
export interface MetadataChange {
  readonly labels?: Readonly<Record<string, string | null>>
  readonly annotations?: Readonly<Record<string, string | null>>
}

/**
 * Returns the path of the changed file. Throws UserObjectError, with what to do by hand, if no file has the object or
 * if the file cannot be changed without changing more.
 */
export async function changeUserMetadata(
  folder: string,
  { kind, name, namespace }: { readonly kind: Kind; readonly name: string; readonly namespace?: string },
  change: MetadataChange,
): Promise<string> {
  checkAddress(kind, name, namespace)
  const title = objectTitle(kind, name, namespace)
  const place = findUserObject(folder, kind, name, namespace)
  if (place === undefined) throw new UserObjectError(`${title}: no valid file below ${folder} has it`)
  const text = readFileSync(place.path, 'utf8')
  const changed = changedText(text, { kind, name, namespace }, change)
  if (changed === undefined) {
    throw new UserObjectError(`${place.path}:${place.line}: change ${title} by hand: ${changeText(change)}`)
  }
  try {
    if (changed !== text) await writeFileAtomic(place.path, changed)
  } catch (error) {
    throw new UserObjectError(`cannot write ${place.path}: ${messageOf(error)}`, { cause: error })
  }
  return place.path
}

interface ObjectId {
  readonly kind: Kind
  readonly name: string
  readonly namespace?: string | undefined
}

/** The text of the file with the change. Undefined if it cannot be made without changing anything else. Pure. */
export function changedText(text: string, id: ObjectId, change: MetadataChange): string | undefined {
  const before = parsed(text)
  if (before === undefined) return undefined
  if (isWanted(before, before, { id, change })) return text
  try {
    const documents = parseDocuments(text, { lineCounter: new LineCounter() })
    const parts: string[] = []
    let end = 0
    for (const document of documents) {
      const [start, paths] = [end, pathsOf(document, id)]
      // A document that was parsed has a range.
      end = document.range?.[2] ?? start
      for (const path of paths) applyTo(document, path, change)
      parts.push(paths.length === 0 ? text.slice(start, end) : document.toString({ lineWidth: 0 }))
    }
    const changed = parts.join('') + text.slice(end)
    const after = parsed(changed)
    return after !== undefined && isWanted(before, after, { id, change }) ? changed : undefined
  } catch {
    // Aliases, and parts that are no maps.
    return undefined
  }
}

function parsed(text: string): ParsedFile | undefined {
  const result = parseObjects('', text)
  return 'problems' in result ? undefined : result.file
}

/** The paths of the object in the document: the document itself, or items of a list. */
function pathsOf(document: Document, { kind, name, namespace }: ObjectId): readonly (readonly (string | number)[])[] {
  interface Raw {
    readonly kind?: unknown
    readonly metadata?: { readonly name?: unknown; readonly namespace?: unknown }
    readonly items?: unknown
  }
  const root = document.toJS({ maxAliasCount: 100 }) as Raw | null
  const items = Array.isArray(root?.items) ? (root.items as readonly (Raw | null)[]) : []
  const ofList = root?.kind === `${kind}List`
  const isIt = (one: Raw | null, inList: boolean): boolean =>
    (one?.kind === kind || (inList && ofList && one?.kind === undefined)) &&
    one?.metadata?.name === name &&
    (namespace === undefined || (one.metadata.namespace ?? 'default') === namespace)
  return [...(isIt(root, false) ? [[]] : []), ...items.flatMap((item, i) => (isIt(item, true) ? [['items', i]] : []))]
}

function applyTo(document: Document, path: readonly (string | number)[], change: MetadataChange): void {
  for (const field of ['labels', 'annotations'] as const) {
    const place = [...path, 'metadata', field]
    for (const [key, value] of Object.entries(change[field] ?? {})) {
      const map = document.getIn(place, true)
      if (map !== undefined && !isMap(map)) document.deleteIn(place)
      if (value !== null) document.setIn([...place, key], value)
      else if (document.hasIn([...place, key])) document.deleteIn([...place, key])
    }
    const left = document.getIn(place, true)
    if (isMap(left) && left.items.length === 0) document.deleteIn(place)
  }
}

interface Wanted {
  readonly id: ObjectId
  readonly change: MetadataChange
}

/** Whether only this object has changed, and only as wanted. */
function isWanted(before: ParsedFile, after: ParsedFile, { id, change }: Wanted): boolean {
  const contents = (file: ParsedFile): unknown[] => file.objects.map(({ kind, key, object }) => ({ kind, key, object }))
  const expected = before.objects.map(({ kind, key, object }) => {
    const { name, namespace } = object.metadata
    const isIt = kind === id.kind && name === id.name && (id.namespace === undefined || namespace === id.namespace)
    return { kind, key, object: isIt ? withChange(object, change) : object }
  })
  return before.ignored === after.ignored && isDeepStrictEqual(contents(after), expected)
}

function withChange(object: KubeObject, change: MetadataChange): KubeObject {
  const { labels: _labels, annotations: _annotations, ...rest } = object.metadata
  const fields = (['labels', 'annotations'] as const).flatMap((field) => {
    const all = { ...object.metadata[field], ...change[field] }
    const kept = Object.entries(all).filter(([, value]) => value !== null)
    return kept.length > 0 ? [[field, Object.fromEntries(kept)] as const] : []
  })
  return { ...object, metadata: { ...rest, ...Object.fromEntries(fields) } }
}

function changeText({ labels = {}, annotations = {} }: MetadataChange): string {
  const texts = (what: string, values: Readonly<Record<string, string | null>>): string[] =>
    Object.entries(values).map(([key, value]) =>
      value === null ? `remove ${what} ${key}` : `set ${what} ${key} to ${JSON.stringify(value)}`,
    )
  return [...texts('label', labels), ...texts('annotation', annotations)].join('; ')
}
