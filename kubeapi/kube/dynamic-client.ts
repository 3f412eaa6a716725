/**
 * Accesses any object of any kind that the server knows, by apiVersion and kind: for installing, inspecting and
 * cleaning up.
 */
import { ClusterApiError } from '../kubeapi.ts'
import { type KindPlace, type ObjectRef, type ObjectType, groupPath, refOf, resourcePath, titleOf } from './kinds.ts'
import { KubeError } from './kube-error.ts'
import { FIELD_MANAGER, NO_OBJECT_MARKS, type ObjectMarks, withObjectMarks } from './write/owned-fields.ts'
import type { HttpRequest, Reply, HttpClient } from './http/http-client.ts'
import type { Answer } from './http/server-connection.ts'

/** An object as the server sends it. */
export interface DynamicObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string | undefined
    readonly uid?: string
    readonly resourceVersion?: string
    readonly deletionTimestamp?: string
    readonly labels?: Readonly<Record<string, string>>
    readonly annotations?: Readonly<Record<string, string>>
    readonly finalizers?: readonly string[]
    readonly [field: string]: unknown
  }
  readonly [field: string]: unknown
}

export interface ListInit extends ObjectType {
  /** Absent: all namespaces. */
  readonly namespace?: string | undefined
  readonly labelSelector?: string
  readonly fieldSelector?: string
  /** The most objects to return. Absent: all. */
  readonly most?: number
  /** Requests only metadata (meta.k8s.io/v1 PartialObjectMetadataList). */
  readonly metadataOnly?: boolean
}

export interface WriteInit {
  /** The server validates and answers, but stores nothing. */
  readonly dryRun?: boolean
  readonly subresource?: string
}

export interface ApplyInit extends WriteInit {
  /** True (default): take over fields that other managers own. False: fail with a Conflict that names the managers. */
  readonly force?: boolean
  /** Default sealane. */
  readonly fieldManager?: string
}

export interface DeleteInit {
  readonly dryRun?: boolean
  readonly propagation?: 'Background' | 'Foreground' | 'Orphan'
  /** Deletes only the object with this uid. */
  readonly uid?: string
}

const PATCH_TYPES = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const

/** A page of a pod's own HTTP server. */
export interface PodPage {
  readonly namespace: string
  readonly name: string
  readonly port: number
  /** Begins with `/`. */
  readonly path: string
}

/** A page of a Service's own HTTP server. */
export interface ServicePage {
  readonly namespace: string
  readonly name: string
  /** How the API server speaks to the Service. It does not verify the certificate. */
  readonly scheme: 'http' | 'https'
  /** The name of the port. */
  readonly port: string
  /** Begins with `/`, and includes the query. */
  readonly path: string
  /** The API server removes `Authorization`, and passes on the rest. */
  readonly headers: Readonly<Record<string, string>>
}

/** A token of a ServiceAccount, as a TokenRequest (authentication.k8s.io/v1) gives it. */
export interface AccountToken {
  readonly token: string
  /** RFC 3339. */
  readonly expires: string
}

export interface TokenInit {
  readonly namespace: string
  readonly account: string
  readonly audience: string
  /** At least 600. */
  readonly seconds: number
}

const PAGE = 500
/** Limit of a status page: its content is up to the pod. */
const MAX_PAGE_BYTES = 1 << 20
const METADATA_ONLY = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1'
const APPLY_PATCH = 'application/apply-patch+yaml'

interface Resource extends KindPlace {
  readonly namespaced: boolean
}

interface ResourceList {
  readonly resources?: readonly { readonly name: string; readonly kind: string; readonly namespaced: boolean }[]
}

/** All methods throw ClusterApiError; its message contains the verb, the object and the server's message. */
export class DynamicClient {
  readonly #http: HttpClient
  readonly #stop: AbortSignal
  readonly #marks: ObjectMarks
  /** By apiVersion: the resource of each kind. Read once, and again if a kind is not in it. */
  readonly #known = new Map<string, ReadonlyMap<string, Resource>>()

