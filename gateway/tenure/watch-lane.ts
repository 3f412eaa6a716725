/** Which lane the label of this node's Node says, while a process serves another one, or none. */
import { type GatewayLabel, gatewayLabel } from '../../model/lanes/gateway-node.ts'
import { messageOf } from '../../runtime/thrown.ts'
import type { GatewayDeps } from '../deps.ts'

/** A Node that was made anew has no label until somebody puts it on again: its lane and its key wait for so long. */
export const LABEL_GRACE_MS = 5000

export interface OtherLane {
  /** Aborts when the Node says another lane, or for some seconds none. */
  readonly signal: AbortSignal
  /** What it says now. */
  readonly lane: () => GatewayLabel | undefined
  readonly close: () => void
}

/** `before` is what this process serves now. */
export function watchLane(
  { api, logger, clock }: Pick<GatewayDeps, 'api' | 'logger' | 'clock'>,
  node: string,
  before: GatewayLabel | undefined,
): OtherLane {
  const changed = new AbortController()
  let lane = before
  let reported = ''
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
    try {
      return { lane: gatewayLabel(object) }
    } catch (error) {
      // A slip of the hand takes no lane down.
      const why = messageOf(error)
      if (why !== reported) {
        logger.error('the label of this node cannot be used; it stays as it was', { reason: 'InvalidValue', why })
      }
      reported = why
      return undefined
    }
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
  return { signal: changed.signal, lane: () => lane, close }
}

function isSame(a: GatewayLabel | undefined, b: GatewayLabel | undefined): boolean {
  return a?.lane === b?.lane && a?.publicAddress === b?.publicAddress
}
