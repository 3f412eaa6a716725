/**
 * Join tokens, `sealane1.<base64url>`, which users copy and paste. The content is JSON followed by a checksum, which
 * distinguishes a truncated token from one that was never valid. The secret is only available from a method, so that it
 * never appears in error texts, JSON or logs.
 */
import { createHash, randomBytes } from 'node:crypto'
import { inspect } from 'node:util'
import { isDnsSubdomain } from '../../model/model.ts'
import { parseBrokerAddress } from '../protocol.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

const PREFIX = 'sealane1.'
const CHECKSUM_BYTES = 4
const MAX_TOKEN = 4096
const MAX_ADDRESSES = 16
const MAX_OTHER_PINS = 4

export type TokenProblem = 'malformed' | 'version' | 'damaged' | 'expired'

const TOKEN_REASONS = {
  malformed: 'TokenMalformed',
  version: 'TokenVersion',
  damaged: 'TokenDamaged',
  expired: 'TokenExpired',
} as const satisfies Record<TokenProblem, ReasonCode>

export class TokenError extends Error {
  readonly problem: TokenProblem
  readonly reason: ReasonCode
  constructor(problem: TokenProblem, message: string) {
    super(`join token: ${message}`)
    this.name = 'TokenError'
    this.problem = problem
    this.reason = TOKEN_REASONS[problem]
  }
}

export interface TokenInit {
  /** At least one `host:port`. */
  readonly addresses: readonly string[]
  /** The fingerprint() of the CA certificate. */
  readonly caPin: string
  /**
   * Fingerprints of further CA certificates that are accepted, because the broker may switch to another authority.
   * Earlier releases ignore them.
   */
  readonly otherPins?: readonly string[]
  readonly clusterset: string
  readonly expiresAtMs: number
  /** Name of the token in `token list` and `token revoke`. Generated if absent. */
  readonly id?: string
}

export class JoinToken {
  readonly id: string
  readonly addresses: readonly string[]
  readonly caPin: string
  readonly otherPins: readonly string[]
  readonly clusterset: string
  readonly expiresAtMs: number
  readonly #secret: string

  constructor(init: TokenInit & { readonly id: string }, secret: string) {
    this.id = init.id
    this.addresses = init.addresses
    this.caPin = init.caPin
    this.otherPins = init.otherPins ?? []
    this.clusterset = init.clusterset
    this.expiresAtMs = init.expiresAtMs
    this.#secret = secret
  }

  /** Returns 256 bits in base64url, for JoinRequest.secret. */
  secret(): string {
    return this.#secret
  }

  /** Returns the text of the token. It contains the secret. */
  text(): string {
    const { id, addresses, caPin, otherPins, clusterset, expiresAtMs } = this
    const others = otherPins.length === 0 ? {} : { q: otherPins }
    const payload = Buffer.from(
      JSON.stringify({ i: id, a: addresses, p: caPin, ...others, c: clusterset, e: expiresAtMs, s: this.#secret }),
    )
    return PREFIX + Buffer.concat([payload, checksum(payload)]).toString('base64url')
  }

  [inspect.custom](): string {
    return `JoinToken ${this.id}`
  }
}

/** Returns a token with a new 256-bit secret. */
export function createJoinToken(init: TokenInit): JoinToken {
  const id = init.id ?? randomBytes(5).toString('hex')
  return new JoinToken({ ...init, id }, randomBytes(32).toString('base64url'))
}

/**
 * Returns what the broker stores instead of the secret: its SHA-256 in hexadecimal. The secret is random, so no salt is
 * needed.
 */
export function hashTokenSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}

/** Parses a pasted token. `nowMs` is compared with the expiry. Throws TokenError. */
export function parseJoinToken(pasted: string, nowMs: number): JoinToken {
  const text = pasted.trim()
  const version = /^sealane(\d+)\./.exec(text)
  if (version === null || text.length > MAX_TOKEN) {
    throw new TokenError('malformed', `expected text that begins with "${PREFIX}"`)
  }
  if (version[1] !== '1') {
    throw new TokenError(
      'version',
      `a broker of another version created it (token format ${version[1] ?? ''}, expected 1)`,
    )
  }
  const token = readPayload(verifiedPayload(text.slice(PREFIX.length)))
  if (token.expiresAtMs <= nowMs) {
    const ago = durationText(nowMs - token.expiresAtMs)
    throw new TokenError(
      'expired',
      `expired ${ago} ago by this machine's clock: create a new one with "sealane token create"`,
    )
  }
  return token
}

function verifiedPayload(encoded: string): string {
  if (!/^[A-Za-z0-9_-]*$/.test(encoded)) {
    throw new TokenError('malformed', `expected only A-Z, a-z, 0-9, - and _ after "${PREFIX}"`)
  }
  const bytes = Buffer.from(encoded, 'base64url')
  const payload = bytes.subarray(0, -CHECKSUM_BYTES)
  if (bytes.length <= CHECKSUM_BYTES || !checksum(payload).equals(bytes.subarray(-CHECKSUM_BYTES))) {
    throw new TokenError('damaged', 'its checksum is wrong: the token was truncated or changed when copied')
  }
  return payload.toString()
}

function readPayload(payload: string): JoinToken {
  const value = parseJson(payload)
  const addresses = value['a']
  const [id, caPin, clusterset, secret] = [value['i'], value['p'], value['c'], value['s']]
  const expiresAtMs = value['e']
  if (!Array.isArray(addresses) || addresses.length === 0 || addresses.length > MAX_ADDRESSES) fail('broker addresses')
  if (!addresses.every((address): address is string => typeof address === 'string' && isAddress(address))) {
    fail('broker addresses')
  }
  if (typeof id !== 'string' || !/^[A-Za-z0-9-]{1,64}$/.test(id)) fail('id')
  if (!isPin(caPin)) fail('CA pin')
  const otherPins: unknown = value['q'] ?? []
  if (!Array.isArray(otherPins) || otherPins.length > MAX_OTHER_PINS || !otherPins.every(isPin)) fail('CA pins')
  if (typeof clusterset !== 'string' || !isDnsSubdomain(clusterset)) fail('clusterset')
  if (typeof secret !== 'string' || !/^[A-Za-z0-9_-]{43}$/.test(secret)) fail('secret')
  if (typeof expiresAtMs !== 'number' || !Number.isSafeInteger(expiresAtMs)) fail('expiry')
  return new JoinToken({ id, addresses, caPin, otherPins, clusterset, expiresAtMs }, secret)
}

function isPin(text: unknown): text is string {
  return typeof text === 'string' && /^[0-9a-f]{64}$/.test(text)
}

function fail(part: string): never {
  throw new TokenError('malformed', `its ${part} cannot be read`)
}

function parseJson(payload: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(payload)
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  } catch {
    // The error is thrown below.
  }
  throw new TokenError('malformed', 'its content is not readable')
}

function isAddress(text: string): boolean {
  try {
    parseBrokerAddress(text)
    return true
  } catch {
    return false
  }
}

function checksum(payload: Uint8Array): Buffer {
  return createHash('sha256').update(payload).digest().subarray(0, CHECKSUM_BYTES)
}

/** Formats a duration in the largest unit that fits: "42 s", "15 min", "3 h", "2 d". */
function durationText(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`
}
