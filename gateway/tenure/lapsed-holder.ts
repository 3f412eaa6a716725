/**
 * Asks after a holder whose Lease lapsed. Its process may be between two images, or the API may be out of its reach
 * alone, while its kernel carries the lane: if another node took the lane then, nobody would take it out of that node.
 */
import type { Knock } from '../../kubeapi/known-machines.ts'
import { LABEL_DRAIN } from '../../model/lanes/gateway-node.ts'
import type { CableRules } from '../cable/cable.ts'
import type { GatewayDeps } from '../deps.ts'
import { whyLost } from './plan-lost-holder.ts'
import { type LeaseView, hasLapsed } from './plan-tenure.ts'

export type LapsedHolderDeps = Pick<GatewayDeps, 'clock' | 'logger' | 'api'> & {
  readonly knock: Knock
  readonly cable: { readonly rules: Pick<CableRules, 'endsWithProcess'> }
}

/** Pause until a machine that answers is knocked at again. One that does not is at each look, until it is given up. */
const REKNOCK_MS = 5000

export class LapsedHolder {
  readonly #deps: LapsedHolderDeps
  readonly #own: { readonly node: string; readonly lane: number }
  /** Which machine answered, and when to knock again. */
  #answered: { readonly holder: string; readonly nextMs: number } | undefined
  /** Of the holder that lapsed: what was logged last, and whether an Event was reported. */
  #said = ''
  #reported = false

  constructor(deps: LapsedHolderDeps, own: { readonly node: string; readonly lane: number }) {
    this.#deps = deps
    this.#own = own
  }

  /**
   * True where another node holds the Lease, it lapsed, and that node's lane is lost as well. Asks its machine, which
   * takes two seconds where that does not answer. `reports`: of the nodes that stand by, this one reports to people.
   * Never rejects.
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
    if (said !== this.#said) logger.warn('the lease of the lane lapsed', { reason, lane, holder, why: said })
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
      `the gateway of this node does not renew its hold on lane ${this.#own.lane}, but its machine answers and its ` +
      `last word was that connections are up, so no other node takes the lane. See its process ` +
      `there; a cordon of ${holder}, or the label ${LABEL_DRAIN} on its Node, gives the lane to another node`
    const regarding = { kind: 'Node', name: holder } as const
    this.#deps.api.report({ regarding, type: 'Warning', reason: 'LaneHolderSilent', note })
  }

  async #answers(holder: string): Promise<boolean> {
    const { clock, api, knock } = this.#deps
    if (this.#answered?.holder === holder && clock.monotonic() < this.#answered.nextMs) return true
    const addresses = api.cache('Node').get(holder)?.status?.addresses
    const address = addresses?.find(({ type }) => type === 'InternalIP')?.address
    // One packet may be lost. Without an address nobody can be asked, and the Lease decides alone.
    const answers = address !== undefined && ((await knock(address)) || (await knock(address)))
    this.#answered = answers ? { holder, nextMs: clock.monotonic() + REKNOCK_MS } : undefined
    return answers
  }
}
