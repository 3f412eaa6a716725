/** The links that sleep, and the loop that looks for a reason to wake them. */
import type { MeasuredPeer } from '../../kernel/probing/probing.ts'
import { type AddressPort, sameAddressPort } from '../../model/addresses/addresses.ts'
import { type Clock, unlessAborted } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type Cable, type LaneState, linkKey } from '../cable/cable.ts'
import { type LanePlan, plannedLinks } from '../links/links.ts'
import { clusterOfKey, healthKey } from '../world/world.ts'
import {
  type AsleepLink,
  type AwakeLink,
  type ProbesSeen,
  SLEEP_LOOK_MS,
  type SleepLook,
  type SleepRule,
  afterLook,
  asleepFrom,
  fallsAsleep,
  wakesByQuestion,
} from './plan-sleep.ts'

/** What one reading of the devices showed. */
export interface DeviceReading {
  readonly devices: readonly LanePlan[]
  readonly states: ReadonlyMap<number, LaneState>
  /** When the devices were asked, in milliseconds of the monotonic clock. */
  readonly askedMs: number
  /** Probing.health() before the devices were read, and after. */
  readonly before: ReadonlyMap<string, MeasuredPeer>
  readonly after: ReadonlyMap<string, MeasuredPeer>
}

export interface SleepingLinksDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Pick<Logger, 'debug'>
  /** Stops and starts the probes of a link. */
  readonly sleep: (key: string) => void
  readonly wake: (key: string) => void
}

type WhyAwake = 'traffic' | 'silence' | 'gone' | 'question' | 'unreadable' | 'unwanted' | 'moved' | 'failover'

/** `use`: the link is idle from then on. `question`: the far end may decide when it sleeps. `check`: it is as idle as before. */
type WakeKind = 'use' | 'question' | 'check'
const WAKE_KINDS: Readonly<Record<WhyAwake, WakeKind>> = {
  ...{ traffic: 'use', gone: 'use', unreadable: 'use', unwanted: 'use' },
  question: 'question',
  ...{ silence: 'check', moved: 'check', failover: 'check' },
}

interface LinkPlace {
  readonly at: AddressPort | undefined
  readonly movedMs: number
}

interface LinkLook extends SleepLook {
  readonly at: AddressPort | undefined
}

export class SleepingLinks {
  readonly #deps: SleepingLinksDeps
  readonly #asleep = new Map<string, AsleepLink>()
  /** When each link last woke, and when its far end last asked. */
  readonly #wokenMs = new Map<string, Partial<Record<WakeKind, number>>>()
  readonly #askedMs = new Map<string, number>()
  /** Where packets of each link go, and since when, if that has changed. */
  readonly #places = new Map<string, LinkPlace>()

  constructor(deps: SleepingLinksDeps) {
    this.#deps = deps
  }