  /** `marks` are added to objects that create() writes. The bodies of apply, patch and replace contain their own. */
  constructor(
    deps: { readonly http: HttpClient },
    init: { readonly stop: AbortSignal; readonly marks?: ObjectMarks | undefined },
  ) {
    this.#http = deps.http
    this.#stop = init.stop
    this.#marks = init.marks ?? NO_OBJECT_MARKS
  }

  /** Undefined if the object does not exist. Throws NotFound for a kind that the server does not know. */
  async get(ref: ObjectRef, signal?: AbortSignal): Promise<DynamicObject | undefined> {
    const question = await this.#about('get', 'GET', ref, signal)
    try {
      return (await this.#ask<DynamicObject>(question, signal)).body
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined
      throw error
    }
  }

  /**
   * For callers that act on the absence of an object: undefined only if the server itself says that this object does
   * not exist. Any other 404, such as that of a proxy while the server stops, is an error.
   */
  async getForSure(ref: ObjectRef, signal?: AbortSignal): Promise<DynamicObject | undefined> {
    const question = await this.#about('get', 'GET', ref, signal)
    const { plural } = await this.#resource(ref, signal)
    try {
      return (await this.#ask<DynamicObject>(question, signal)).body
    } catch (error) {
      if (error instanceof KubeError && error.reason === 'NotFound' && error.about === plural) return undefined
      throw error
    }
  }

  list(init: ListInit, signal?: AbortSignal): Promise<DynamicObject[]> {
    return this.listPicked(init, (object) => object, signal)
  }

  /** Like list(), but keeps only the picked part of each object in memory while it requests the next page. */
  async listPicked<T>(init: ListInit, pick: (object: DynamicObject) => T, signal?: AbortSignal): Promise<T[]> {
    const { apiVersion, kind, namespace, labelSelector, fieldSelector, most = Infinity, metadataOnly = false } = init
    const resource = await this.#resource(init, signal)
    const title = `${resource.plural}${namespace === undefined ? '' : ` in ${namespace}`}`
    const path = resourcePath(resource, resource.namespaced ? namespace : undefined)
    const found: T[] = []
    let next: string | undefined
    do {
      const query = { labelSelector, fieldSelector, limit: Math.min(PAGE, most), continue: next }
      const { body } = await this.#ask<{
        metadata?: { continue?: string }
        items?: object[]
      }>(
        { verb: 'list', title, method: 'GET', path, query, ...(metadataOnly ? { accept: METADATA_ONLY } : {}) },
        signal,
      )
      // Items of a list have no apiVersion and kind.
      for (const item of body.items ?? []) found.push(pick(Object.assign(item, { apiVersion, kind }) as DynamicObject))
      next = body.metadata?.continue === '' ? undefined : body.metadata?.continue
    } while (next !== undefined && found.length < most)
    return found
  }

  /** Server-side apply. */
  async apply(object: DynamicObject, init: ApplyInit = {}, signal?: AbortSignal): Promise<DynamicObject> {
    const { force = true, fieldManager = FIELD_MANAGER } = init
    const question = await this.#about('apply', 'PATCH', refOf(object), signal, init.subresource)
    const query = { fieldManager, force, ...dry(init) }
    return (await this.#ask<DynamicObject>({ ...question, query, contentType: APPLY_PATCH, body: object }, signal)).body
  }

  /** POST: fails with Conflict if the object exists. Also for reviews, which are answered but not stored. */
  async create(object: DynamicObject, init: WriteInit = {}, signal?: AbortSignal): Promise<DynamicObject> {
    const { name, namespace } = object.metadata
    const resource = await this.#resource(object, signal)
    const place = resource.namespaced ? namespace : undefined
    const collection = resourcePath(resource, place)
    const question: HttpRequest = {
      verb: 'create',
      title: titleOf({ ...object, name, namespace }),
      method: 'POST',
      path: init.subresource === undefined ? collection : `${collection}/${name}/${init.subresource}`,
      ...(init.subresource === undefined ? { creates: resourcePath(resource, place, name) } : {}),
      query: { fieldManager: FIELD_MANAGER, ...dry(init) },
      // A subresource, such as an eviction, is a request and not a stored object.
      body:
        init.subresource === undefined
          ? { ...object, metadata: withObjectMarks(object.metadata, this.#marks) }
          : object,
      again: false,
    }
    return (await this.#ask<DynamicObject>(question, signal)).body
  }

  /** PUT: with metadata.resourceVersion it fails with Conflict if the object has changed since. */
  async replace(object: DynamicObject, init: WriteInit = {}, signal?: AbortSignal): Promise<DynamicObject> {
    const question = await this.#about('replace', 'PUT', refOf(object), signal, init.subresource)
    const query = { fieldManager: FIELD_MANAGER, ...dry(init) }
    return (await this.#ask<DynamicObject>({ ...question, query, body: object, again: false }, signal)).body
  }

  async patch(
    ref: ObjectRef,
    patch: unknown,
    init: WriteInit & { readonly type: keyof typeof PATCH_TYPES },
    signal?: AbortSignal,
  ): Promise<DynamicObject> {
    const question = await this.#about('patch', 'PATCH', ref, signal, init.subresource)
    const query = { fieldManager: FIELD_MANAGER, ...dry(init) }
    const contentType = PATCH_TYPES[init.type]
    return (await this.#ask<DynamicObject>({ ...question, query, contentType, body: patch }, signal)).body
  }

  /** Returns true if the object existed. With finalizers it may continue to exist. */
  async delete(ref: ObjectRef, init: DeleteInit = {}, signal?: AbortSignal): Promise<boolean> {
    const { propagation = 'Background', uid } = init
    const question = await this.#about('delete', 'DELETE', ref, signal)
    const body = {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      propagationPolicy: propagation,
      ...(uid === undefined ? {} : { preconditions: { uid } }),
      ...(init.dryRun === true ? { dryRun: ['All'] } : {}),
    }
    try {
      await this.#ask({ ...question, body }, signal)
      return true
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return false
      throw error
    }
  }

  /** Whether the server knows the kind in this version. */
  async knows(type: ObjectType, signal?: AbortSignal): Promise<boolean> {
    try {
      await this.#resource(type, signal)
      return true
    } catch (error) {
      if (error instanceof ClusterApiError && error.code === 'NotFound') return false
      throw error
    }
  }

  /** Reads a path that is not an object: `/version`, `/readyz`. */
  async read(path: string, signal?: AbortSignal): Promise<unknown> {
    return (await this.#ask<unknown>({ verb: 'get', title: path, method: 'GET', path }, signal)).body
  }

  /**
   * Sends a GET to a port of a pod through the API server's proxy. It is not retried. Needs the permission to get
   * `pods/proxy` in the namespace.
   */
  async readPod(pod: PodPage, signal?: AbortSignal): Promise<unknown> {
    const { namespace, name, port, path } = pod
    const at = `${resourcePath({ apiVersion: 'v1', plural: 'pods' }, namespace, name)}:${port}/proxy${path}`
    const title = `pods/proxy ${namespace}/${name}:${port}${path}`
    const question: HttpRequest = {
      verb: 'get',
      title,
      method: 'GET',
      path: at,
      again: false,
      maxBytes: MAX_PAGE_BYTES,
    }
    return (await this.#ask<unknown>(question, signal)).body
  }

  /**
   * Sends a GET to a port of a Service through the API server's proxy, once. The caller reads the body of the answer,
   * as a stream. An answer for which `isOurs` is true is given whatever its status. Needs the permission to get
   * `services/proxy` of `https:NAME:PORT`.
   */
  async openService(page: ServicePage, isOurs: (answer: Answer) => boolean, signal?: AbortSignal): Promise<Answer> {
    const { namespace, name, scheme, port, path, headers } = page
    const at = `${scheme}:${name}:${port}`
    const [shown = ''] = path.split('?', 1)
    const question: HttpRequest = {
      verb: 'get',
      title: `services/proxy ${namespace}/${at}${shown}`,
      method: 'GET',
      path: `${resourcePath({ apiVersion: 'v1', plural: 'services' }, namespace)}/${at}/proxy${path}`,
      accept: '*/*',
      headers,
      again: false,
    }
    return this.#http.relay(question, isOurs, this.#until(signal))
  }

  /** Needs the permission to create `serviceaccounts/token` of the account. Throws if the answer has no token. */
  async requestToken(
    { namespace, account, audience, seconds }: TokenInit,
    signal?: AbortSignal,
  ): Promise<AccountToken> {
    const question: HttpRequest = {
      verb: 'create',
      title: `serviceaccounts/token ${namespace}/${account}`,
      method: 'POST',
      path: resourcePath({ apiVersion: 'v1', plural: 'serviceaccounts' }, namespace, account, 'token'),
      body: {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: { audiences: [audience], expirationSeconds: seconds },
      },
    }
    const { body } = await this.#ask<TokenAnswer | undefined>(question, signal)
    const { token, expirationTimestamp: expires } = body?.status ?? {}
    if (typeof token === 'string' && token !== '' && typeof expires === 'string') return { token, expires }
    throw new ClusterApiError('Unavailable', `${question.verb} ${question.title}: the answer has no token`)
  }

  async #about(
    verb: string,
    method: HttpRequest['method'],
    ref: ObjectRef,
    signal: AbortSignal | undefined,
    subresource?: string,
  ): Promise<HttpRequest> {
    const resource = await this.#resource(ref, signal)
    const title = titleOf(ref)
    if (resource.namespaced && ref.namespace === undefined) {
      throw new ClusterApiError('Invalid', `${verb} ${title}: metadata.namespace is missing, the kind is namespaced`)
    }
    const path = resourcePath(resource, resource.namespaced ? ref.namespace : undefined, ref.name, subresource)
    return { verb, title, method, path }
  }

  async #resource({ apiVersion, kind }: ObjectType, signal: AbortSignal | undefined): Promise<Resource> {
    const known = this.#known.get(apiVersion)?.get(kind)
    if (known !== undefined) return known
    const found = (await this.#discover(apiVersion, signal)).get(kind)
    if (found !== undefined) return found
    throw new ClusterApiError('NotFound', `the API server does not know the kind ${kind} in ${apiVersion}`)
  }

  async #discover(apiVersion: string, signal: AbortSignal | undefined): Promise<ReadonlyMap<string, Resource>> {
    const question = { verb: 'discover', title: apiVersion, method: 'GET', path: groupPath(apiVersion) } as const
    const kinds = new Map<string, Resource>()
    try {
      const { body } = await this.#ask<ResourceList>(question, signal)
      for (const { name, kind, namespaced } of body.resources ?? []) {
        // Names with a slash are subresources.
        if (!name.includes('/')) kinds.set(kind, { apiVersion, plural: name, namespaced })
      }
    } catch (error) {
      if (!(error instanceof KubeError && error.status === 404)) throw error
    }
    this.#known.set(apiVersion, kinds)
    return kinds
  }

  #ask<T>(question: HttpRequest, signal: AbortSignal | undefined): Promise<Reply<T>> {
    return this.#http.ask<T>(question, this.#until(signal))
  }

  #until(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#stop : AbortSignal.any([signal, this.#stop])
  }
}

interface TokenAnswer {
  readonly status?: { readonly token?: unknown; readonly expirationTimestamp?: unknown }
}

function dry({ dryRun }: WriteInit): { dryRun?: string } {
  return dryRun === true ? { dryRun: 'All' } : {}
}
