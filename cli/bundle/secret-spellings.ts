/** How one secret may be written: as it is, in JSON, in a URL, and inside of base64 at each of its three places. Pure. */
import { Buffer } from 'node:buffer'

/** Shorter ones are in half of all texts. */
const SHORTEST = 8

export function spellingsOf(secret: string): readonly string[] {
  const encoded = [0, 1, 2].map((before) => insideBase64(secret, before))
  const urlSafe = encoded.map((text) => text.replaceAll('+', '-').replaceAll('/', '_'))
  const all = [secret, JSON.stringify(secret).slice(1, -1), inUrl(secret), ...encoded, ...urlSafe]
  return [...new Set(all)].filter((text) => text.length >= SHORTEST)
}

function inUrl(secret: string): string {
  // A half of a character pair has no URL form.
  return secret.isWellFormed() ? encodeURIComponent(secret) : secret
}

/** The characters that do not depend on what stands around it; `before` octets come first. */
function insideBase64(secret: string, before: number): string {
  const octets = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
  const text = octets.toString('base64').replaceAll('=', '')
  const first = [0, 2, 3][before] ?? 0
  const last = octets.length % 3 === 0 ? text.length : text.length - 1
  return text.slice(first, last)
}
