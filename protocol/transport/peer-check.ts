/**
 * Identifies the peer of a TLS connection to the broker. Because Join needs no certificate, the TLS handshake accepts
 * any. The certificate is checked here, once per connection, and every call but Join is refused with the reason if it
 * is not valid.
 */
import { X509Certificate } from 'node:crypto'
import type { TLSSocket } from 'node:tls'
import type { ClusterId } from '../../model/model.ts'
import { CertificateError, type Peer } from '../protocol.ts'
import { BACKDATE_MS, type CertificateFacts, fingerprint, readCertificate } from '../identity/identity.ts'

export type PeerValidation =
  /** `notAfterMs` may be in the past: a certificate that has expired can still be renewed for a while. */
  | {
      readonly t: 'member'
      readonly cluster: ClusterId
      readonly serial: string
      /** SHA-256 of the certificate, in hexadecimal. */
      readonly fingerprint: string
      readonly issuedAtMs: number
      readonly renews?: string
      readonly notAfterMs: number
      /** When the certificate of the issuing authority expires. */
      readonly authorityEndsMs: number
      /** SHA-256 of the certificate of the issuing authority, in hexadecimal. */
      readonly authority: string
    }
  /** `fingerprint` is that of the presented certificate, if there is one. */
  | { readonly t: 'stranger'; readonly error: CertificateError; readonly fingerprint?: string }

type Stranger = Extract<PeerValidation, { t: 'stranger' }>
/** The result of a check, without the fingerprint of the presented certificate. */
type Unmarked = Omit<Extract<PeerValidation, { t: 'member' }>, 'fingerprint'> | Stranger

interface Authority {
  readonly fingerprint: string
  readonly certificate: X509Certificate
}

/** Determines whom the broker's port accepts as a member. */
export interface PeerTrust {
  /** Clusterset of the broker. */
  readonly clusterset: string
  readonly accepted: readonly Authority[]
  /** Removed authorities. A refusal names them as such. */
  readonly removed: readonly Authority[]
}

/** Takes certificates in DER. */
export function peerTrust(tls: {
  readonly clusterset: string
  readonly ca: readonly Uint8Array[]
  readonly removed?: readonly Uint8Array[]
}): PeerTrust {
  const authority = (der: Uint8Array): Authority => ({
    fingerprint: fingerprint(der),
    certificate: new X509Certificate(der),
  })
  return {
    clusterset: tls.clusterset,
    accepted: tls.ca.map(authority),
    removed: (tls.removed ?? []).map(authority),
  }
}

export function validatePeer(socket: TLSSocket, trust: PeerTrust): PeerValidation {
  const der = socket.getPeerX509Certificate()?.raw
  if (der === undefined) {
    return stranger('missing', 'this call needs the certificate that a cluster gets by joining; the caller sent none')
  }
  const found = validateShown(socket, der, trust)
  const shown = { fingerprint: fingerprint(der) }
  return found.t === 'member' ? { ...found, ...shown } : { ...found, ...shown }
}

function validateShown(socket: TLSSocket, der: Uint8Array, trust: PeerTrust): Unmarked {
  const { clusterset, accepted, removed } = trust
  const facts = readOrUndefined(der)
  if (facts === undefined) return stranger('wrongIdentity', 'the certificate cannot be read')
  if (facts.clusterset !== undefined && facts.clusterset !== clusterset) {
    return stranger(
      'otherClusterset',
      `the certificate belongs to clusterset "${facts.clusterset}", this broker to "${clusterset}"`,
    )
  }
  const former = issuerOf(der, removed)
  if (former !== undefined) return removedAuthority(former)
  const isExpired = !socket.authorized && String(socket.authorizationError).includes('CERT_HAS_EXPIRED')
  if (!socket.authorized && !isExpired) return validationFailure(socket, facts)
  // OpenSSL reports one fault only, so an expired certificate may have others.
  if (isExpired && !isForClients(der)) return stranger('wrongIdentity', 'the certificate is not for clients')
  // Which authority issued the certificate matters when an authority is removed while connections are open.
  const authority = issuerOf(der, accepted)
  if (authority === undefined) return stranger('untrusted', "the certificate was not issued by this broker's CA")
  if (facts.cluster === undefined || facts.clusterset === undefined) {
    return stranger('wrongIdentity', 'the certificate names no cluster of this clusterset')
  }
  const { cluster, serial, renews, notBeforeMs, notAfterMs } = facts
  const issuedAtMs = notBeforeMs + BACKDATE_MS
  const authorityEndsMs = authority.certificate.validToDate.getTime()
  const issued = { issuedAtMs, notAfterMs, authorityEndsMs, authority: authority.fingerprint }
  return { t: 'member', cluster, serial, ...issued, ...(renews === undefined ? {} : { renews }) }
}

