/**
 * Writes into each change when it was sent: all processes of one machine read the same monotonic clock, and a receiver
 * finds the time in the bytes, whatever they are wrapped in.
 */

const MARK = Buffer.from('~at~')
/** The number of digits of a time in microseconds. */
const DIGITS = 16

export function mark(): string {
  return `${MARK.toString()}${String(process.hrtime.bigint() / 1000n).padStart(DIGITS, '0')}`
}

/** Milliseconds since each change in these bytes was sent. */
export function agesOf(bytes: Buffer): number[] {
  const ages: number[] = []
  for (let at = bytes.indexOf(MARK); at >= 0; at = bytes.indexOf(MARK, at + MARK.length)) {
    const from = at + MARK.length
    const sentUs = Number(bytes.toString('latin1', from, from + DIGITS))
    if (Number.isFinite(sentUs)) ages.push(Number(process.hrtime.bigint() / 1000n) / 1000 - sentUs / 1000)
  }
  return ages
}
