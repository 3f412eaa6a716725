/** Handles far ends that take another identity: receives their notices in the tunnel and changes the links. */
import { createHash } from 'node:crypto'
import type { Notice } from '../../kernel/probing/probing.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { CableRotation } from '../cable/cable.ts'
import type { LanePlan, PlannedLink } from '../links/links.ts'
import { healthKey } from '../world/world.ts'

export interface FollowingDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly rotation: CableRotation
  readonly lanes: () => readonly LanePlan[]
  /** Called after a link has taken the new identity. */
  readonly onFollowed: () => void
  /** True while this node takes another identity itself. */
  readonly isSwitching: () => boolean
}

/** Delay from the notice until this node calls the far end, which then has its new identity and accepts the call. */
const FOLLOW_AFTER_MS = 10
/** When to check whether the far end has completed a handshake, and to call it again. */
const LOOKS_MS = [100, 200, 400]
/** How long an announced change is expected. */
const SOON_MS = 2500

export class Following {
  readonly #deps: FollowingDeps
  readonly #signal: AbortSignal
  readonly #underWay = new Set<string>()
  #soonMs = -Infinity

  constructor(deps: FollowingDeps, signal: AbortSignal) {
    this.#deps = deps
    this.#signal = signal
  }

  /**
   * True if a far end is about to take another identity. Two ends that change at once would call each other in vain.
   */
  get isExpected(): boolean {
    return this.#underWay.size > 0 || this.#deps.clock.monotonic() - this.#soonMs < SOON_MS
  }

  /** Takes a notice from the far end of the link with this healthKey(). True: it gets a receipt. */
  onNotice(key: string, { mark, step }: Notice): boolean {
    const link = this.#link(key)
    if (link?.announced === undefined || identityMark(link.announced) !== mark) return false
    if (step === 'known') return true
    if (this.#deps.isSwitching()) return false
    if (step === 'soon') {
      this.#soonMs = this.#deps.clock.monotonic()
      return true
    }
    if (link.identity !== link.announced && !this.#underWay.has(key)) void this.#follow(key, link, link.announced)
    return false
  }

  async #follow(key: string, { remoteLane, identity: from, cluster }: PlannedLink, to: string): Promise<void> {
    const { clock, logger, rotation, onFollowed } = this.#deps
    const followed = { remoteLane, from, to }
    this.#underWay.add(key)
    try {
      await rotation.follow(followed, clock.sleep(FOLLOW_AFTER_MS, this.#signal), this.#signal)
      logger.info('the remote gateway of a link has a new key', { cluster, remoteLane })
      onFollowed()
      for (const ms of LOOKS_MS) {
        await clock.sleep(ms, this.#signal)
        if (await rotation.hasFollowed(followed, this.#signal)) break
      }
    } catch (error) {
      if (this.#signal.aborted) return
      const why = messageOf(error)
      logger.warn('a link did not take the new key of the remote gateway at once', {
        cluster,
        remoteLane,
        reason: 'RoundFailed',
        why,
      })
    } finally {
      this.#underWay.delete(key)
    }
  }

  #link(key: string): PlannedLink | undefined {
    const links = this.#deps.lanes().flatMap((lane) => lane.links)
    return links.find((link) => healthKey(link.remoteLane, link.cluster) === key)
  }
}

/** A hash of an identity as one number, to name it in a notice (kernel/probing/probe-packet.ts). */
export function identityMark(identity: string): number {
  return createHash('sha256').update(identity).digest().readUInt32BE(0)
}
