/**
 * Tickets, by which a cluster names its gateways to somebody who knows the authority of the clusterset and nothing else:
 * a relay on port 443. The agent signs with the key of the cluster's certificate. A ticket is no secret: a gateway has to
 * prove the identity that is on it.
 *
 *   0 version, 1 │ 1 length of the statement, 2 │ statement, JSON │ length of the certificate, 2 │ certificate, DER
 *   signature, ECDSA with SHA-256, over a label and all before it
 */
import { type KeyObject, X509Certificate, createPublicKey, sign, verify } from 'node:crypto'
import type { ClusterId } from '../../model/model.ts'
import { readCertificate } from '../identity/identity.ts'

export interface TicketInit {
  /** Identities of the cluster's gateways, present and announced: keys of 32 octets in base64. */
  readonly identities: readonly string[]
  readonly issuedMs: number
  readonly untilMs: number
}

/** The cluster as its certificate proves it. */
export interface Holder extends TicketInit {
  readonly cluster: ClusterId
  readonly clusterset: string
}

export type TicketProblem = 'malformed' | 'foreignClusterset' | 'expired' | 'wrongClock'

const VERSION = 1
const LABEL = Buffer.from('sealane relay ticket 1\0')
/** Lane numbers are 0 to 7, and each may have a next identity. */
export const MAX_TICKET_IDENTITIES = 64
/** Clocks that differ by less than this do not matter. */
export const TICKET_SKEW_MS = 5 * 60_000
/** How long a ticket is good at most. */
export const TICKET_VALIDITY_MS = 24 * 3_600_000
/**
 * A certificate that ended less than this ago still signs. The broker may be away for longer than a certificate lasts,
 * and links must go on. A member that was evicted gains nothing: the others no longer want its datagrams.
 */
export const TICKET_GRACE_MS = 7 * 24 * 3_600_000

/** Takes the cluster's key and certificate. Throws RangeError for too many identities. */
export function signTicket(
  init: TicketInit,
  { key, certificate }: { key: KeyObject; certificate: Uint8Array },
): Buffer {
  if (init.identities.length > MAX_TICKET_IDENTITIES)
    throw new RangeError(`${init.identities.length} identities: expected at most ${MAX_TICKET_IDENTITIES}`)
  const { identities, issuedMs, untilMs } = init
  const statement = Buffer.from(JSON.stringify({ identities, issuedMs, untilMs }))
  const body = Buffer.concat([Buffer.of(VERSION), sized(statement), sized(Buffer.from(certificate))])
  return Buffer.concat([body, sign('sha256', Buffer.concat([LABEL, body]), key)])
}

/** Says who holds the ticket, or why it does not count. Takes certificates of authorities in DER. Never throws. */
export function openTicket(
  ticket: Buffer,
  authorities: readonly Uint8Array[],
  nowMs: number,
): { readonly holder: Holder } | { readonly problem: TicketProblem } {
  const parts = partsOf(ticket)
  const stated = parts && statementOf(parts.statement)
  if (parts === undefined || stated === undefined) return { problem: 'malformed' }
  const { body, certificate, signature } = parts
  try {
    const own = new X509Certificate(certificate)
    const facts = readCertificate(certificate)
    const authority = authorities.find((der) => {
      const ca = new X509Certificate(der)
      return own.checkIssued(ca) && own.verify(ca.publicKey) && readCertificate(der).clusterset === facts.clusterset
    })
    if (authority === undefined || facts.cluster === undefined || facts.clusterset === undefined || facts.isCa)
      return { problem: 'foreignClusterset' }
    const key = createPublicKey(own.publicKey.export({ type: 'spki', format: 'pem' }))
    if (!verify('sha256', Buffer.concat([LABEL, body]), key, signature)) return { problem: 'malformed' }
    if (stated.issuedMs > nowMs + TICKET_SKEW_MS || facts.notBeforeMs > nowMs + TICKET_SKEW_MS)
      return { problem: 'wrongClock' }
    const untilMs = Math.min(stated.untilMs, stated.issuedMs + TICKET_VALIDITY_MS, facts.notAfterMs + TICKET_GRACE_MS)
    if (untilMs + TICKET_SKEW_MS < nowMs) return { problem: 'expired' }
    const { cluster, clusterset } = facts
    return { holder: { ...stated, untilMs, cluster, clusterset } }
  } catch {
    return { problem: 'malformed' }
  }
}

function sized(bytes: Buffer): Buffer {
  const size = Buffer.alloc(2)
  size.writeUInt16BE(bytes.length)
  return Buffer.concat([size, bytes])
}

interface Parts {
  readonly body: Buffer
  readonly statement: Buffer
  readonly certificate: Buffer
  readonly signature: Buffer
}

function partsOf(ticket: Buffer): Parts | undefined {
  if (ticket[0] !== VERSION) return undefined
  const statement = sizedAt(ticket, 1)
  const certificate = statement && sizedAt(ticket, statement.end)
  if (statement === undefined || certificate === undefined || certificate.end === ticket.length) return undefined
  return {
    body: ticket.subarray(0, certificate.end),
    statement: statement.bytes,
    certificate: certificate.bytes,
    signature: ticket.subarray(certificate.end),
  }
}

function sizedAt(bytes: Buffer, offset: number): { readonly bytes: Buffer; readonly end: number } | undefined {
  if (offset + 2 > bytes.length) return undefined
  const end = offset + 2 + bytes.readUInt16BE(offset)
  return end > bytes.length ? undefined : { bytes: bytes.subarray(offset + 2, end), end }
}

function statementOf(bytes: Buffer): TicketInit | undefined {
  try {
    const { identities, issuedMs, untilMs } = JSON.parse(bytes.toString()) as Readonly<Record<string, unknown>>
    const isList = Array.isArray(identities) && identities.length <= MAX_TICKET_IDENTITIES
    if (!isList || !identities.every((one) => typeof one === 'string' && one.length <= 64)) return undefined
    if (!Number.isSafeInteger(issuedMs) || !Number.isSafeInteger(untilMs)) return undefined
    return { identities: identities as string[], issuedMs: issuedMs as number, untilMs: untilMs as number }
  } catch {
    return undefined
  }
}