function issuerOf(der: Uint8Array, authorities: readonly Authority[]): Authority | undefined {
  if (authorities.length === 0) return undefined
  const shown = new X509Certificate(der)
  return authorities.find(({ certificate }) => shown.verify(certificate.publicKey))
}

function removedAuthority({ fingerprint }: Authority): Stranger {
  const text = `the certificate was issued by authority ${fingerprint.slice(0, 16)}, which was removed: join again with a new token`
  return stranger('authorityRemoved', text)
}

/** OID of id-kp-clientAuth: RFC 5280 section 4.2.1.12. */
const CLIENT_AUTH = '1.3.6.1.5.5.7.3.2'

function isForClients(der: Uint8Array): boolean {
  // The typings promise a list, but a certificate without this extension has none.
  const usage = new X509Certificate(der).keyUsage as readonly string[] | undefined
  return usage !== undefined && usage.includes(CLIENT_AUTH)
}

/** Throws CertificateError for a stranger, and for a member whose certificate has expired. */
export function requireMember(validation: PeerValidation, nowMs: number): PeerValidation & { readonly t: 'member' } {
  const member = requireIssued(validation, nowMs)
  if (nowMs >= member.notAfterMs) throw expiredError(member.notAfterMs)
  return member
}

/**
 * As requireMember(), but accepts a certificate that has expired: only a renewal may use it, and the broker decides how
 * long after the end. Throws CertificateError for a stranger.
 */
export function requireIssued(validation: PeerValidation, nowMs: number): PeerValidation & { readonly t: 'member' } {
  if (validation.t === 'stranger') throw validation.error
  // TLS says the same of a certificate and of its authority.
  if (nowMs >= validation.authorityEndsMs) throw expiredError(validation.authorityEndsMs)
  return validation
}

/** Returns the Peer for the broker. `peer` is the peer text of grpc-js, `address:port`. */
export function peerOf(validation: PeerValidation & { readonly t: 'member' }, peer: string): Peer {
  const { cluster, serial, fingerprint, issuedAtMs, notAfterMs, renews, authority } = validation
  const address = peerAddress(peer)
  const known = {
    cluster,
    serial,
    fingerprint,
    issuedAtMs,
    expiresAtMs: notAfterMs,
    address,
    connection: peer,
    authority,
  }
  return renews === undefined ? known : { ...known, renews }
}

/** Removes the port, and the prefix of an IPv4 peer on a dual-stack socket (::ffff:a.b.c.d). */
export function peerAddress(peer: string): string {
  return peer.replace(/:\d+$/, '').replace(/^::ffff:/, '')
}

export function expiredError(notAfterMs: number): CertificateError {
  return new CertificateError('expired', `the certificate expired at ${new Date(notAfterMs).toISOString()}`)
}

function validationFailure(socket: TLSSocket, facts: CertificateFacts): Stranger {
  // Node names OpenSSL's verify code here. The typings declare an Error, but the value is a string.
  const code = String(socket.authorizationError)
  if (code.includes('CERT_NOT_YET_VALID')) {
    const from = new Date(facts.notBeforeMs).toISOString()
    return stranger('notYetValid', `the certificate is valid from ${from}: check the clocks`)
  }
  if (code.includes('INVALID_PURPOSE')) return stranger('wrongIdentity', 'the certificate is not for clients')
  return stranger('untrusted', `the certificate was not issued by this broker's CA (${code})`)
}

function stranger(problem: CertificateError['problem'], message: string): Stranger {
  return { t: 'stranger', error: new CertificateError(problem, message) }
}

function readOrUndefined(der: Uint8Array): CertificateFacts | undefined {
  try {
    return readCertificate(der)
  } catch {
    return undefined
  }
}
