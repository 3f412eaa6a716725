/** The ClusterApi of a Kubernetes cluster. */
import type { Duplex } from 'node:stream'
import type { Condition, Kind, KubeObject, ObjectKinds } from '../../model/model.ts'
import { type Clock, WriteQueue } from '../../reconcile/reconcile.ts'
import type { Slimmer } from '../../model/schemas/schemas.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import {
  type ClusterApi,
  ClusterApiError,
  type LeaseStore,
  type ObjectCache,
  type ObjectEvent,
  type ObjectName,
} from '../kubeapi.ts'
import { Election, type ElectionInit } from '../lease/lease.ts'
import { checkAddress, objectKey, objectTitle } from '../driver/driver.ts'
import { DynamicClient } from './dynamic-client.ts'
import { EventRecorder } from './write/event-recorder.ts'
import { ResourceClient } from './resource-client.ts'
import type { Selector } from './kind-watch.ts'
import { type AccessInit, openAccess } from './kubeconfig.ts'
import { type KubeMetrics, UNCOUNTED, kubeMetrics } from './metrics.ts'
import { NO_OBJECT_MARKS, type ObjectMarks, withObjectMarks } from './write/owned-fields.ts'
import { ObjectWriter } from './write/object-writer.ts'
import { HttpClient } from './http/http-client.ts'
import { type Refusal, Refusals } from './http/refusals.ts'
import { KubeLeaseStore, KubeSecretStore, type SecretStore } from './own-namespace.ts'
import type { CommandResult, PodCommand } from './http/pod-exec.ts'
import type { PodPort } from './http/pod-forward.ts'
import type { ServerAccess } from './server-access.ts'
import { ServerConnection } from './http/server-connection.ts'

export interface KubeApiDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics?: Metrics | undefined
}

export interface KubeApiInit extends AccessInit {
  /** The namespace of our own Secrets and Leases. */
  readonly namespace: string
  /** Kinds of which only some objects are watched. Default: all objects of the cluster. */
  readonly selectors?: Readonly<Partial<Record<Kind, Selector>>>
  /** What caches leave out besides what no process reads. Default: nothing. */
  readonly slimmers?: Readonly<Partial<Record<Kind, Slimmer>>>
  /** Labels and annotations for every object that is written; the object's own take precedence. Default: none. */
  readonly marks?: ObjectMarks
}

/** A write waits at most this long for the first complete list of its kind. */
const FIRST_LIST_MS = 10_000
/** Limit for pending operations after close(). */
export const DRAIN_MS = 5000
/** More parallel writes would only queue in the client. */
const MAX_WRITES = 16

/** Does not contact the server yet. Throws UserError if the kubeconfig or the context is not usable. */
export async function openKubeApi(deps: KubeApiDeps, init: KubeApiInit): Promise<KubeApi> {
  return new KubeApi(deps, init, await openAccess(deps.clock, init))
}

export class KubeApi implements ClusterApi {
  readonly access: ServerAccess
  readonly dynamic: DynamicClient
  readonly secrets: SecretStore
  readonly leases: LeaseStore
  readonly #deps: KubeApiDeps
  readonly #init: KubeApiInit
  readonly #marks: ObjectMarks
  readonly #metrics: KubeMetrics
  readonly #connection: ServerConnection
  readonly #http: HttpClient
  readonly #refusals: Refusals
  readonly #writer: ObjectWriter
  readonly #recorder: EventRecorder
  readonly #clients = new Map<Kind, ResourceClient>()
  readonly #writes = new WriteQueue(MAX_WRITES)
  readonly #watches: Promise<void>[] = []
  readonly #elections = new Set<Promise<void>>()
  readonly #stop = new AbortController()
  /** Aborted some time after #stop, so that pending operations can end by themselves. */
  readonly #cut = new AbortController()

