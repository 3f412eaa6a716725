/**
 * The protocols (ALPN, RFC 7301) for which a client asks in the first message of TLS (RFC 8446 section 4.1.2). The
 * message comes from a stranger: whatever is not exactly as specified is `other`. Pure.
 */

/** `partial`: the message goes on. `other`: it is no such message, or one that is too long. */
export type HelloProtocols =
  { readonly t: 'known'; readonly protocols: readonly string[] } | { readonly t: 'partial' | 'other' }

/** Messages of clients have 200 to 2500 octets, those with keys after quantum computers included. */
export const MAX_HELLO_BYTES = 8 << 10
/**
 * Records of a message, and pieces in which it arrives: it is read from its start whenever more has arrived. Clients
 * send it in one record, which takes a few packets.
 */
export const MAX_HELLO_RECORDS = 64
export const MAX_HELLO_PIECES = 16

const HANDSHAKE_RECORD = 22
const CLIENT_HELLO = 1
const RECORD_HEAD = 5
const MESSAGE_HEAD = 4
const MAX_RECORD_BYTES = 16 << 10
const VERSION_AND_RANDOM = 34
const ALPN = 16

/** Takes all octets that a client has sent so far. Never throws. */
export function helloProtocols(bytes: Buffer): HelloProtocols {
  const message = messageOf(bytes)
  if (message === 'partial') return { t: bytes.length >= MAX_HELLO_BYTES ? 'other' : 'partial' }
  const protocols = message === 'other' ? undefined : protocolsOf(message)
  return protocols === undefined ? { t: 'other' } : { t: 'known', protocols }
}

/** The body of the message, which may be spread over several records. */
function messageOf(bytes: Buffer): Buffer | 'partial' | 'other' {
  const parts: Buffer[] = []
  let length = 0
  let end: number | undefined
  for (let at = 0; at < bytes.length;) {
    if (bytes[at] !== HANDSHAKE_RECORD || (at + 1 < bytes.length && bytes[at + 1] !== 3)) return 'other'
    if (at + RECORD_HEAD > bytes.length) return 'partial'
    const size = bytes.readUInt16BE(at + 3)
    if (size === 0 || size > MAX_RECORD_BYTES) return 'other'
    if (parts.length === MAX_HELLO_RECORDS) return 'other'
    const part = bytes.subarray(at + RECORD_HEAD, at + RECORD_HEAD + size)
    parts.push(part)
    length += part.length
    at += RECORD_HEAD + size
    // Records may have one octet each, so what has arrived is put together only here and at the end.
    if (end === undefined && length > 0) {
      const head = Buffer.concat(parts)
      if (head[0] !== CLIENT_HELLO) return 'other'
      if (length >= MESSAGE_HEAD) end = MESSAGE_HEAD + head.readUIntBE(1, 3)
      if (end !== undefined && end > MAX_HELLO_BYTES) return 'other'
    }
    if (end !== undefined && length >= end) return Buffer.concat(parts).subarray(MESSAGE_HEAD, end)
  }
  return 'partial'
}

function protocolsOf(body: Buffer): readonly string[] | undefined {
  const session = vectorAt(body, VERSION_AND_RANDOM, 1)
  const ciphers = session && vectorAt(body, session.end, 2)
  const compression = ciphers && vectorAt(body, ciphers.end, 1)
  const extensions = compression && vectorAt(body, compression.end, 2)
  if (extensions === undefined) return undefined
  for (let at = 0; at < extensions.bytes.length;) {
    const data = vectorAt(extensions.bytes, at + 2, 2)
    if (data === undefined) return undefined
    if (extensions.bytes.readUInt16BE(at) === ALPN) return namesOf(data.bytes)
    at = data.end
  }
  return []
}

function namesOf(bytes: Buffer): readonly string[] | undefined {
  const list = vectorAt(bytes, 0, 2)
  if (list?.end !== bytes.length) return undefined
  const names: string[] = []
  for (let at = 0; at < list.bytes.length;) {
    const name = vectorAt(list.bytes, at, 1)
    if (name === undefined || name.bytes.length === 0) return undefined
    names.push(name.bytes.toString('latin1'))
    at = name.end
  }
  return names
}

/** Octets with their length in front. Undefined if they are not all there. */
function vectorAt(
  bytes: Buffer,
  at: number,
  lengthOctets: 1 | 2,
): { readonly bytes: Buffer; readonly end: number } | undefined {
  const start = at + lengthOctets
  if (start > bytes.length) return undefined
  const end = start + bytes.readUIntBE(at, lengthOctets)
  return end > bytes.length ? undefined : { bytes: bytes.subarray(start, end), end }
}
