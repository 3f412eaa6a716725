/** The two ends of a key rotation in one process: this gateway's own, and those that it follows. */
import type { GatewayDeps } from '../deps.ts'
import { Following } from './following.ts'
import { type RotationInit, RotationLoop } from './rotation-loop.ts'

export interface Renewal {
  readonly loop: RotationLoop
  readonly following: Following
}

/** Undefined where the cable has nothing that could be made anew. The loop is not running yet. */
export function startRenewal(
  deps: GatewayDeps,
  init: Omit<RotationInit, 'rotation' | 'following'>,
  signal: AbortSignal,
): Renewal | undefined {
  const { rotation } = deps.cable
  if (rotation === undefined) return undefined
  const loop: RotationLoop = new RotationLoop(deps, { ...init, rotation, following: () => following })
  const following: Following = new Following(
    {
      clock: deps.clock,
      logger: deps.logger,
      rotation,
      lanes: () => init.lanes.plan?.lanes.lanes ?? [],
      onFollowed: () => init.lanes.poke(),
      isSwitching: () => loop.isSwitching,
    },
    signal,
  )
  return { loop, following }
}
