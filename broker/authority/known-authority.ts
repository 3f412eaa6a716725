/** Authorities as the store has them. */
import { X509Certificate } from 'node:crypto'
import { fingerprint } from '../../protocol/identity/pem.ts'
import { type CertificateFacts, readCertificate } from '../../protocol/identity/read-certificate.ts'
import { type KnownAuthority, timeText } from '../state/state.ts'

/** Takes DER. */
export function knownAuthority(certificate: Uint8Array, sinceMs: number): KnownAuthority {
  return { fingerprint: fingerprint(certificate), certificate: Buffer.from(certificate).toString('base64'), sinceMs }
}

/** DER. */
export function certificateOf({ certificate }: KnownAuthority): Uint8Array {
  return new Uint8Array(Buffer.from(certificate, 'base64'))
}

export function factsOf(authority: KnownAuthority): CertificateFacts {
  return readCertificate(certificateOf(authority))
}

/** Why this cannot be an authority of the clusterset, in words; undefined: it can. */
export function certificateProblem(authority: KnownAuthority, clusterset: string, nowMs: number): string | undefined {
  const der = certificateOf(authority)
  const certificate = new X509Certificate(der)
  const facts = readCertificate(der)
  if (!facts.isCa || !certificate.ca) return 'its certificate is not one of a CA'
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = certificate.publicKey
  if (type !== 'ec' || details?.namedCurve !== 'prime256v1') return 'its key is not ECDSA P-256'
  if (facts.clusterset !== clusterset || facts.cluster !== undefined)
    return `it is of clusterset ${JSON.stringify(facts.clusterset ?? '')}, expected a URI name sealane://${clusterset}`
  if (facts.notAfterMs <= nowMs) return `it ended at ${timeText(facts.notAfterMs)}`
  if (facts.notBeforeMs > nowMs) return `it begins at ${timeText(facts.notBeforeMs)}`
  return undefined
}
