/** The objects of a fake API server, with versions, events, and a record of which manager applied which fields. */
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

type Json = Record<string, unknown>
type Fields = { [key: string]: Fields }

interface Entry {
  manager: string
  operation: 'Apply' | 'Update'
  apiVersion: string
  subresource?: string
  fieldsV1: Fields
}

export interface FakeObject {
  apiVersion: string
  kind: string
  metadata: {
    name: string
    namespace?: string
    uid: string
    resourceVersion: string
    generation: number
    creationTimestamp: string
    labels?: Record<string, string>
    annotations?: Record<string, string>
    finalizers?: string[]
    deletionTimestamp?: string
    managedFields: Entry[]
  }
  [field: string]: unknown
}

export interface FakeEvent {
  readonly version: number
  readonly resource: string
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'
  readonly object: FakeObject
}

/** A refusal, as metav1.Status describes it. */
export class FakeRefusal extends Error {
  readonly status: number
  readonly reason: string
  readonly details: object | undefined
  constructor(status: number, reason: string, message: string, details?: object) {
    super(message)
    this.status = status
    this.reason = reason
    this.details = details
  }
}

interface Given {
  readonly labels?: Record<string, string>
  readonly annotations?: Record<string, string>
  readonly finalizers?: string[]
}

/** The place of an object in URLs, such as `web` of the `services` of `shop`. */
export interface FakeApiPath {
  /** The apiVersion and plural, as `v1/services`. */
  readonly resource: string
  readonly apiVersion: string
  readonly kind: string
  readonly namespace: string | undefined
  readonly name: string
}

export class FakeObjects {
  version = 100
  /** Watches from before this version are refused. */
  compacted = 0
  readonly #objects = new Map<string, FakeObject>()
  /** Lists are cached until something changes, since a page of a long list must not cost as much as the whole. */
  readonly #lists = new Map<string, readonly FakeObject[]>()
  readonly #events: FakeEvent[] = []
  readonly #listeners = new Set<(event: FakeEvent) => void>()

