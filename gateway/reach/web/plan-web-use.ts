/**
 * Which links use relays on port 443, the last way of all: those that nothing else brings up, those that are there, and
 * for some time those that have just found another way. Both ends of a link see it alike, since a link is up for both or
 * for none. Pure.
 */
import type { ConnectionState } from '../../../model/model.ts'
import type { AddressPort } from '../../../model/addresses/addresses.ts'

/** A link as it is planned and as the device has it. */
export interface WebLink {
  /** linkKey() of its far end. */
  readonly key: string
  readonly remoteLane: number
  readonly identity: string
  readonly state: ConnectionState
  readonly at?: AddressPort
  /** One of the two ends can be called from outside, as far as is known. Absent: neither can. */
  readonly isCallable?: boolean
}

/** What is remembered of a link. */
export interface WebUse {
  /** Since when the link is not up. Undefined: it is. */
  readonly downSinceMs?: number | undefined
  /** WebLink.isCallable, as it was last. */
  readonly isCallable?: boolean | undefined
  /** When it was down, or carried by such a relay, last. Undefined: never for the time that other ways have. */
  readonly neededMs: number | undefined
}

/**
 * Other ways have this time. It is less than the time after which relays carry a link (choose-endpoint.ts), by what a
 * connection takes. Each direct link that is new would otherwise connect both gateways to all relays.
 */
export const WEB_AFTER_MS = 150
export const CALLABLE_WEB_AFTER_MS = 350
/** A link that has found another way keeps this one for so long: it may have to return. */
export const WEB_LINGERS_MS = 60_000
/** As many as a relay takes from one gateway. */
export const MOST_WEB_LINKS = 1024

/** 127.0.0.0/8: no gateway can be called there, so only a port of this process can be meant. */
export function isWebPlace(at: AddressPort | undefined): boolean {
  return at?.address.family === 4 && at.address.value >> 24n === 127n
}

/** What to remember now, by WebLink.key: links that are up by another way, and were for long, are forgotten. */
export function planWebUse(
  links: readonly WebLink[],
  before: ReadonlyMap<string, WebUse>,
  nowMs: number,
): ReadonlyMap<string, WebUse> {
  return new Map(
    links.flatMap(({ key, state, at, isCallable }): [] | [readonly [string, WebUse]] => {
      const last = before.get(key)
      // A link that goes down while it has this way keeps it.
      const downSinceMs = last === undefined ? nowMs : (last.downSinceMs ?? nowMs - CALLABLE_WEB_AFTER_MS)
      if (state !== 'up') {
        const isNeeded = last?.neededMs !== undefined || nowMs >= needsWebMs({ downSinceMs, isCallable })
        return [[key, { downSinceMs, isCallable, neededMs: isNeeded ? nowMs : undefined }]]
      }
      const neededMs = isWebPlace(at) ? nowMs : last?.neededMs
      return neededMs === undefined || nowMs - neededMs >= WEB_LINGERS_MS ? [] : [[key, { neededMs }]]
    }),
  )
}

/** When a link that is not up is to have a way over port 443. */
function needsWebMs({ downSinceMs = -Infinity, isCallable }: Pick<WebUse, 'downSinceMs' | 'isCallable'>): number {
  return downSinceMs + (isCallable === true ? CALLABLE_WEB_AFTER_MS : WEB_AFTER_MS)
}

/** The links that are to have a way over port 443 now. */
export function webWants(
  links: readonly WebLink[],
  uses: ReadonlyMap<string, WebUse>,
  nowMs: number,
): readonly WebLink[] {
  const wanted = links.filter(({ key }) => {
    const use = uses.get(key)
    return use !== undefined && (use.neededMs !== undefined || nowMs >= needsWebMs(use))
  })
  return wanted.slice(0, MOST_WEB_LINKS)
}

/**
 * When the next link is to have a way over port 443 that has none yet: a plan is due then, whether or not anything else
 * happens. Infinity: none.
 */
export function webDueMs(uses: ReadonlyMap<string, WebUse>, nowMs: number): number {
  const due = [...uses.values()].flatMap((use) => {
    const atMs = use.neededMs === undefined ? needsWebMs(use) : nowMs
    return atMs > nowMs ? [atMs] : []
  })
  return Math.min(Infinity, ...due)
}

/** Since when a link is over port 443, and whether it was there when it was up last. */
export interface WebSince {
  readonly sinceMs: number
  readonly wasUpThere: boolean
}

/**
 * What to remember of a link. Both ends count their tries from when it is up over port 443, and begin again when it goes
 * down there: one of them may have started again. A link that goes down at another place, to which a try has moved it,
 * keeps its time, so that the pauses between tries still grow.
 */
export function webSince(
  { state, at }: Pick<WebLink, 'state' | 'at'>,
  before: WebSince | undefined,
  nowMs: number,
): WebSince | undefined {
  const isWeb = isWebPlace(at)
  if (state !== 'up') return before?.wasUpThere === true ? undefined : before
  if (before === undefined && !isWeb) return undefined
  return { sinceMs: before?.sinceMs ?? nowMs, wasUpThere: isWeb }
}
