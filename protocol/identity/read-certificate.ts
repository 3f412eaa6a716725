/** What a certificate says. Reading is not trusting: whether the CA signed it, TLS has checked (or not). */
import { X509Certificate } from 'node:crypto'
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
  const notBeforeMs = certificate.validFromDate.getTime()
  const notAfterMs = certificate.validToDate.getTime()
  const names = namesOf(certificate.subjectAltName ?? '')
  const uris = names.filter(({ type }) => type === 'URI').map(({ value }) => value)
  return {
    serial: certificate.serialNumber.toLowerCase(),
    notBeforeMs,
    notAfterMs,
    renewAtMs: notAfterMs - Math.floor((notAfterMs - notBeforeMs) / 3),
    isCa: certificate.ca,
    dnsNames: names.filter(({ type }) => type === 'DNS').map(({ value }) => value),
    ...identityOf(uris),
    ...renewalOf(uris),
  }
}

/** Node's own parser: a broker reads a certificate for each connection, and the library takes 2 ms. */
function parse(der: Uint8Array): X509Certificate {
  try {
    // PEM would be taken as well.
    if (der[0] !== 0x30) throw new Error('no DER')
    return new X509Certificate(der)
  } catch {
    throw new Error('not an X.509 certificate')
  }
}

interface AlternativeName {
  readonly type: string
  readonly value: string
}

/**
 * Node gives the names as one text, `DNS:a, URI:b`, and a name with any character that could be mistaken as JSON in
 * quotes. So no name can pass for two.
 */
function namesOf(text: string): AlternativeName[] {
  const names: AlternativeName[] = []
  const one = /([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?:, |$)/y
  for (let match = one.exec(text); match !== null && match[0] !== ''; match = one.exec(text)) {
    const [, type = '', value = ''] = match
    names.push({ type, value: value.startsWith('"') ? String(JSON.parse(value)) : value })
    if (one.lastIndex >= text.length) break
  }
  return names
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
