/** Object keys, and what every driver checks: the address of an object before it accepts it, and the limits of events. */
import {
  CLUSTER_SCOPED,
  type Kind,
  type KubeObject,
  type Namespace,
  isDnsLabel,
  isObjectName,
} from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { ClusterApiError, type ObjectEvent } from '../kubeapi.ts'

/** `namespace/name`, or `_/name` for cluster-scoped kinds: '_' is not a valid namespace. */
export type ObjectKey = string

export const NO_NAMESPACE = '_'

export function objectKey(name: string, namespace?: string): ObjectKey {
  return `${namespace ?? NO_NAMESPACE}/${name}`
}

export function keyOf(object: KubeObject): ObjectKey {
  return objectKey(object.metadata.name, object.metadata.namespace)
}

/** Formats as `Service shop/web` or `Node gw`, for messages. */
export function objectTitle(kind: string, name: string, namespace?: string): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

/**
 * Throws ClusterApiError Invalid unless name and namespace fit the kind. They become file names, so they must not
 * contain '/' or '..'.
 */
export function checkAddress(kind: Kind, name: string, namespace?: string): void {
  const title = objectTitle(kind, name, namespace)
  if (!isObjectName(name)) {
    throw new ClusterApiError(
      'Invalid',
      `${title}: metadata.name ${JSON.stringify(name)}: expected an RFC 1123 subdomain`,
    )
  }
  if (CLUSTER_SCOPED.has(kind)) {
    if (namespace !== undefined) {
      throw new ClusterApiError(
        'Invalid',
        `${title}: metadata.namespace ${JSON.stringify(namespace)}: expected none, the kind is cluster-scoped`,
      )
    }
  } else if (namespace === undefined || !isDnsLabel(namespace)) {
    throw new ClusterApiError(
      'Invalid',
      `${title}: metadata.namespace ${JSON.stringify(namespace ?? '')}: expected an RFC 1123 label`,
    )
  }
}

/** Called with the implied Namespace of a key, or undefined if it is no longer implied. */
type Imply = (key: ObjectKey, object: Namespace | undefined) => void

/**
 * A namespace exists while there is a Namespace object, or while an object of the user is in it. This class tracks the
 * second case.
 */
export class ResidentNamespaces {
  readonly #residents = new Map<string, Set<string>>()
  readonly #imply: Imply

  constructor(imply: Imply) {
    this.#imply = imply
  }

  /** Records that an object of the user exists or no longer exists. */
  note(kind: Kind, key: ObjectKey, exists: boolean): void {
    if (CLUSTER_SCOPED.has(kind)) return
    const namespace = key.slice(0, key.indexOf('/'))
    const residents = this.#residents.get(namespace) ?? new Set()
    const before = residents.size > 0
    if (exists) residents.add(`${kind} ${key}`)
    else residents.delete(`${kind} ${key}`)
    if (residents.size > 0) this.#residents.set(namespace, residents)
    else this.#residents.delete(namespace)
    if (residents.size > 0 !== before) this.#report(namespace)
  }

  /** Calls back for every implied namespace. */
  reportAll(): void {
    for (const namespace of this.#residents.keys()) this.#report(namespace)
  }

  #report(namespace: string): void {
    const lived = (this.#residents.get(namespace)?.size ?? 0) > 0
    const object: Namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } }
    this.#imply(objectKey(namespace), lived ? object : undefined)
  }
}

/** The same event again within this time is dropped. */
export const EVENT_WINDOW_MS = 600_000
/** The limit of the field in events.k8s.io/v1. That of a reason is 128, which none of ours reaches. */
const MAX_NOTE = 1024
/** Above this number of different events the oldest are forgotten, so they may be reported again. */
const MAX_REMEMBERED = 2000

/**
 * Implements the limits of ClusterApi.report() for every driver: texts of limited length, and the same event only once in
 * ten minutes.
 */
export class EventFilter {
  readonly #clock: Clock
  /** When each event was last passed, in monotonic milliseconds; oldest first. */
  readonly #reported = new Map<string, number>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns the event with its texts truncated to the API's limits; undefined if it was reported recently. */
  pass(event: ObjectEvent): ObjectEvent | undefined {
    const key = eventKey(event)
    const now = this.#clock.monotonic()
    const last = this.#reported.get(key)
    if (last !== undefined && now - last < EVENT_WINDOW_MS) return undefined
    this.#reported.delete(key)
    this.#reported.set(key, now)
    if (this.#reported.size > MAX_REMEMBERED) this.#forgetOldest()
    return { ...event, note: cut(event.note) }
  }

  #forgetOldest(): void {
    for (const key of this.#reported.keys()) {
      this.#reported.delete(key)
      return
    }
  }
}

/**
 * Equal for events with the same content about the same object. An object that was deleted and created again is another
 * one.
 */
function eventKey({ regarding, type, reason, note }: ObjectEvent): string {
  const { kind, name, namespace, uid } = regarding
  return JSON.stringify([kind, objectKey(name, namespace), uid ?? '', type, reason, note])
}

/** Truncates a note. The API counts bytes. */
function cut(note: string): string {
  const bytes = Buffer.from(note)
  if (bytes.length <= MAX_NOTE) return note
  return `${new TextDecoder().decode(bytes.subarray(0, MAX_NOTE - 3)).replace(/\uFFFD+$/, '')}…`
}
