/** Named Secrets in our own namespace. Their contents appear in no log and no message. */
import { ClusterApiError } from '../cluster-api.ts'
import { isDnsSubdomain } from '../../model/ids.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/spec-constants.ts'
import { resourcePath } from './kinds.ts'
import { KubeError } from './kube-error.ts'
import { type ObjectMarks, withObjectMarks } from './write/object-marks.ts'
import { FIELD_MANAGER } from './write/owned-fields.ts'
import type { HttpRequest, HttpClient } from './http/http-client.ts'

export interface StoredSecret {
  readonly type: string
  /** By key, decoded. */
  readonly data: ReadonlyMap<string, Uint8Array>
}

export interface SecretStore {
  /** Undefined when it does not exist. Throws ClusterApiError. */
  read(name: string, signal?: AbortSignal): Promise<StoredSecret | undefined>
  /** Creates it, or replaces all that we wrote of it; its type cannot change. Throws ClusterApiError. */
  write(name: string, secret: StoredSecret, signal?: AbortSignal): Promise<void>
}

export class KubeSecretStore implements SecretStore {
  readonly #http: HttpClient
  readonly #namespace: string
  readonly #marks: ObjectMarks
  readonly #stop: AbortSignal

  /** `marks`: of every Secret. */
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
