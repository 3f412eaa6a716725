/** What a certificate says. Reading is not trusting: whether the CA signed it, TLS has checked (or not). */
import './reflect-metadata.ts'
import * as x509 from '@peculiar/x509'
import { isDnsLabel, isDnsSubdomain, type ClusterId } from '../../model/ids.ts'
import { RENEWS } from './certificate-terms.ts'

export interface CertificateFacts {
  /** Hex. */
  readonly serial: string
  readonly notBeforeMs: number
  readonly notAfterMs: number
  /** When to renew: after two thirds of the lifetime. */
  readonly renewAtMs: number
  readonly isCa: boolean
  readonly dnsNames: readonly string[]
  /** From the URI; absent in certificates that are none of ours. */
  readonly clusterset?: string
  /** The member that the certificate is for. */
  readonly cluster?: ClusterId
  /** Serial of the certificate that was shown for this one, hex. */
  readonly renews?: string
}

/** Takes DER. Throws an Error when it is no X.509 certificate. */
export function readCertificate(der: Uint8Array): CertificateFacts {
  const certificate = parse(der)
  const notBeforeMs = certificate.notBefore.getTime()
  const notAfterMs = certificate.notAfter.getTime()
  const names = certificate.getExtension(x509.SubjectAlternativeNameExtension)?.names.items ?? []
  const uris = names.filter((name) => name.type === 'url').map((name) => name.value)
  return {
    serial: certificate.serialNumber,
    notBeforeMs,
    notAfterMs,
    renewAtMs: notAfterMs - Math.floor((notAfterMs - notBeforeMs) / 3),
    isCa: certificate.getExtension(x509.BasicConstraintsExtension)?.ca ?? false,
    dnsNames: names.filter((name) => name.type === 'dns').map((name) => name.value),
    ...identityOf(uris),
    ...renewalOf(uris),
  }
}

function parse(der: Uint8Array): x509.X509Certificate {
  try {
    return new x509.X509Certificate(Uint8Array.from(der))
  } catch {
    throw new Error('not an X.509 certificate')
  }
}

/** Exactly one of our URIs must be there: a certificate that says two things says nothing. */
function identityOf(uris: readonly string[]): Pick<CertificateFacts, 'clusterset' | 'cluster'> {
  const [uri, ...others] = uris.filter((candidate) => candidate.startsWith('sealane://'))
  const match = /^sealane:\/\/([^/]+)(?:\/broker|\/cluster\/([^/]+))?$/.exec(uri ?? '')
  const clusterset = match?.[1]
  const cluster = match?.[2]
  if (others.length > 0 || clusterset === undefined || !isDnsSubdomain(clusterset)) return {}
  if (cluster === undefined) return { clusterset }
  return isDnsLabel(cluster) ? { clusterset, cluster: cluster as ClusterId } : {}
}

function renewalOf(uris: readonly string[]): Pick<CertificateFacts, 'renews'> {
  const [renews] = uris.flatMap((uri) => (uri.startsWith(RENEWS) ? [uri.slice(RENEWS.length)] : []))
  return renews !== undefined && /^[0-9a-f]{1,40}$/.test(renews) ? { renews } : {}
}
