/** Leases in our own namespace. */
import type { LeaseStore, StoredLease } from '../lease-store.ts'
import { resourcePath } from './kinds.ts'
import { KubeError } from './kube-error.ts'
import type { HttpRequest, HttpClient } from './http/http-client.ts'
import { type ObjectMarks, withNewObjectMarks } from './write/object-marks.ts'

/** What takes longer is no help to a holder that has to renew in time. */
const TIMEOUT_MS = 3000
const PLACE = { apiVersion: 'coordination.k8s.io/v1', plural: 'leases' }

export class KubeLeaseStore implements LeaseStore {
  readonly #http: HttpClient
  readonly #namespace: string
  readonly #marks: ObjectMarks
  readonly #stop: AbortSignal

  /** `marks`: of every Lease. One that is taken away later stays on Leases that are there: they are replaced whole. */
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
    return { verb, title: `Lease ${this.#namespace}/${name}`, method, ...place, again: false, timeoutMs: TIMEOUT_MS }
  }

  #until(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#stop])
  }
}
