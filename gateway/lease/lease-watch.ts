/**
 * The Lease of one lane as this node sees it: its holder, whether that holder is lost, and since when other nodes may
 * take it. A Lease has lapsed only if it did not change while every read succeeded, so a failed read discards what was
 * seen.
 */
import type { LeaseStore } from '../../kubeapi/kubeapi.ts'
import { LeaseHold, type LeaseMarks, hasLapsed, knownIn, writtenIn } from '../../kubeapi/lease/lease.ts'
import { ANNOTATION_HANDOVER, LABEL_DRAIN, LANE_LEASE_MS, laneLeaseName } from '../../model/lanes/lanes.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY, type Membership } from '../../model/model.ts'
import type { TcpProbe } from '../../reconcile/reconcile.ts'
import type { CableRules } from '../cable/cable.ts'
import type { GatewayDeps } from '../world/world.ts'
import { type LeaseView, whyLost, whyOpen } from './plan-lease.ts'

type LapsedHolderDeps = Pick<GatewayDeps, 'clock' | 'logger' | 'api'> & {
  readonly probeTcp: TcpProbe
  readonly cable: { readonly rules: Pick<CableRules, 'endsWithProcess'> }
}

/** Pause before a machine that answered is probed again. One that does not answer is probed in each round. */
const TCP_REPROBE_MS = 5000

/**
 * Checks a holder whose Lease has lapsed. Its process may be restarting with a new image, or only its connection to the
 * API may have failed, while its kernel carries the lane. If another node took the lane then, nothing would remove it
 * from that kernel.
 */
class LapsedHolder {
  readonly #deps: LapsedHolderDeps
  readonly #own: { readonly node: string; readonly lane: number }
  /** The holder whose machine answered, and when to probe it again. */
  #answered: { readonly holder: string; readonly nextMs: number } | undefined
  /** For the lapsed holder: the last logged text, and whether an Event was reported. */
  #said = ''
  #reported = false

  constructor(deps: LapsedHolderDeps, own: { readonly node: string; readonly lane: number }) {
    this.#deps = deps
    this.#own = own
  }

  /**
   * True if another node holds the Lease, the Lease has lapsed, and the lane of that node is lost too. Sends TCP probes
   * to its machine, which takes two seconds without an answer. `reports` is true on the one standby that reports an
   * Event. Never rejects.
   */
  async isLost(lease: LeaseView | undefined, reports: boolean): Promise<boolean> {
    const { clock, api, logger, cable } = this.#deps
    const { node, lane } = this.#own
    const holder = lease?.holder ?? ''
    if (lease === undefined || holder === '' || holder === node || !hasLapsed(lease, clock.monotonic())) {
      this.#forget()
      return false
    }
    const facts = { node: api.cache('Node').get(holder), gateway: api.cache('Gateway').get(holder) }
    const known = whyLost({ rules: cable.rules, lane, ...facts })
    const why = known ?? ((await this.#answers(holder)) ? undefined : 'its machine does not answer')
    const said = why ?? 'its machine answers, so it keeps the lane'
    const reason = why === undefined ? 'LaneHolderSilent' : 'LaneHolderLost'
    if (said !== this.#said) logger.warn('the lease of the lane has expired', { reason, lane, holder, why: said })
    this.#said = said
    if (why === undefined && reports) this.#report(holder)
    return why !== undefined
  }

  #forget(): void {
    this.#answered = undefined
    this.#said = ''
    this.#reported = false
  }

  #report(holder: string): void {
    if (this.#reported) return
    this.#reported = true
    const note =
      `the gateway of this node does not renew the lease of lane ${this.#own.lane}, but its machine answers and its ` +
      `last status has connections that are up, so no other node takes the lane. Check the gateway process on this ` +
      `node; to move the lane to another node, run sealane gateway drain ${holder} or set the label ${LABEL_DRAIN} on the Node`
    const regarding = { kind: 'Node', name: holder } as const
    this.#deps.api.report({ regarding, type: 'Warning', reason: 'LaneHolderSilent', note })
  }

  async #answers(holder: string): Promise<boolean> {
    const { clock, api, probeTcp } = this.#deps
    if (this.#answered?.holder === holder && clock.monotonic() < this.#answered.nextMs) return true
    const addresses = api.cache('Node').get(holder)?.status?.addresses
    const address = addresses?.find(({ type }) => type === 'InternalIP')?.address
    // One packet may be lost, so there are two attempts. Without an address there is no probe, and the Lease alone
    // decides.
    const answers = address !== undefined && ((await probeTcp(address)) || (await probeTcp(address)))
    this.#answered = answers ? { holder, nextMs: clock.monotonic() + TCP_REPROBE_MS } : undefined
    return answers
  }
}

export type LeaseWatchDeps = LapsedHolderDeps & { readonly leases: LeaseStore }

export class LeaseWatch {
  readonly node: string
  readonly lane: number
  readonly #deps: LeaseWatchDeps
  readonly #hold: LeaseHold
  readonly #holder: LapsedHolder
  #lost = false
  #openSinceMs: number | undefined

  constructor(deps: LeaseWatchDeps, own: { readonly node: string; readonly lane: number }) {
    this.#deps = deps
    this.node = own.node
    this.lane = own.lane
    this.#hold = new LeaseHold(deps, {
      name: laneLeaseName(own.lane),
      identity: own.node,
      unstatedMs: LANE_LEASE_MS,
    })
    this.#holder = new LapsedHolder(deps, own)
  }

