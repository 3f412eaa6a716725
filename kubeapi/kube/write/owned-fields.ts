/**
 * Determines what we own of an object from its metadata.managedFields (server-side apply, KEP-555). The entry of our
 * manager lists the fields, and their present values are what we applied, unless another client changed them. So one
 * fingerprint shows, even after a restart, whether apply would change anything: a field that another client overwrote
 * is no longer in the entry, and a field that we no longer want still is.
 */
import { createHash } from 'node:crypto'

/** The field manager of our writes, except those of CONDITION_MANAGER. */
export const FIELD_MANAGER = 'sealane'
/** The field manager of conditions on objects whose status another component of Sealane writes. */
export const CONDITION_MANAGER = 'sealane-conditions'

/**
 * The key is `f:name`, `k:{"port":80}`, `v:"x"` or `.`, the value is the set below it; an empty set owns the whole
 * value.
 */
export type FieldSet = { readonly [key: string]: FieldSet }

export interface ManagedFieldsEntry {
  readonly manager?: string
  readonly operation?: string
  readonly apiVersion?: string
  readonly subresource?: string
  readonly fieldsV1?: FieldSet
}

/** Returns the fields that we applied in this API version; undefined if we applied none. */
export function appliedFields(
  entries: readonly ManagedFieldsEntry[] | undefined,
  apiVersion: string,
  subresource?: string,
): FieldSet | undefined {
  return entries?.find(
    (entry) =>
      entry.manager === FIELD_MANAGER &&
      entry.operation === 'Apply' &&
      entry.apiVersion === apiVersion &&
      (entry.subresource ?? '') === (subresource ?? ''),
  )?.fieldsV1
}

/** Returns the owned part of a value. Owned fields that are absent stay absent. */
export function ownedPart(value: unknown, fields: FieldSet): unknown {
  const below = Object.entries(fields).filter(([key]) => key !== '.')
  if (below.length === 0) return fields['.'] === undefined ? value : emptied(value)
  if (Array.isArray(value)) return ownedItems(value, below)
  if (typeof value !== 'object' || value === null) return value
  const part: Record<string, unknown> = {}
  for (const [key, inner] of below) {
    if (!key.startsWith('f:')) continue
    const name = key.slice(2)
    const found = (value as Record<string, unknown>)[name]
    if (found !== undefined) part[name] = ownedPart(found, inner)
  }
  return part
}

/** Only the existence of the value is owned, not its content. */
function emptied(value: unknown): unknown {
  if (Array.isArray(value)) return []
  return typeof value === 'object' && value !== null ? {} : value
}

/** Keeps the order of the list. */
function ownedItems(list: readonly unknown[], below: readonly (readonly [string, FieldSet])[]): unknown[] {
  const keys = below.flatMap(([key, inner]) => {
    const wanted = key.startsWith('k:') || key.startsWith('v:') ? parse(key.slice(2)) : undefined
    return wanted === undefined ? [] : [{ byValue: key.startsWith('v:'), wanted, inner }]
  })
  return list.flatMap((item) => {
    const match = keys.find(({ byValue, wanted }) => (byValue ? item === wanted : hasFields(item, wanted)))
    if (match === undefined) return []
    return [match.byValue ? item : ownedPart(item, match.inner)]
  })
}

function hasFields(item: unknown, wanted: unknown): boolean {
  if (typeof item !== 'object' || item === null || typeof wanted !== 'object' || wanted === null) return false
  return Object.entries(wanted).every(([name, value]) => (item as Record<string, unknown>)[name] === value)
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return undefined
  }
}

/** Equal for values that are equal as JSON, regardless of the order of their fields. */
export function fingerprint(value: unknown): string {
  return createHash('sha1').update(sortedJson(value)).digest('base64')
}

function sortedJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner
    return Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

/**
 * Labels and annotations that the operator configures for every object that Sealane writes, as cluster policies may
 * require.
 */

type TextMap = Readonly<Record<string, string>>

export interface ObjectMarks {
  readonly labels: TextMap
  readonly annotations: TextMap
}

export const NO_OBJECT_MARKS: ObjectMarks = { labels: {}, annotations: {} }

interface Marked {
  readonly labels?: TextMap | undefined
  readonly annotations?: TextMap | undefined
}

/** Returns metadata with the marks. Existing values take precedence. Returns the same object if there are no marks. */
export function withObjectMarks<T extends object>(metadata: T & Marked, marks: ObjectMarks): T {
  return extended(metadata, marks, (own, given) => ({ ...given, ...own }))
}

/**
 * Like withObjectMarks(), for metadata that was read and may have the marks of an earlier installation: here the marks
 * take precedence.
 */
export function withNewObjectMarks<T extends object>(metadata: T & Marked, marks: ObjectMarks): T {
  return extended(metadata, marks, (own, given) => ({ ...own, ...given }))
}

function extended<T extends object>(
  metadata: T & Marked,
  { labels, annotations }: ObjectMarks,
  join: (own: TextMap | undefined, given: TextMap) => TextMap,
): T {
  const [hasLabels, hasAnnotations] = [Object.keys(labels).length > 0, Object.keys(annotations).length > 0]
  if (!hasLabels && !hasAnnotations) return metadata
  return {
    ...metadata,
    ...(hasLabels ? { labels: join(metadata.labels, labels) } : {}),
    ...(hasAnnotations ? { annotations: join(metadata.annotations, annotations) } : {}),
  }
}

/** Whether a mark is missing or has another value. */
export function lacksObjectMarks(metadata: Marked, { labels, annotations }: ObjectMarks): boolean {
  const lacks = (own: TextMap = {}, given: TextMap): boolean =>
    Object.entries(given).some(([key, value]) => own[key] !== value)
  return lacks(metadata.labels, labels) || lacks(metadata.annotations, annotations)
}
