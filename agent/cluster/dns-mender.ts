/**
 * Puts back what `sealane join` wired in the cluster's own DNS, when an upgrade of the distribution has rewritten it. It
 * touches only the values that the Membership names, and it yields to another owner that reverts them.
 */
import { type ClusterApi, ClusterApiError } from '../../kubeapi/kubeapi.ts'
import {
  type Mending,
  type WiredDns,
  type WiredMap,
  planMending,
  readWiredDns,
} from '../../model/cluster-dns/cluster-dns.ts'
import { CLUSTERSET_ZONE, MEMBERSHIP_NAME, oneLine } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

/** A ConfigMap with all its fields, so that they stay when it is written back. */
export interface DnsMap {
  readonly metadata: {
    readonly name: string
    readonly namespace?: string | undefined
    readonly resourceVersion?: string
    readonly managedFields?: readonly { readonly manager?: string; readonly time?: string }[]
    readonly [field: string]: unknown
  }
  readonly data?: Readonly<Record<string, string>>
  readonly [field: string]: unknown
}

export interface DnsMaps {
  /** From the server and not from a cache; undefined if it does not exist. Throws ClusterApiError. */
  read(namespace: string, name: string, signal: AbortSignal): Promise<DnsMap | undefined>
  /** Throws ClusterApiError Conflict if another client wrote after the read. */
  write(map: DnsMap, signal: AbortSignal): Promise<void>
}

export interface DnsTrouble {
  readonly reason: ReasonCode
  readonly message: string
  /**
   * False for what was known at the join, and for a Corefile that was removed with its ConfigMap, as when a cache is
   * uninstalled: the answers of the DNS then say whether it matters.
   */
  readonly isLost: boolean
}

/** Within this time a loss is told, with the loop's own pause and the server's answer. */
const LOOK_MS = 20_000
/** After this many repairs within REVERTS_WITHIN_MS, the next loss is a fight that Sealane does not go on with. */
const REPAIRS = 3
const REVERTS_WITHIN_MS = 10 * 60_000
/** After this time it tries again: an upgrade of several steps is over by then. */
const STOPPED_MS = 60 * 60_000

export class DnsMender {
  readonly #deps: { readonly api: ClusterApi; readonly maps: DnsMaps; readonly clock: Clock; readonly logger: Logger }
  readonly #own: string
  /** By the title of a value: when it was repaired, by the monotonic clock. */
  readonly #repairs = new Map<string, readonly number[]>()
  readonly #stoppedAt = new Map<string, number>()
  #lookedAt = -Infinity
  #trouble: DnsTrouble | undefined

  /** `own` is the id of this cluster. */
  constructor(
    deps: { readonly api: ClusterApi; readonly maps: DnsMaps; readonly clock: Clock; readonly logger: Logger },
    own: string,
  ) {
    this.#deps = deps
    this.#own = own
  }

  /** Looks at most every LOOK_MS, repairs what is lost, and gives the worst trouble. Throws the signal's reason. */
  async look(signal: AbortSignal): Promise<DnsTrouble | undefined> {
    const { api, clock } = this.#deps
    const membership = api.cache('Membership').get(MEMBERSHIP_NAME)
    const wired = membership?.spec.phase === 'joined' ? readWiredDns(membership.metadata.annotations) : undefined
    if (wired === undefined) return (this.#trouble = undefined)
    if (clock.monotonic() - this.#lookedAt < LOOK_MS) return this.#trouble
    this.#lookedAt = clock.monotonic()
    const lost: DnsTrouble[] = []
    for (const map of wired.maps) {
      const trouble = await this.#mend(map, wired, signal)
      if (trouble !== undefined) lost.push(trouble)
    }
    const [known] = wired.problems
    const worst = lost.find(({ isLost }) => isLost) ?? lost[0]
    return (this.#trouble = worst ?? (known === undefined ? undefined : { ...known, isLost: false }))
  }

  async #mend(wired: WiredMap, { forwardTo }: WiredDns, signal: AbortSignal): Promise<DnsTrouble | undefined> {
    const { maps } = this.#deps
    const title = `ConfigMap ${wired.namespace}/${wired.name}`
    try {
      const map = await maps.read(wired.namespace, wired.name, signal)
      // A CoreDNS without its Corefile does not start, so the block of a removed one is missed only if DNS is silent.
      if (map === undefined) return { ...notMended(title, 'it does not exist'), isLost: wired.text !== undefined }
      const plan = planMending(wired, map.data ?? {}, { domain: CLUSTERSET_ZONE, forwardTo })
      if (plan.state === 'holds') {
        this.#holds(title, wired)
        return
      }
      if (plan.state === 'stuck') return notMended(title, plan.why)
      return await this.#restore(title, wired, map, plan, signal)
    } catch (error) {
      signal.throwIfAborted()
      if (!(error instanceof ClusterApiError)) throw error
      // The next look reads again what another client has just written; a server that does not answer is no loss.
      if (error.code === 'Conflict' || error.code === 'Unavailable') return undefined
      return notMended(title, oneLine(error.message).slice(0, 300))
    }
  }

  #holds(title: string, { key }: WiredMap): undefined {
    this.#stoppedAt.delete(`${title} ${key}`)
    return undefined
  }

  async #restore(
    title: string,
    { key }: WiredMap,
    map: DnsMap,
    { text }: Extract<Mending, { state: 'lost' }>,
    signal: AbortSignal,
  ): Promise<DnsTrouble | undefined> {
    const { api, maps, clock, logger } = this.#deps
    const [id, now] = [`${title} ${key}`, clock.monotonic()]
    const repairs = (this.#repairs.get(id) ?? []).filter((at) => now - at < REVERTS_WITHIN_MS)
    const stoppedAt = this.#stoppedAt.get(id)
    if (stoppedAt !== undefined ? now - stoppedAt < STOPPED_MS : repairs.length >= REPAIRS) {
      this.#stoppedAt.set(id, stoppedAt ?? now)
      return {
        reason: 'ClusterDnsReverted',
        message: `${title}, ${key}: ${otherWriter(map)} reverts Sealane's block, so Sealane no longer puts it back`,
        isLost: true,
      }
    }
    this.#stoppedAt.delete(id)
    await maps.write({ ...map, data: { ...map.data, [key]: text } }, signal)
    this.#repairs.set(id, [...repairs, now])
    const note = `${title}, ${key}: ${otherWriter(map)} had removed Sealane's block, and it is back`
    logger.warn('the cluster DNS had lost its forwarding to Sealane', { reason: 'ClusterDnsMended', note })
    api.report({ regarding: { kind: 'Cluster', name: this.#own }, type: 'Warning', reason: 'ClusterDnsMended', note })
    return undefined
  }
}

function notMended(title: string, why: string): DnsTrouble {
  return {
    isLost: true,
    reason: 'ClusterDnsNotMended',
    message: `${title} no longer forwards ${CLUSTERSET_ZONE} to Sealane, and Sealane cannot put that back: ${why}`,
  }
}

/** The client that wrote last, apart from Sealane. */
function otherWriter({ metadata: { managedFields = [] } }: DnsMap): string {
  const others = managedFields.filter(({ manager = '' }) => manager !== '' && !manager.startsWith('sealane'))
  const last = others.reduce<(typeof others)[number] | undefined>(
    (found, each) => (found === undefined || (each.time ?? '') >= (found.time ?? '') ? each : found),
    undefined,
  )
  return last?.manager === undefined ? 'another client' : oneLine(last.manager).slice(0, 128)
}
