/** Events for users: events.k8s.io/v1, best effort. */
import { hostname } from 'node:os'
import { type Clock, SerialQueue } from '../../../reconcile/reconcile.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { ObjectEvent } from '../../kubeapi.ts'
import { EventFilter, objectTitle } from '../../driver/driver.ts'
import { KIND_PLACES, resourcePath } from '../kinds.ts'
import { type ObjectMarks, withObjectMarks } from './owned-fields.ts'
import type { HttpClient } from '../http/http-client.ts'

export interface EventRecorderDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly http: HttpClient
  /** Added to every Event. */
  readonly marks: ObjectMarks
}

/** The namespace for Events of cluster-scoped objects, as Kubernetes itself uses it. */
const CLUSTER_EVENTS = 'default'
/** Limit of waiting and running requests; further Events are dropped. */
const MAX_WAITING = 100
const CONTROLLER = 'sealane.io/sealane'

export class EventRecorder {
  readonly #deps: EventRecorderDeps
  readonly #filter: EventFilter
  readonly #queue = new SerialQueue()
  #waiting = 0
  #count = 0
  /** Processes with the host's network have one hostname. */
  readonly #process: string

  constructor(deps: EventRecorderDeps) {
    this.#deps = deps
    this.#filter = new EventFilter(deps.clock)
    this.#process = Math.floor(deps.clock.random() * 0x1_0000)
      .toString(16)
      .padStart(4, '0')
  }

  report(event: ObjectEvent, signal: AbortSignal): void {
    if (signal.aborted || this.#waiting >= MAX_WAITING) return
    const passed = this.#filter.pass(event)
    if (passed === undefined) return
    this.#waiting += 1
    void this.#queue.run(async () => {
      try {
        await this.#post(passed, signal)
      } catch (error) {
        const why = messageOf(error)
        if (!signal.aborted) this.#deps.logger.debug('cannot write an event', { why })
      } finally {
        this.#waiting -= 1
      }
    })
  }

  settled(): Promise<void> {
    return this.#queue.settled()
  }

  async #post({ regarding, type, reason, note }: ObjectEvent, signal: AbortSignal): Promise<void> {
    const { kind, name, uid } = regarding
    const namespace = regarding.namespace ?? CLUSTER_EVENTS
    const now = this.#deps.clock.now()
    this.#count += 1
    // Differs from every other Event of this object: the time, a counter, and what differs between processes.
    const suffix = `${now.toString(16)}${this.#count.toString(16).padStart(4, '0')}${this.#process}`
    const unlike = `${name.slice(0, 230).replace(/[^a-z0-9]+$/, '')}.${suffix}`
    await this.#deps.http.ask(
      {
        verb: 'report on',
        title: objectTitle(kind, name, regarding.namespace),
        method: 'POST',
        path: resourcePath({ apiVersion: 'events.k8s.io/v1', plural: 'events' }, namespace),
        again: false,
        body: {
          apiVersion: 'events.k8s.io/v1',
          kind: 'Event',
          metadata: withObjectMarks({ name: unlike, namespace }, this.#deps.marks),
          eventTime: new Date(now).toISOString().replace('Z', '000Z'),
          reportingController: CONTROLLER,
          reportingInstance: hostname().slice(0, 128),
          action: reason,
          reason,
          type,
          note,
          regarding: { apiVersion: KIND_PLACES[kind].apiVersion, kind, name, namespace: regarding.namespace, uid },
        },
      },
      signal,
    )
  }
}