  /** Those of the devices that have a sleeping link. */
  devicesOf(devices: readonly LanePlan[]): readonly LanePlan[] {
    return devices.filter(({ remoteLane, links }) =>
      links.some(({ cluster }) => this.#asleep.has(healthKey(remoteLane, cluster))),
    )
  }

  /** Forgets the links that are not among these. */
  keep(keys: ReadonlySet<string>): void {
    for (const map of [this.#asleep, this.#wokenMs, this.#askedMs, this.#places]) {
      for (const key of map.keys()) if (!keys.has(key)) map.delete(key)
    }
  }

  /** The far end of a link asks, so it is awake. */
  onQuestion(key: string): void {
    const nowMs = this.#deps.clock.monotonic()
    this.#askedMs.set(key, nowMs)
    const link = this.#asleep.get(key)
    if (link !== undefined && wakesByQuestion(link, nowMs)) this.#wake(key, 'question')
  }

  /** Puts links to sleep by this rule. `busyAtMs`: when a link last had traffic. */
  settle(
    reading: DeviceReading,
    rule: SleepRule,
    traffic: { readonly isBusy: (key: string) => boolean; readonly busyAtMs: (key: string) => number },
  ): void {
    const nowMs = this.#deps.clock.monotonic()
    for (const [key, look] of this.#looks(reading)) {
      const movedMs = this.#movedMs(key, look?.at)
      const peer = reading.after.get(key)
      if (peer === undefined || look === undefined || this.#asleep.has(key)) continue
      const { use = -Infinity, question = -Infinity, check = -Infinity } = this.#wokenMs.get(key) ?? {}
      const quietSinceMs = Math.max(peer.sinceMs, use, traffic.busyAtMs(key))
      const askedMs = this.#askedMs.get(key)
      const link: AwakeLink = {
        // One that is unanswered would stay so, because new connections avoid it and only answers end that.
        answers: isCalm(peer),
        busy: traffic.isBusy(key),
        quietSinceMs,
        idleSinceMs: Math.max(quietSinceMs, question),
        awakeSinceMs: Math.max(peer.sinceMs, movedMs, use, question, check),
        ...(askedMs === undefined ? {} : { askedMs }),
      }
      if (!fallsAsleep(link, rule, nowMs)) continue
      this.#asleep.set(key, asleepFrom(look))
      this.#deps.logger.debug('link falls asleep', { link: key })
      this.#deps.sleep(key)
    }
  }

  /** Wakes sleeping links for which the reading shows a reason. */
  look(reading: DeviceReading): void {
    for (const [key, look] of this.#looks(reading)) {
      const link = this.#asleep.get(key)
      const next = link === undefined ? undefined : this.#next(key, link, look)
      if (typeof next === 'string') this.#wake(key, next)
      else if (next !== undefined) this.#asleep.set(key, next)
    }
  }

  /** A link that asks nothing would stay up on a new path that lets nothing through, so that is checked. */
  #next(key: string, link: AsleepLink, look: LinkLook | undefined): AsleepLink | WhyAwake {
    const isMoved = look !== undefined && this.#movedMs(key, look.at) >= link.sinceMs
    return isMoved ? 'moved' : afterLook(link, look)
  }

  /** When the place to which packets of the link go was seen to change. -Infinity: never. */
  #movedMs(key: string, at: AddressPort | undefined): number {
    const before = this.#places.get(key)
    if (before !== undefined && sameAddressPort(before.at, at)) return before.movedMs
    const movedMs = before === undefined ? -Infinity : this.#deps.clock.monotonic()
    this.#places.set(key, { at, movedMs })
    return movedMs
  }

  /** Another link with this cluster fails, and its traffic goes over these next. All are checked at once. */
  wakeCluster(cluster: string): void {
    for (const key of [...this.#asleep.keys()]) if (clusterOfKey(key) === cluster) this.#wake(key, 'failover')
  }

  /** The devices cannot be read, so that traffic would not be noticed. Or links are not to sleep any more. */
  wakeAll(why: 'unreadable' | 'unwanted'): void {
    for (const key of [...this.#asleep.keys()]) this.#wake(key, why)
  }

  #wake(key: string, why: WhyAwake): void {
    this.#asleep.delete(key)
    this.#wokenMs.set(key, { ...this.#wokenMs.get(key), [WAKE_KINDS[why]]: this.#deps.clock.monotonic() })
    this.#deps.logger.debug('link wakes', { link: key, why })
    this.#deps.wake(key)
  }

  /** By healthKey(). Undefined: the device does not have the link. */
  #looks({ devices, states, askedMs, before, after }: DeviceReading): Map<string, LinkLook | undefined> {
    const atMs = this.#deps.clock.monotonic()
    const looks = new Map<string, LinkLook | undefined>()
    for (const { remoteLane, links } of devices) {
      for (const link of links) {
        const key = healthKey(remoteLane, link.cluster)
        const [state, peer] = [states.get(remoteLane)?.links.get(linkKey(link)), after.get(key)]
        const { rxBytes = 0, txBytes = 0, at } = state ?? {}
        const isKnown = state !== undefined && peer !== undefined
        const probes = isKnown ? { least: probesOf(before.get(key) ?? peer), most: probesOf(peer) } : undefined
        looks.set(key, probes === undefined ? undefined : { askedMs, atMs, rxBytes, txBytes, at, ...probes })
      }
    }
    return looks
  }
}

function isCalm({ state, misses, unanswered, kernelOnly, isTryingSizes }: MeasuredPeer): boolean {
  return state === 'up' && misses === 0 && !unanswered && !kernelOnly && !isTryingSizes
}

function probesOf({ probes, sentProbes, paddedOctets }: MeasuredPeer): ProbesSeen {
  return { received: probes - sentProbes, sent: sentProbes, paddedOctets }
}

/** Failed readings in a row after which all links wake: the first packet would not be noticed in time. */
const MOST_UNREADABLE = 2

/** A look that takes longer has failed. */
const LOOK_DEADLINE_MS = 1000

interface SleepWatchInit {
  /** The planned devices. Undefined before the first plan. */
  readonly devices: () => readonly LanePlan[] | undefined
  readonly health: () => ReadonlyMap<string, MeasuredPeer>
  readonly sleeping: SleepingLinks
}

/** Looks at the counts of the devices with a sleeping link at a short interval, until the signal. */
export async function watchSleeping(
  { clock, cable, logger }: { readonly clock: Clock; readonly cable: Cable; readonly logger: Logger },
  { devices, health, sleeping }: SleepWatchInit,
  signal: AbortSignal,
): Promise<void> {
  let failed = 0
  while (await unlessAborted(clock.sleep(SLEEP_LOOK_MS, signal), signal)) {
    const planned = sleeping.devicesOf(devices() ?? [])
    if (planned.length === 0) continue
    const [askedMs, before] = [clock.monotonic(), health()]
    try {
      const lanes = planned.map(({ remoteLane }) => remoteLane)
      const deadline = AbortSignal.any([signal, AbortSignal.timeout(LOOK_DEADLINE_MS)])
      const states = await cable.observe(lanes, planned.flatMap(plannedLinks), deadline)
      failed = 0
      sleeping.look({ devices: planned, states, askedMs, before, after: health() })
    } catch (error) {
      if (signal.aborted) return
      failed += 1
      logger.debug('cannot read the lanes for sleeping links', { why: messageOf(error) })
      if (failed >= MOST_UNREADABLE) sleeping.wakeAll('unreadable')
    }
  }
}