  /** Undefined if there is no Lease, or if it was not read yet. */
  get view(): LeaseView | undefined {
    const known = knownIn(this.#hold.state)
    return known === undefined
      ? undefined
      : { ...known, offer: known.stored.metadata.annotations?.[ANNOTATION_HANDOVER] }
  }

  /** When this node last wrote the Lease, in monotonic milliseconds. Undefined if another node has written it since. */
  get writtenMs(): number | undefined {
    return writtenIn(this.#hold.state)
  }

  /** Why other nodes may take it. Undefined if they may not. */
  get open(): ReturnType<typeof whyOpen> {
    return whyOpen(this.view, this.#deps.clock.monotonic(), this.#lost)
  }

  /** True if the lane of the holder is lost, as far as this node knows. */
  get lost(): boolean {
    return this.#lost
  }

  /** Monotonic milliseconds. Undefined if only its holder may have it. */
  get openSinceMs(): number | undefined {
    return this.#openSinceMs
  }

  /**
   * Reads the Lease, and checks a holder that does not renew it. `reports` tells, for a given Lease, whether this node
   * reports an Event about such a holder. Throws ClusterApiError.
   */
  async look(reports: (view: LeaseView | undefined) => boolean, signal: AbortSignal): Promise<void> {
    await this.#hold.read(signal)
    this.#reckonOpen()
    this.#lost = await this.#holder.isLost(this.view, reports(this.view))
    this.#reckonOpen()
  }

  /** Takes or renews the Lease for this node, as it was last read. Throws ClusterApiError. */
  async write(step: 'take' | 'renew', { durationMs, ...terms }: LaneTerms, signal: AbortSignal): Promise<void> {
    await this.#hold[step]({ durationMs, marks: laneMarks(terms) }, signal)
    this.#reckonOpen()
  }

  /** Gives up the Lease if this node holds it, as the API says now. Throws ClusterApiError. */
  async giveUp({ durationMs, ...terms }: LaneTerms, signal: AbortSignal): Promise<void> {
    await this.#hold.read(signal)
    await this.#hold.giveUp({ durationMs, marks: laneMarks(terms), begins: true }, signal)
    this.#reckonOpen()
  }

  /** Discards what was seen: while reads failed, a silent holder may have been unable to renew as well. */
  forget(): void {
    this.#hold.forget()
    this.#openSinceMs = undefined
  }

  #reckonOpen(): void {
    const isOpen = this.open !== undefined
    this.#openSinceMs = isOpen ? (this.#openSinceMs ?? this.#deps.clock.monotonic()) : undefined
  }
}

// What the Lease of a lane says beside its holder. Pure.

interface LaneTerms {
  readonly durationMs: number
  /** Why another node is to take the lane. Undefined if this node keeps it. */
  readonly offer?: string | undefined
  /** The owner of the Lease, with which it is deleted. */
  readonly membership: Membership | undefined
}

function laneMarks({ offer, membership }: Omit<LaneTerms, 'durationMs'>): LeaseMarks {
  const uid = membership?.metadata.uid
  return (metadata) => {
    const { [ANNOTATION_HANDOVER]: _old, ...annotations } = metadata.annotations ?? {}
    return {
      ...metadata,
      labels: { ...(metadata.labels ?? {}), [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      annotations: offer === undefined ? annotations : { ...annotations, [ANNOTATION_HANDOVER]: offer },
      ...(membership === undefined || uid === undefined
        ? {}
        : {
            ownerReferences: [
              { apiVersion: membership.apiVersion, kind: membership.kind, name: membership.metadata.name, uid },
            ],
          }),
    }
  }
}
