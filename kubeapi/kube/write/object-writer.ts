/**
 * apply, applyStatus and remove on an API server, one object at a time. The caller keeps writes of one object in order.
 */
import { APP_MANAGED_BY_SEALANE, type Condition, type KubeObject, LABEL_APP_MANAGED_BY } from '../../../model/model.ts'
import { ClusterApiError, type ObjectName } from '../../kubeapi.ts'
import { type ObjectKey, keyOf, objectKey, objectTitle, plain } from '../../driver/driver.ts'
import type { ResourceClient } from '../resource-client.ts'
import type { CachedObject } from '../kind-objects.ts'
import { KIND_PLACES, kindPath } from '../kinds.ts'
import { KubeError } from '../kube-error.ts'
import { asServed } from './unknown-fields.ts'
import {
  CONDITION_MANAGER,
  FIELD_MANAGER,
  type ManagedFieldsEntry,
  NO_OBJECT_MARKS,
  type ObjectMarks,
  fingerprint,
  withObjectMarks,
} from './owned-fields.ts'
import type { Reply, HttpClient } from '../http/http-client.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import type { RawObject } from '../../../model/schemas/schemas.ts'

/** A pair of what was sent and what the server stored, which differs because the server set defaults. */
interface Equivalent {
  readonly sent: string
  readonly stored: string | undefined
  /** Monotonic. Until then, what the server has left out is not sent again. */
  readonly until: number
}

/** A field that the server's schema lacked is sent again after this time: the schema may have been upgraded. */
const LACKED_MS = 300_000

const APPLY_PATCH = 'application/apply-patch+yaml'
/** Without a field that closes something, such an object would say that it is open. */
const WHOLE_OR_NOT: ReadonlySet<string> = new Set(['Membership'])
const REMOVE_TRIES = 3

export class ObjectWriter {
  readonly #http: HttpClient
  readonly #clock: Clock
  readonly #marks: ObjectMarks
  readonly #applied = new Map<string, Equivalent>()

  /** `marks` are added to every object that is applied. */
  constructor(deps: { readonly http: HttpClient; readonly clock: Clock }, marks: ObjectMarks = NO_OBJECT_MARKS) {
    this.#http = deps.http
    this.#clock = deps.clock
    this.#marks = marks
  }

