/**
 * When a link without traffic is put to sleep, and when it wakes. Pure; times are milliseconds of the monotonic clock.
 *
 *   awake ── idle for long, or the far end sleeps ──► asleep: no probes, its state stays `up`
 *     ▲                                                 │
 *     └── bytes that are no keepalive or handshake, silence, a question of the far end ──┘
 *
 * Silence wakes a link for a check only. Keepalives of one end alone are normal: WireGuard puts off its own keepalive by
 * each packet that it receives. A link that answers the check sleeps on at once.
 *
 * Both ends have to sleep, because the questions of one are answered by the other. The first one falls asleep when its
 * time has come. The other notices that it is asked no more, and follows. So questions shortly after falling asleep are
 * expected, and wake only later.
 *
 * WireGuard's keepalives go on: they keep NAT mappings and the session, so the first packet needs no new one.
 */
import { PROBE_BYTES_COUNTED } from './link-traffic.ts'

/** Links sleep by default in clustersets with more members than this. */
const SLEEP_ABOVE_MEMBERS = 50
const SLEEP_AFTER_MS = 600_000
/** Interval of looks at the counts of the devices while a link sleeps. */
export const SLEEP_LOOK_MS = 400
/** A far end that answers, and asked nothing for this long, sleeps. Awake ones ask each second. */
export const FOLLOW_MS = 5000
/** For this long after a link fell asleep, questions of the far end do not wake it. */
export const GRACE_MS = 30_000
/** Without a byte for this long, three keepalives of the far end (25 s) are missing. */
export const SILENCE_MS = 80_000

/** Octets that WireGuard counts (its paper, 5.4). A packet with content has at least 64, a multiple of 16. */
const KEEPALIVE_BYTES = 32
const INITIATION_BYTES = 148
const RESPONSE_BYTES = 92
const PADDING = 16

export interface SleepRule {
  /** How long a link is idle before it sleeps. */
  readonly afterMs: number
  /** A link sleeps as soon as its far end does: no time was stated for this end. */
  readonly follows: boolean
}

/** Undefined: links do not sleep. `stated`: GatewayConfig.sleepAfterMs. */
export function sleepRule(stated: number | undefined, members: number): SleepRule | undefined {
  if (stated === 0) return undefined
  if (stated !== undefined) return { afterMs: stated, follows: false }
  return members > SLEEP_ABOVE_MEMBERS ? { afterMs: SLEEP_AFTER_MS, follows: true } : undefined
}

export interface AwakeLink {
  /** The link is up, and its last questions were answered by the far process. */
  readonly answers: boolean
  /** There was traffic in the last seconds: BusyLinks. */
  readonly busy: boolean
  /** The last traffic; or when the link came up or woke by traffic, if that is later. */
  readonly quietSinceMs: number
  /** The same, or when the far end woke it, if that is later. */
  readonly idleSinceMs: number
  /** When the link came up, woke, was checked or took another path. */
  readonly awakeSinceMs: number
  /** The last question of the far end. Absent: there was none, so it may not be able to ask. */
  readonly askedMs?: number
}

export function fallsAsleep(link: AwakeLink, { afterMs, follows }: SleepRule, nowMs: number): boolean {
  const { answers, busy, quietSinceMs, idleSinceMs, awakeSinceMs, askedMs } = link
  // A path that is dead is suspect by then.
  if (!answers || busy || nowMs - awakeSinceMs < FOLLOW_MS) return false
  if (nowMs - idleSinceMs >= afterMs) return true
  const mayFollow = follows || nowMs - quietSinceMs >= afterMs
  return mayFollow && askedMs !== undefined && nowMs - askedMs >= FOLLOW_MS
}

/** Number of probe packets, and octets of the padded ones among those received. */
export interface ProbesSeen {
  readonly received: number
  readonly sent: number
  readonly paddedOctets: number
}

/** What was counted of a link at one moment. */
export interface SleepLook {
  /** When the device was asked, and when its answer was there. */
  readonly askedMs: number
  readonly atMs: number
  readonly rxBytes: number
  readonly txBytes: number
  /** The probes before the device was asked, and after. */
  readonly least: ProbesSeen
  readonly most: ProbesSeen
}

export interface AsleepLink {
  readonly sinceMs: number
  readonly seen: SleepLook
  /** When something was last received. */
  readonly receivedMs: number
}

export function asleepFrom(seen: SleepLook): AsleepLink {
  return { sinceMs: seen.atMs, seen, receivedMs: seen.atMs }
}

/** True if a question of the far end at this time shows that it woke. */
export function wakesByQuestion({ sinceMs }: AsleepLink, nowMs: number): boolean {
  return nowMs - sinceMs >= GRACE_MS
}

/**
 * The link after a look, or why it wakes: `traffic`; `silence` of the far end; `gone`: the device does not have the
 * link, or created it again. A look that began before the last one ended is left out.
 */
export function afterLook(link: AsleepLink, look: SleepLook | undefined): AsleepLink | 'traffic' | 'silence' | 'gone' {
  if (look === undefined) return 'gone'
  const { seen } = link
  if (look.askedMs < seen.atMs) return link
  const [rxBytes, txBytes] = [look.rxBytes - seen.rxBytes, look.txBytes - seen.txBytes]
  if (rxBytes < 0 || txBytes < 0) return 'gone'
  const received = look.most.received - seen.least.received
  const padded = look.most.paddedOctets - seen.least.paddedOctets
  const sent = look.most.sent - seen.least.sent
  const rx = rxBytes - received * PROBE_BYTES_COUNTED - padded
  if (hasContent(rx, txBytes - sent * PROBE_BYTES_COUNTED)) return 'traffic'
  const receivedMs = rxBytes > 0 ? look.atMs : link.receivedMs
  return look.atMs - receivedMs >= SILENCE_MS ? 'silence' : { ...link, seen: look, receivedMs }
}

/**
 * True if these octets, without probes, are more than keepalives and a handshake. An end sends a keepalive each 5
 * to 25 s, and one more when it gets the response to its handshake.
 */
export function hasContent(rxBytes: number, txBytes: number): boolean {
  const [rx, tx] = [withoutHandshake(rxBytes), withoutHandshake(txBytes)]
  return rx.rest > keepalives(tx.hasResponse) || tx.rest > keepalives(rx.hasResponse)
}

function keepalives(otherResponded: boolean): number {
  return otherResponded ? 2 * KEEPALIVE_BYTES : KEEPALIVE_BYTES
}

/** Handshake messages show in the remainder, because all other packets are padded. */
function withoutHandshake(bytes: number): { readonly rest: number; readonly hasResponse: boolean } {
  if (bytes >= INITIATION_BYTES && (bytes - INITIATION_BYTES) % PADDING === 0) {
    return { rest: bytes - INITIATION_BYTES, hasResponse: false }
  }
  const hasResponse = bytes >= RESPONSE_BYTES && (bytes - RESPONSE_BYTES) % PADDING === 0
  return { rest: hasResponse ? bytes - RESPONSE_BYTES : bytes, hasResponse }
}
