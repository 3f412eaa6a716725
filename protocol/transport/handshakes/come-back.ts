/**
 * How a broker that has more handshakes to do than it can says when to come back, before it has spent anything on the
 * one who asks: by a TLS alert (RFC 8446 section 6), in the clear, with one of the numbers that IANA keeps for private
 * use. A client of an earlier release sees a handshake that failed, and tries again at its own pace. Somebody on the way
 * could send the same, and could as well drop the packets.
 */

/** 224 to 255: private use. */
const FIRST = 224
const NUMBERS = 32
const STEP_MS = 500
/** The longest that can be said. */
export const MAX_COME_BACK_MS = NUMBERS * STEP_MS

/** A fatal alert that says so, in steps of half a second. */
export function comeBackAlert(ms: number): Buffer {
  const steps = Math.min(NUMBERS, Math.max(1, Math.ceil(ms / STEP_MS)))
  return Buffer.from([0x15, 3, 3, 0, 2, 2, FIRST + steps - 1])
}

/** What OpenSSL's error text says of it; undefined: nothing. */
export function comeBackMs(errorText: string): number | undefined {
  const number = Number(/SSL alert number (\d+)/.exec(errorText)?.[1])
  return number >= FIRST && number < FIRST + NUMBERS ? (number - FIRST + 1) * STEP_MS : undefined
}