  async apply(client: ResourceClient, object: KubeObject, signal: AbortSignal): Promise<void> {
    const { name, namespace } = object.metadata
    const memo = `${object.kind} ${keyOf(object)}`
    const body = applyBody(object, this.#marks)
    const sent = fingerprint(ownedBody(body))
    const known = await client.holding(name, namespace, signal)
    if (known?.ours === false) throw usersOwn(object)
    if (known !== undefined && this.#same(memo, sent, known.applied)) return
    const { status, body: answer } = await this.#patch(client, object, body, known !== undefined, signal)
    if (known === undefined && status === 200) await this.#checkAlone(object, answer, signal)
    this.#remember(memo, { sent, stored: client.note(answer).applied })
  }

  async applyStatus(client: ResourceClient, object: KubeObject, signal: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    const { name, namespace } = metadata
    const memo = `${kind} ${keyOf(object)} status`
    const status = plain((object as { status?: unknown }).status)
    const known = await client.holding(name, namespace, signal)
    if (known === undefined) throw absent(object)
    const sent = fingerprint(status === undefined ? {} : { status })
    if (this.#same(memo, sent, known.status)) return
    // The uid prevents writing the status to an object that was created again in the meantime.
    const uid = metadata.uid ?? known.uid
    const body = { apiVersion: KIND_PLACES[kind].apiVersion, kind, metadata: { name, namespace, uid }, status }
    let isWhole = true
    try {
      const answer = await asServed(body, (served) => {
        isWhole = served === body
        return this.#http.ask<RawObject>(
          {
            verb: 'apply status of',
            title: titleOf(object),
            method: 'PATCH',
            path: kindPath(kind, namespace, name, 'status'),
            query: { fieldManager: FIELD_MANAGER, force: true },
            contentType: APPLY_PATCH,
            body: served,
          },
          signal,
        )
      })
      this.#remember(memo, { sent, stored: client.note(answer.body).status }, isWhole)
    } catch (error) {
      // A 404 may also concern the kind; only a read shows whether the object exists.
      if (isStatus(error, 404) && (await client.ask(name, namespace, signal)) === undefined) throw absent(object)
      throw error
    }
  }

  /**
   * Uses a field manager of its own: otherwise the server would treat the fields of the status owner as withdrawn. The
   * owner takes the condition back with its next apply.
   */
  async setCondition(
    client: ResourceClient,
    { kind, name, namespace }: ObjectName,
    condition: Condition,
    signal: AbortSignal,
  ): Promise<void> {
    const title = objectTitle(kind, name, namespace)
    const known = await client.holding(name, namespace, signal)
    const missing = (): ClusterApiError => new ClusterApiError('NotFound', `${title} does not exist`)
    if (known === undefined) throw missing()
    const metadata = { name, namespace, uid: known.uid }
    try {
      const { body } = await this.#http.ask<RawObject>(
        {
          verb: 'apply status of',
          title,
          method: 'PATCH',
          path: kindPath(kind, namespace, name, 'status'),
          query: { fieldManager: CONDITION_MANAGER, force: true },
          contentType: APPLY_PATCH,
          body: { apiVersion: KIND_PLACES[kind].apiVersion, kind, metadata, status: { conditions: [condition] } },
        },
        signal,
      )
      client.note(body)
    } catch (error) {
      if (isStatus(error, 404) && (await client.ask(name, namespace, signal)) === undefined) throw missing()
      throw error
    }
  }

  async remove(
    client: ResourceClient,
    name: string,
    namespace: string | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { kind } = client.objects
    const title = objectTitle(kind, name, namespace)
    const key = objectKey(name, namespace)
    let known = await client.holding(name, namespace, signal)
    for (let tries = 1; known !== undefined; tries += 1) {
      if (!known.ours) throw new ClusterApiError('Forbidden', `${title} is the user's own and is not removed`)
      try {
        await this.#delete(client, key, title, known, kindPath(kind, namespace, name), signal)
        this.#applied.delete(`${kind} ${key}`)
        this.#applied.delete(`${kind} ${key} status`)
        return
      } catch (error) {
        // Another client created the object again: check who owns it now.
        if (!isStatus(error, 409) || tries >= REMOVE_TRIES) throw error
        known = await client.ask(name, namespace, signal)
      }
    }
  }

  async #delete(
    client: ResourceClient,
    key: ObjectKey,
    title: string,
    { uid }: CachedObject,
    path: string,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const { body } = await this.#http.ask<RawObject>(
        {
          verb: 'delete',
          title,
          method: 'DELETE',
          path,
          body: { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid }, propagationPolicy: 'Background' },
        },
        signal,
      )
      // With finalizers the object continues to exist for a while, and the answer contains it.
      if ((body.metadata.finalizers ?? []).length > 0) client.note(body)
      else client.objects.dropOwn(key, uid)
    } catch (error) {
      if (!isStatus(error, 404)) throw error
      client.objects.dropOwn(key, uid)
    }
  }

  /**
   * `force` reverts changes that others made to our fields. If the object is not known to exist, a conflict shows that
   * it does, and who owns it.
   */
  async #patch(
    client: ResourceClient,
    object: KubeObject,
    body: object,
    force: boolean,
    signal: AbortSignal,
  ): Promise<Reply<RawObject>> {
    const { kind, metadata } = object
    const ask = (forced: boolean): Promise<Reply<RawObject>> => {
      const send = (served: object): Promise<Reply<RawObject>> =>
        this.#http.ask<RawObject>(
          {
            verb: 'apply',
            title: titleOf(object),
            method: 'PATCH',
            path: kindPath(kind, metadata.namespace, metadata.name),
            query: { fieldManager: FIELD_MANAGER, force: forced },
            contentType: APPLY_PATCH,
            body: served,
          },
          signal,
        )
      return WHOLE_OR_NOT.has(kind) ? send(body) : asServed(body, send)
    }
    try {
      return await ask(force)
    } catch (error) {
      if (force || !isStatus(error, 409)) throw error
      const found = await client.ask(metadata.name, metadata.namespace, signal)
      if (found?.ours === false) throw usersOwn(object)
      return ask(true)
    }
  }

  /**
   * Called if apply() expected to create the object but the server merged into an existing one: if it is a user's, this
   * withdraws our fields.
   */
  async #checkAlone(object: KubeObject, answer: RawObject, signal: AbortSignal): Promise<void> {
    const entries = (answer.metadata.managedFields ?? []) as readonly ManagedFieldsEntry[]
    const others = entries.filter(({ manager, subresource }) => manager !== FIELD_MANAGER && (subresource ?? '') === '')
    if (others.length === 0) return
    const { kind, metadata } = object
    const { name, namespace } = metadata
    await this.#http.ask(
      {
        verb: 'apply',
        title: titleOf(object),
        method: 'PATCH',
        path: kindPath(kind, namespace, name),
        query: { fieldManager: FIELD_MANAGER, force: true },
        contentType: APPLY_PATCH,
        body: { apiVersion: KIND_PLACES[kind].apiVersion, kind, metadata: { name, namespace } },
      },
      signal,
    )
    throw usersOwn(object)
  }

  #same(memo: string, sent: string, stored: string | undefined): boolean {
    if (stored === sent) return true
    const last = this.#applied.get(memo)
    if (last === undefined || this.#clock.monotonic() >= last.until) return false
    return stored !== undefined && last.sent === sent && last.stored === stored
  }

  #remember(memo: string, { sent, stored }: Omit<Equivalent, 'until'>, isWhole = true): void {
    const until = isWhole ? Infinity : this.#clock.monotonic() + LACKED_MS
    if (stored === sent) this.#applied.delete(memo)
    else this.#applied.set(memo, { sent, stored, until })
  }
}

