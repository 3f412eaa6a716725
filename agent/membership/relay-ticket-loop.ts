/**
 * Gives the gateways of this cluster what they need for relays on port 443: the addresses, as the broker states them,
 * and a ticket by which the cluster names its gateways to a relay. Both are kept in an annotation of the Membership, so
 * that they are there while the broker and this agent are away. A ticket is no secret.
 */
import type { ClusterApi, MembershipChanges } from '../../kubeapi/kubeapi.ts'
import { MEMBERSHIP_NAME } from '../../model/model.ts'
import { RELAYS_ANNOTATION, type RelayNotice, decodeRelayNotice, encodeRelayNotice } from '../../model/lanes/lanes.ts'
import type { IdentityStore } from '../../protocol/membership/membership.ts'
import { MAX_TICKET_IDENTITIES, TICKET_VALIDITY_MS, signTicket } from '../../protocol/tickets/tickets.ts'
import { type LoopInit, ReconcileLoop, Subscriptions, WakeTimer } from '../../reconcile/reconcile.ts'
import type { StatedRelays } from '../link/link.ts'
import { type LoopParts, loopDeps } from '../loop/loop.ts'

/** Sets the annotation RELAYS_ANNOTATION of the Membership; undefined removes it. Throws ClusterApiError. */
export type NoteRelays = (notice: string | undefined, signal: AbortSignal) => Promise<void>

export interface RelayTicketDeps extends LoopParts {
  readonly api: ClusterApi
  /** Undefined if the broker never states any. */
  readonly stated: StatedRelays | undefined
  /** If undefined, the whole Membership is written, by `changes`. */
  readonly note: NoteRelays | undefined
  readonly changes: MembershipChanges
}

export interface RelayTicketInit {
  readonly own: string
  readonly identity: Pick<IdentityStore, 'read'>
  readonly loop: LoopInit
}

/** A ticket is renewed after this part of its life: an agent that is away for less is not missed. */
const RENEW_MS = TICKET_VALIDITY_MS / 4

interface Signed {
  readonly of: string
  readonly atMs: number
  readonly ticket: string
}

export class RelayTicketLoop {
  readonly #deps: RelayTicketDeps
  readonly #init: RelayTicketInit
  readonly #loop: ReconcileLoop
  readonly #wake: WakeTimer
  readonly #subscriptions = new Subscriptions()
  #signed: Signed | undefined

  constructor(deps: RelayTicketDeps, init: RelayTicketInit) {
    const { api, stated, clock } = deps
    this.#deps = deps
    this.#init = init
    this.#loop = new ReconcileLoop(loopDeps(deps, 'relay-tickets'), init.loop, (signal) => this.#round(signal))
    const poke = (): void => this.#loop.poke()
    this.#wake = new WakeTimer(clock, poke)
    for (const kind of ['Membership', 'Endpoint'] as const) this.#subscriptions.add(api.cache(kind).onChange(poke))
    if (stated !== undefined) this.#subscriptions.add(stated.onChange(poke))
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#wake.close()
    this.#subscriptions.end()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { api, stated, logger } = this.#deps
    const present = api.cache('Membership').get(MEMBERSHIP_NAME)
    if (present?.spec.phase !== 'joined') return
    const kept = present.metadata.annotations?.[RELAYS_ANNOTATION]
    const notice = decodeRelayNotice(kept)
    const addresses = stated?.get() ?? notice.addresses
    const wanted = addresses.length === 0 ? undefined : encodeRelayNotice(await this.#notice(addresses))
    if (wanted === kept) return
    await this.#write(wanted, signal)
    if (notice.addresses.join() !== addresses.join()) logger.info('relays on port 443', { count: addresses.length })
  }

  async #write(notice: string | undefined, signal: AbortSignal): Promise<void> {
    const { note, changes } = this.#deps
    if (note !== undefined) return changes.inTurn(() => note(notice, signal), signal)
    await changes.apply((latest) => {
      const { [RELAYS_ANNOTATION]: _, ...others } = latest.metadata.annotations ?? {}
      const annotations = notice === undefined ? others : { ...others, [RELAYS_ANNOTATION]: notice }
      return { ...latest, metadata: { ...latest.metadata, annotations } }
    }, signal)
  }

  async #notice(addresses: readonly string[]): Promise<RelayNotice> {
    const { api, clock } = this.#deps
    const identities = api
      .cache('Endpoint')
      .list()
      .filter(({ spec }) => spec.cluster === this.#init.own)
      .flatMap(({ spec }) => [spec.publicKey, ...(spec.nextPublicKey === undefined ? [] : [spec.nextPublicKey])])
    const member = await this.#init.identity.read()
    if (member === undefined || identities.length === 0) return { addresses }
    const unique = [...new Set(identities)].sort().slice(0, MAX_TICKET_IDENTITIES)
    const of = JSON.stringify([unique, Buffer.from(member.certificate).toString('base64')])
    const nowMs = clock.now()
    const isFresh = this.#signed?.of === of && nowMs >= this.#signed.atMs && nowMs - this.#signed.atMs < RENEW_MS
    if (!isFresh) {
      const ticket = signTicket({ identities: unique, issuedMs: nowMs, untilMs: nowMs + TICKET_VALIDITY_MS }, member)
      this.#signed = { of, atMs: nowMs, ticket: ticket.toString('base64') }
    }
    this.#wake.at(clock.monotonic() + RENEW_MS)
    return { addresses, ...(this.#signed === undefined ? {} : { ticket: this.#signed.ticket }) }
  }
}
