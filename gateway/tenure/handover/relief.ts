/** When a node that serves beside the holder of its lane is needed no more. */
import type { GatewayDeps } from '../../deps.ts'
import { linksUp, isRelieved } from './handing-over.ts'

export interface ReliefInit {
  readonly node: string
  readonly lane: number
  /** Called when isDue() may give true, with nothing else to ask for a look. */
  readonly onDue: () => void
}

/** Routes of the other nodes follow what the newcomer reports; until they have, this node sends it what comes. */
const LINGER_MS = 2000

export class Relief {
  readonly #deps: Pick<GatewayDeps, 'clock' | 'api'>
  readonly #init: ReliefInit
  #relievedMs: number | undefined
  #handing: { readonly holder: string; readonly sinceMs: number; readonly needed: Set<string> } | undefined

  constructor(deps: Pick<GatewayDeps, 'clock' | 'api'>, init: ReliefInit) {
    this.#deps = deps
    this.#init = init
  }

  /** True some time after the holder has come as far as this node was. To be asked at each look. */
  isDue(holder: string | undefined): boolean {
    const { clock, api } = this.#deps
    const { node, lane, onDue } = this.#init
    if (holder === undefined || holder === '' || holder === node) {
      this.#handing = undefined
      this.#relievedMs = undefined
      return false
    }
    const nowMs = clock.monotonic()
    if (this.#handing?.holder !== holder) this.#handing = { holder, sinceMs: nowMs, needed: new Set() }
    const { needed, sinceMs } = this.#handing
    const gateways = api.cache('Gateway')
    const own = gateways.get(node)
    for (const other of linksUp(own, lane)) needed.add(other)
    const relieved = isRelieved({ lane, holder: gateways.get(holder), own, needed, elapsedMs: nowMs - sinceMs })
    if (relieved && this.#relievedMs === undefined) clock.setTimer(LINGER_MS, onDue)
    this.#relievedMs = relieved ? (this.#relievedMs ?? nowMs) : undefined
    return this.#relievedMs !== undefined && nowMs - this.#relievedMs >= LINGER_MS
  }
}