interface ApplyBody {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: Readonly<Record<string, unknown>>
  readonly [field: string]: unknown
}

/**
 * Builds the request body: names, labels, annotations, owners and everything except the status. Our label marks the
 * owner.
 */
function applyBody(object: KubeObject, marks: ObjectMarks): ApplyBody {
  const { status: _status, metadata, ...rest } = object as KubeObject & { status?: unknown }
  const { name, namespace, labels, annotations, ownerReferences } = withObjectMarks(metadata, marks)
  return plain({
    ...rest,
    apiVersion: KIND_PLACES[object.kind].apiVersion,
    metadata: {
      name,
      namespace,
      labels: { ...labels, [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      ...(Object.keys(annotations ?? {}).length === 0 ? {} : { annotations }),
      ...((ownerReferences ?? []).length === 0 ? {} : { ownerReferences }),
    },
  })
}

/** Returns the part that managedFields covers: everything except what identifies the object. */
function ownedBody(body: ApplyBody): unknown {
  const { apiVersion: _apiVersion, kind: _kind, metadata, ...rest } = body
  const { name: _name, namespace: _namespace, ...described } = metadata
  return { ...rest, metadata: described }
}

function titleOf({ kind, metadata }: KubeObject): string {
  return objectTitle(kind, metadata.name, metadata.namespace)
}

function usersOwn(object: KubeObject): ClusterApiError {
  return new ClusterApiError('Forbidden', `${titleOf(object)} is the user's own and is not overwritten`)
}

function absent(object: KubeObject): ClusterApiError {
  return new ClusterApiError('NotFound', `${titleOf(object)} does not exist`)
}

function isStatus(error: unknown, status: number): boolean {
  return error instanceof KubeError && error.status === status
}