  list(resource: string, namespace: string | undefined): readonly FakeObject[] {
    const prefix = `${resource} ${namespace === undefined ? '' : `${namespace}/`}`
    const known = this.#lists.get(prefix)
    if (known !== undefined) return known
    const keys = [...this.#objects.keys()].filter((key) => key.startsWith(prefix)).sort()
    const found = keys.flatMap((key) => this.#objects.get(key) ?? [])
    this.#lists.set(prefix, found)
    return found
  }

  get(place: FakeApiPath): FakeObject | undefined {
    return this.#objects.get(keyOf(place))
  }

  eventsAfter(version: number): readonly FakeEvent[] {
    return this.#events.filter((event) => event.version > version)
  }

  onEvent(listener: (event: FakeEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Creates or replaces all but the status, as a user. Changed fields are no longer owned by an applier. */
  put(place: FakeApiPath, body: Json): FakeObject {
    const present = this.get(place)
    const { metadata, status: _status, ...rest } = body
    const { labels, annotations, finalizers } = metadata as Given
    const next = structuredClone(present ?? this.#born(place))
    for (const field of Object.keys(next)) if (!FIXED.has(field)) Reflect.deleteProperty(next, field)
    Object.assign(next, structuredClone(rest))
    if (labels === undefined) delete next.metadata.labels
    else next.metadata.labels = labels
    if (annotations === undefined) delete next.metadata.annotations
    else next.metadata.annotations = annotations
    if (finalizers !== undefined) next.metadata.finalizers = finalizers
    if (present !== undefined) {
      for (const entry of next.metadata.managedFields) keepUnchanged(entry.fieldsV1, present, next)
    }
    setEntry(next, {
      manager: 'user',
      operation: 'Update',
      apiVersion: place.apiVersion,
      fieldsV1: fieldsOf(described(next)),
    })
    return this.#store(place, present, next)
  }

  /** Applies a JSON merge patch (RFC 7386), as a user. */
  merge(place: FakeApiPath, patch: Json): FakeObject {
    const present = this.get(place)
    if (present === undefined) throw absent(place)
    return this.put(place, mergePatched(structuredClone(present), patch))
  }

  /** Server-side apply, of the object or of its status. */
  apply(
    place: FakeApiPath,
    body: Json,
    init: { manager: string; force: boolean; status: boolean },
  ): { object: FakeObject; created: boolean } {
    const present = this.get(place)
    const wanted = init.status ? { status: body['status'] ?? {} } : described(body)
    if (present === undefined && init.status) throw absent(place)
    const uid = (body['metadata'] as { uid?: string }).uid
    if (uid !== undefined && uid !== present?.metadata.uid) {
      throw new FakeRefusal(409, 'Conflict', `the UID in the precondition (${uid}) is not that of the object`)
    }
    const next = structuredClone(present ?? this.#born(place))
    const subresource = init.status ? 'status' : undefined
    const fields = fieldsOf(wanted)
    const last = next.metadata.managedFields.find(
      (entry) => entry.manager === init.manager && entry.operation === 'Apply' && entry.subresource === subresource,
    )
    if (init.status) keepOthersConditions(next, wanted, last?.fieldsV1)
    for (const entry of next.metadata.managedFields) {
      if (entry.manager === init.manager && entry.operation === 'Apply') continue
      const before = JSON.stringify(entry.fieldsV1)
      keepUnchanged(entry.fieldsV1, next, merged(structuredClone(next), wanted))
      if (JSON.stringify(entry.fieldsV1) !== before && !init.force) {
        throw new FakeRefusal(409, 'Conflict', `Apply failed with a conflict with "${entry.manager}"`)
      }
    }
    if (last !== undefined) prune(next, last.fieldsV1, fields)
    merged(next, wanted)
    setEntry(next, {
      manager: init.manager,
      operation: 'Apply',
      apiVersion: place.apiVersion,
      ...(subresource === undefined ? {} : { subresource }),
      fieldsV1: fields,
    })
    return { object: this.#store(place, present, next), created: present === undefined }
  }

  /** Returns the object if finalizers keep it, and undefined if it is gone. */
  delete(place: FakeApiPath, uid?: string): FakeObject | undefined {
    const present = this.get(place)
    if (present === undefined) throw absent(place)
    if (uid !== undefined && uid !== present.metadata.uid) {
      throw new FakeRefusal(409, 'Conflict', `the UID in the precondition (${uid}) is not that of the object`)
    }
    if ((present.metadata.finalizers ?? []).length > 0) {
      const next = structuredClone(present)
      next.metadata.deletionTimestamp = '2026-01-01T00:00:00Z'
      return this.#store(place, present, next)
    }
    this.#objects.delete(keyOf(place))
    this.#lists.clear()
    const gone = structuredClone(present)
    gone.metadata.resourceVersion = String(++this.version)
    this.#emit({ version: this.version, resource: place.resource, type: 'DELETED', object: gone })
    return undefined
  }

  #born({ apiVersion, kind, namespace, name }: FakeApiPath): FakeObject {
    return {
      apiVersion,
      kind,
      metadata: {
        name,
        ...(namespace === undefined ? {} : { namespace }),
        uid: randomUUID(),
        resourceVersion: '',
        generation: 0,
        creationTimestamp: '2026-01-01T00:00:00Z',
        managedFields: [],
      },
    }
  }

  #store(place: FakeApiPath, present: FakeObject | undefined, next: FakeObject): FakeObject {
    if (present !== undefined && isDeepStrictEqual(present, next)) return present
    if (!isDeepStrictEqual(specOf(present), specOf(next))) next.metadata.generation += 1
    next.metadata.resourceVersion = String(++this.version)
    this.#objects.set(keyOf(place), next)
    this.#lists.clear()
    const type = present === undefined ? 'ADDED' : 'MODIFIED'
    this.#emit({ version: this.version, resource: place.resource, type, object: next })
    return next
  }

  #emit(event: FakeEvent): void {
    this.#events.push(event)
    for (const listener of [...this.#listeners]) listener(event)
  }
}

const FIXED = new Set(['apiVersion', 'kind', 'metadata', 'status'])

function keyOf({ resource, namespace, name }: FakeApiPath): string {
  return `${resource} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

export function absent({ resource, name }: FakeApiPath): FakeRefusal {
  const kind = resource.split('/').at(-1)
  return new FakeRefusal(404, 'NotFound', `${resource} "${name}" not found`, { name, kind })
}

/** The fields that an applier describes: all but the name and the status. */
function described(body: Json): Json {
  const { apiVersion: _a, kind: _k, status: _s, metadata, ...rest } = body
  const fields = Object.entries(metadata as Json).filter(
    ([name, value]) => DESCRIBED_METADATA.has(name) && value !== undefined,
  )
  return structuredClone({ ...rest, metadata: Object.fromEntries(fields) })
}

const DESCRIBED_METADATA = new Set(['labels', 'annotations', 'ownerReferences'])

function specOf(object: FakeObject | undefined): unknown {
  if (object === undefined) return undefined
  const { metadata: _m, status: _s, ...rest } = object
  return rest
}

function isMap(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Maps are owned field by field, lists as a whole. */
function fieldsOf(value: Json): Fields {
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, inner]) => inner !== undefined && !(isMap(inner) && Object.keys(inner).length === 0))
      .map(([name, inner]) => [`f:${name}`, isMap(inner) ? fieldsOf(inner) : {}]),
  )
}

/** Conditions are a list by type: an applier that does not own the list yet changes only the types that it names. */
function keepOthersConditions(object: FakeObject, wanted: Json, owned: Fields | undefined): void {
  const named = (wanted['status'] as { conditions?: { type: string }[] }).conditions
  const present = (object['status'] as { conditions?: { type: string }[] } | undefined)?.conditions ?? []
  if (named === undefined || owned?.['f:status']?.['f:conditions'] !== undefined) return
  const others = present.filter(({ type }) => !named.some((one) => one.type === type))
  wanted['status'] = { ...(wanted['status'] as Json), conditions: [...others, ...named] }
}

/** Removes from the record the fields whose value has changed. */
function keepUnchanged(fields: Fields, before: unknown, after: unknown): void {
  for (const [key, inner] of Object.entries(fields)) {
    const name = key.slice(2)
    const old = isMap(before) ? before[name] : undefined
    const now = isMap(after) ? after[name] : undefined
    if (Object.keys(inner).length > 0) keepUnchanged(inner, old, now)
    const empty = Object.keys(inner).length === 0
    if (empty && !isDeepStrictEqual(old, now)) Reflect.deleteProperty(fields, key)
  }
}

/** Removes from `object` the fields that were owned before and are not any more. */
function prune(object: Json, before: Fields, after: Fields): void {
  for (const [key, inner] of Object.entries(before)) {
    const name = key.slice(2)
    const still = after[key]
    const value = object[name]
    if (still === undefined && Object.keys(inner).length === 0) Reflect.deleteProperty(object, name)
    else if (isMap(value)) prune(value, inner, still ?? {})
  }
}

function merged(object: Json, wanted: Json): Json {
  for (const [name, value] of Object.entries(wanted)) {
    const present = object[name]
    if (isMap(value)) object[name] = merged(isMap(present) ? present : {}, value)
    else if (value !== undefined) object[name] = structuredClone(value)
  }
  return object
}

function mergePatched(object: Json, patch: Json): Json {
  for (const [name, value] of Object.entries(patch)) {
    const present = object[name]
    if (value === null) Reflect.deleteProperty(object, name)
    else object[name] = isMap(value) ? mergePatched(isMap(present) ? present : {}, value) : structuredClone(value)
  }
  return object
}

function setEntry(object: FakeObject, entry: Entry): void {
  const same = (other: Entry): boolean =>
    other.manager === entry.manager && other.operation === entry.operation && other.subresource === entry.subresource
  const others = object.metadata.managedFields.filter((other) => !same(other))
  object.metadata.managedFields = Object.keys(entry.fieldsV1).length === 0 ? others : [...others, entry]
}
