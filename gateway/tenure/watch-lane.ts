/** Which lane the label of this node's Node says, while a process serves another one, or none. */
import { type GatewayLabel, gatewayLabel, gatewayProblem } from '../../model/lanes/gateway-node.ts'
import type { GatewayDeps } from '../deps.ts'

/** A Node that was made anew has no label until somebody puts it on again: its lane and its key wait for so long. */
export const LABEL_GRACE_MS = 5000

/** unusable: the Node has the label, and cannot be a gateway as it is. */
export type NodeSays = GatewayLabel | 'unusable' | undefined

export interface OtherLane {
  /** Aborts when the Node says another lane, or for some seconds none. */
  readonly signal: AbortSignal
  /** What it said last that counts. */
  readonly lane: () => NodeSays
  /** Why what it says now does not count; undefined: it does. */
  readonly problem: () => string | undefined
  readonly close: () => void
}

/** `before` is what this process serves now. */
export function watchLane(
  { api, logger, clock }: Pick<GatewayDeps, 'api' | 'logger' | 'clock'>,
  node: string,
  before: NodeSays,
): OtherLane {
  const changed = new AbortController()
  let lane = before
  let problem: string | undefined
  let cancelGrace: (() => void) | undefined
  const keep = (): void => {
    cancelGrace?.()
    cancelGrace = undefined
  }
  /** Undefined: it says nothing that counts. */
  const read = (): { readonly lane: GatewayLabel | undefined } | undefined => {
    const object = api.cache('Node').get(node)
    // A Node that is not there may be on its way back: kubelets register anew.
    if (object === undefined) return undefined
    const error = gatewayProblem(object)
    const last = problem
    problem = error?.message
    if (error === undefined) return { lane: gatewayLabel(object) }
    // A slip of the hand takes no lane down.
    if (last !== problem) {
      const { reason, message } = error
      const stays = before === 'unusable' || before === undefined ? 'it takes no lane' : 'it stays as it was'
      logger.error(`this node cannot be a gateway as its Node is; ${stays}`, { reason, why: message })
      const note = `${message}; until then ${stays}`
      api.report({ regarding: { kind: 'Node', name: node }, type: 'Warning', reason, note })
    }
    return undefined
  }
  const look = (): void => {
    const said = read()
    if (said !== undefined) lane = said.lane
    if (said === undefined || isSame(said.lane, before)) keep()
    else if (said.lane !== undefined) changed.abort()
    else cancelGrace ??= clock.setTimer(LABEL_GRACE_MS, () => changed.abort())
  }
  const stop = api.cache('Node').onChange((change) => {
    if (change?.object.metadata.name === node) look()
  })
  look()
  const close = (): void => {
    stop()
    keep()
  }
  return { signal: changed.signal, lane: () => lane, problem: () => problem, close }
}

function isSame(a: NodeSays, b: NodeSays): boolean {
  if (a === 'unusable' || b === 'unusable') return a === b
  return a?.lane === b?.lane && a?.publicAddress === b?.publicAddress
}
