/**
 * What a gateway does about its lane before its process ends. Another node takes the lane first if one can and if the
 * end would interrupt traffic. A lane in the kernel keeps working without the process; a lane in user space ends with
 * it.
 */
import { isNotReady, leavingReason } from '../../model/lanes/lanes.ts'
import type { GatewayDeps } from '../world/world.ts'
import { DRAIN_LEAD_MS, type LaneLease } from './lane-lease.ts'
import { untilAborted, withDeadline } from '../../reconcile/reconcile.ts'

/** If no node has begun to take the lane after this time, the other nodes are unavailable as well. */
const UNTAKEN_MS = 5000
/**
 * A handover takes 7 s on an idle machine, and 12 s were measured on a busy one. Together with the last API check
 * (labelled-gateway.ts) it must fit into the termination grace period of the pod (install/plan-member.ts).
 */
export const HAND_OVER_MS = 25_000
export const RELEASE_MS = 2000
/**
 * How long a node that is no longer a gateway serves while no other gateway carries traffic. A new pod can pull its
 * image in that time.
 */
export const LAST_MS = 60_000
/** Longer than the heartbeat interval of another gateway, which reports the links that are up. */
const UNHEARD_MS = 12_000
const NO_GATEWAY = 'this node is no longer a gateway of the lane'

/** What ends. `lane`: the node takes another, free lane at once, because its label was changed and not removed. */
export type Ends = 'process' | 'lane' | 'gateway'

/** Resolves when waiting has no further benefit. Never rejects. */
export async function handLaneOver(deps: GatewayDeps, lease: LaneLease, ends: Ends): Promise<void> {
  const { clock, logger } = deps
  if (lease.state.is === 'unknown' || lease.state.is === 'standing by') return
  const goes = ends !== 'process'
  const why = await reasonToHandOver(deps, lease.node, goes)
  // A node with another lane carries traffic again as soon as it has released this one.
  if (ends === 'gateway') await whenRelieved(deps, lease)
  if (why !== undefined && lease.others().length === 0 && lease.othersServe()) {
    logger.info('waiting until the other gateways carry the traffic', { lane: lease.lane, why })
    lease.retire(why)
    await withDeadline(clock, DRAIN_LEAD_MS, untilAborted)
  }
  if (why !== undefined && !goes && lease.others().length > 0) {
    logger.info('handing over the lane first', { lane: lease.lane, why })
    lease.retire(why)
    const done = await whenHandedOver(deps, lease)
    logger.info(done ? 'another node has taken the lane' : 'the lane was not handed over in time', { lane: lease.lane })
  }
  // Otherwise this node would take the lane back as soon as it is free.
  if (goes) lease.retire(NO_GATEWAY)
  if (goes) await withDeadline(clock, RELEASE_MS, (signal) => lease.release(signal))
}

async function reasonToHandOver({ api, cable }: GatewayDeps, node: string, goes: boolean): Promise<string | undefined> {
  if (goes) return NO_GATEWAY
  const object = api.cache('Node').get(node)
  const leaving = object === undefined ? undefined : leavingReason(object)
  if (leaving !== undefined) return leaving
  if (object !== undefined && isNotReady(object)) return 'the node is not ready: it may be shutting down'
  const driver = await cable.driver().catch(() => undefined)
  return driver === undefined ? undefined : cable.rules.endsWithProcess(driver.name)
}

/**
 * Waits after the label was removed, so that the cluster keeps a gateway. It ends when another node has the lane, when
 * another gateway has since reported links to every cluster that this one reaches, or after LAST_MS.
 */
async function whenRelieved({ api, clock, logger }: GatewayDeps, lease: LaneLease): Promise<void> {
  const { lane, node } = lease
  const isCarried = lease.othersCarry()
  lease.retire(NO_GATEWAY)
  let note: string | undefined
  const relieved = new Promise<boolean>((resolve) => {
    const look = (): void => {
      if (lease.state.is === 'standing by' || isCarried()) end(true)
    }
    const end = (is: boolean): void => {
      for (const cancel of cancels) cancel()
      resolve(is)
    }
    const report = (): void => {
      if (lease.state.is !== 'serving') return
      note = `${NO_GATEWAY}, but no other gateway carries the traffic: this node keeps carrying it until another one does, for at most ${LAST_MS / 1000} s`
      logger.warn(note, { reason: 'LaneNotHandedOver', lane })
      api.report({ regarding: { kind: 'Node', name: node }, type: 'Warning', reason: 'LaneNotHandedOver', note })
    }
    const cancels = [
      lease.onChange(look),
      api.cache('Gateway').onChange(look),
      clock.setTimer(UNHEARD_MS, report),
      clock.setTimer(LAST_MS, () => end(false)),
    ]
    look()
  })
  const is = await relieved
  if (note !== undefined)
    logger.info(
      is
        ? 'another gateway carries the traffic'
        : 'no other gateway carries the traffic, but the time is over: this one stops',
      { lane },
    )
}

/** Resolves to false if no node took the lane, or if the handover was not complete in time. */
function whenHandedOver({ clock }: GatewayDeps, lease: LaneLease): Promise<boolean> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (lease.state.is === 'standing by') end(true)
    }
    const end = (done: boolean): void => {
      for (const cancel of cancels) cancel()
      resolve(done)
    }
    const untaken = (): void => {
      if (lease.state.is === 'serving') end(false)
    }
    const cancels = [
      lease.onChange(look),
      clock.setTimer(UNTAKEN_MS, untaken),
      clock.setTimer(HAND_OVER_MS, () => end(false)),
    ]
    look()
  })
}