  constructor(deps: KubeApiDeps, init: KubeApiInit, access: ServerAccess) {
    this.#deps = deps
    this.#init = init
    this.#marks = init.marks ?? NO_OBJECT_MARKS
    this.access = access
    this.#metrics = deps.metrics === undefined ? UNCOUNTED : kubeMetrics(deps.metrics)
    this.#connection = new ServerConnection({ clock: deps.clock, access })
    this.#refusals = new Refusals(deps.clock)
    this.#http = new HttpClient({
      clock: deps.clock,
      refusals: this.#refusals,
      connection: this.#connection,
      metrics: this.#metrics,
      server: access.server.href.replace(/\/$/, ''),
    })
    const [http, marks] = [this.#http, this.#marks]
    this.#writer = new ObjectWriter({ http, clock: deps.clock }, marks)
    this.#recorder = new EventRecorder({ clock: deps.clock, logger: deps.logger, http, marks })
    this.dynamic = new DynamicClient({ http }, { stop: this.#stop.signal, marks })
    const ours = { namespace: init.namespace, marks, stop: this.#stop.signal }
    this.secrets = new KubeSecretStore({ http }, ours)
    this.leases = new KubeLeaseStore({ http }, ours)
  }

  /** Returns what the API server refuses to this process at present. */
  refused(): readonly Refusal[] {
    return this.#refusals.list()
  }

  cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    return this.#client(kind).objects.cache as unknown as ObjectCache<ObjectKinds[K]>
  }

  asApplied<T extends KubeObject>(object: T): T {
    const metadata = withObjectMarks(object.metadata, this.#marks)
    return metadata === object.metadata ? object : { ...object, metadata }
  }

  async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    await this.#write(kind, metadata.name, metadata.namespace, signal, (client, limited) =>
      this.#writer.apply(client, object, limited),
    )
  }

  async applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    await this.#write(kind, metadata.name, metadata.namespace, signal, (client, limited) =>
      this.#writer.applyStatus(client, object, limited),
    )
  }

  async setCondition(object: ObjectName, condition: Condition, signal?: AbortSignal): Promise<void> {
    const { kind, name, namespace } = object
    await this.#write(kind, name, namespace, signal, (client, limited) =>
      this.#writer.setCondition(client, object, condition, limited),
    )
  }

  async read<K extends Kind>(
    kind: K,
    name: string,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<ObjectKinds[K] | undefined> {
    this.#stop.signal.throwIfAborted()
    checkAddress(kind, name, namespace)
    const limited = signal === undefined ? this.#stop.signal : AbortSignal.any([signal, this.#stop.signal])
    return (await this.#client(kind).read(name, namespace, limited)) as ObjectKinds[K] | undefined
  }

  async remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void> {
    await this.#write(kind, name, namespace, signal, (client, limited) =>
      this.#writer.remove(client, name, namespace, limited),
    )
  }

  report(event: ObjectEvent): void {
    const { kind, name, namespace, uid } = event.regarding
    const known = uid ?? this.#clients.get(kind)?.objects.holding(objectKey(name, namespace))?.uid
    if (this.#stop.signal.aborted) return
    this.#recorder.report({ ...event, regarding: { ...event.regarding, uid: known } }, this.#cut.signal)
  }

  /** Runs a command in a container to its end. See execInPod(). */
  async exec(command: PodCommand, signal: AbortSignal): Promise<CommandResult> {
    const { clock } = this.#deps
    // Loaded on demand: it needs WebSockets, which most processes do not use.
    const { execInPod } = await import('./http/pod-exec.ts')
    return execInPod({ clock, access: this.access }, command, AbortSignal.any([signal, this.#stop.signal]))
  }

  /** Opens a connection to a port of a pod. See forwardToPod(). */
  async forward(target: PodPort, signal: AbortSignal): Promise<Duplex> {
    const { clock } = this.#deps
    const { forwardToPod } = await import('./http/pod-forward.ts')
    return forwardToPod({ clock, access: this.access }, target, AbortSignal.any([signal, this.#stop.signal]))
  }

  /**
   * Calls `lead` while this process holds the Lease, with a signal that aborts when it no longer does. Resolves after
   * `signal` is aborted, `lead` has ended and the Lease is released. See Election.run().
   */
  elect(init: ElectionInit, lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#deps
    // Uses the later signal, since close() still releases the Lease.
    const leases = new KubeLeaseStore(
      { http: this.#http },
      { namespace: this.#init.namespace, marks: this.#marks, stop: this.#cut.signal },
    )
    const election = new Election({ clock, logger, leader: this.#metrics.leader, leases }, init)
    const running = election.run(lead, AbortSignal.any([signal, this.#stop.signal]))
    const settled = running.catch(() => undefined)
    this.#elections.add(settled)
    void settled.then(() => this.#elections.delete(settled))
    return running
  }

  /** Stops watches and elections, releases Leases, and waits for pending writes. */
  async close(): Promise<void> {
    this.#stop.abort(new ClusterApiError('Unavailable', 'the cluster API is closed'))
    const cancel = this.#deps.clock.setTimer(DRAIN_MS, () => this.#cut.abort(this.#stop.signal.reason))
    await Promise.all([...this.#elections, this.#writes.settled(), this.#recorder.settled(), ...this.#watches])
    cancel()
    this.#connection.close()
  }

  #client(kind: Kind): ResourceClient {
    const existing = this.#clients.get(kind)
    if (existing !== undefined) return existing
    const { clock, logger } = this.#deps
    const client = new ResourceClient(
      { clock, logger, metrics: this.#metrics, http: this.#http },
      { kind, selector: this.#init.selectors?.[kind] ?? {}, slimmer: this.#init.slimmers?.[kind] },
    )
    this.#clients.set(kind, client)
    // Deferred, so that the caller can register a listener before the first read.
    if (!this.#stop.signal.aborted) setImmediate(() => this.#watches.push(client.run(this.#stop.signal)))
    return client
  }

  /** Runs one write after earlier writes of the same object, once the kind has been read. */
  async #write(
    kind: Kind,
    name: string,
    namespace: string | undefined,
    signal: AbortSignal | undefined,
    run: (client: ResourceClient, signal: AbortSignal) => Promise<void>,
  ): Promise<void> {
    signal?.throwIfAborted()
    this.#stop.signal.throwIfAborted()
    checkAddress(kind, name, namespace)
    const limited = signal === undefined ? this.#stop.signal : AbortSignal.any([signal, this.#stop.signal])
    const client = this.#client(kind)
    if (!client.objects.cache.synced) await this.#firstList(client, objectTitle(kind, name, namespace), limited)
    await this.#writes.run(`${kind} ${objectKey(name, namespace)}`, async () => {
      limited.throwIfAborted()
      await run(client, signal === undefined ? this.#cut.signal : AbortSignal.any([signal, this.#cut.signal]))
    })
  }

  async #firstList(client: ResourceClient, title: string, signal: AbortSignal): Promise<void> {
    const late = new AbortController()
    const cancel = this.#deps.clock.setTimer(FIRST_LIST_MS, () => late.abort())
    try {
      await client.objects.cache.whenSynced(AbortSignal.any([signal, late.signal]))
    } catch (error) {
      if (!late.signal.aborted || signal.aborted) throw error
      const reason = client.trouble ?? `not read within ${FIRST_LIST_MS / 1000} s`
      throw new ClusterApiError('Unavailable', `${title}: ${client.objects.kind} objects cannot be read yet: ${reason}`)
    } finally {
      cancel()
    }
  }
}
