/** Secrets and Leases in our own namespace. The contents of Secrets never appear in logs or messages. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY, isDnsSubdomain } from '../../model/model.ts'
import { ClusterApiError, type LeaseStore, type StoredLease } from '../kubeapi.ts'
import { LEASE_REQUEST_MS } from '../lease/lease.ts'
import type { HttpClient, HttpRequest } from './http/http-client.ts'
import { resourcePath } from './kinds.ts'
import { KubeError } from './kube-error.ts'
import { FIELD_MANAGER, type ObjectMarks, withNewObjectMarks, withObjectMarks } from './write/owned-fields.ts'

export interface StoredSecret {
  readonly type: string
  /** By key, decoded. */
  readonly data: ReadonlyMap<string, Uint8Array>
}

export interface SecretStore {
  /** Undefined if it does not exist. Throws ClusterApiError. */
  read(name: string, signal?: AbortSignal): Promise<StoredSecret | undefined>
  /** Creates the Secret, or replaces the fields that we wrote; its type cannot change. Throws ClusterApiError. */
  write(name: string, secret: StoredSecret, signal?: AbortSignal): Promise<void>
}

export class KubeSecretStore implements SecretStore {
  readonly #http: HttpClient
  readonly #namespace: string
  readonly #marks: ObjectMarks
  readonly #stop: AbortSignal

  /** `marks` are added to every Secret. */
  constructor(
    deps: { readonly http: HttpClient },
    init: { readonly namespace: string; readonly marks: ObjectMarks; readonly stop: AbortSignal },
  ) {
    this.#http = deps.http
    this.#namespace = init.namespace
    this.#marks = init.marks
    this.#stop = init.stop
  }

  async read(name: string, signal?: AbortSignal): Promise<StoredSecret | undefined> {
    try {
      const { body } = await this.#http.ask<{ type?: string; data?: Record<string, string> | null }>(
        { ...this.#question('get', name), method: 'GET' },
        this.#until(signal),
      )
      const data = Object.entries(body.data ?? {}).map(([key, text]) => [key, Buffer.from(text, 'base64')] as const)
      return { type: body.type ?? 'Opaque', data: new Map(data) }
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined
      throw error
    }
  }

  async write(name: string, { type, data }: StoredSecret, signal?: AbortSignal): Promise<void> {
    const encoded = [...data].map(([key, bytes]) => [key, Buffer.from(bytes).toString('base64')] as const)
    const labels = { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE }
    await this.#http.ask(
      {
        ...this.#question('apply', name),
        method: 'PATCH',
        query: { fieldManager: FIELD_MANAGER, force: true },
        contentType: 'application/apply-patch+yaml',
        body: {
          apiVersion: 'v1',
          kind: 'Secret',
          metadata: withObjectMarks({ name, namespace: this.#namespace, labels }, this.#marks),
          type,
          data: Object.fromEntries(encoded),
        },
      },
      this.#until(signal),
    )
  }

  #question(verb: string, name: string): Omit<HttpRequest, 'method'> {
    if (!isDnsSubdomain(name)) {
      throw new ClusterApiError('Invalid', `Secret name ${JSON.stringify(name)}: expected an RFC 1123 subdomain`)
    }
    const path = resourcePath({ apiVersion: 'v1', plural: 'secrets' }, this.#namespace, name)
    return { verb, title: `Secret ${this.#namespace}/${name}`, path }
  }

  #until(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#stop : AbortSignal.any([signal, this.#stop])
  }
}

const PLACE = { apiVersion: 'coordination.k8s.io/v1', plural: 'leases' }

export class KubeLeaseStore implements LeaseStore {
  readonly #http: HttpClient
  readonly #namespace: string
  readonly #marks: ObjectMarks
  readonly #stop: AbortSignal

  /**
   * `marks` are added to every Lease. A mark that is no longer configured stays on existing Leases, since they are
   * replaced as a whole.
   */
  constructor(
    deps: { readonly http: HttpClient },
    init: { readonly namespace: string; readonly marks: ObjectMarks; readonly stop: AbortSignal },
  ) {
    this.#http = deps.http
    this.#namespace = init.namespace
    this.#marks = init.marks
    this.#stop = init.stop
  }

  async read(name: string, signal: AbortSignal): Promise<StoredLease | undefined> {
    try {
      return (await this.#http.ask<StoredLease>(this.#question('get', 'GET', name), this.#until(signal))).body
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined
      throw error
    }
  }

  async write(lease: StoredLease, signal: AbortSignal): Promise<StoredLease> {
    const { name, resourceVersion } = lease.metadata
    const question =
      resourceVersion === undefined ? this.#question('create', 'POST', name) : this.#question('update', 'PUT', name)
    const metadata = withNewObjectMarks({ ...lease.metadata, namespace: this.#namespace }, this.#marks)
    const body = { ...lease, metadata }
    return (await this.#http.ask<StoredLease>({ ...question, body }, this.#until(signal))).body
  }

  #question(verb: string, method: HttpRequest['method'], name: string): HttpRequest {
    const own = resourcePath(PLACE, this.#namespace, name)
    const place = method === 'POST' ? { path: resourcePath(PLACE, this.#namespace), creates: own } : { path: own }
    return {
      verb,
      title: `Lease ${this.#namespace}/${name}`,
      method,
      ...place,
      again: false,
      timeoutMs: LEASE_REQUEST_MS,
    }
  }

  #until(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#stop])
  }
}
