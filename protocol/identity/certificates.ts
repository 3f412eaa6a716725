/** Reads and checks certificates of a clusterset. Reading does not verify the issuer; TLS does. */
import { type KeyObject, X509Certificate, createHash } from 'node:crypto'
import { type PeerCertificate, checkServerIdentity } from 'node:tls'
import { type ClusterId, isDnsLabel, isDnsSubdomain } from '../../model/model.ts'

/** Name and lifetimes in the certificates of a clusterset. */
export const SERVER_NAME = 'broker.sealane.internal'
export const MEMBER_VALIDITY_MS = 24 * 3600_000

/** How long a member's certificate can still be renewed after its end, unless the broker's configuration differs. */
export const DEFAULT_RENEWAL_GRACE_MS = 30 * 24 * 3600_000
export const MAX_RENEWAL_GRACE_MS = 366 * 24 * 3600_000
export const CA_VALIDITY_MS = 10 * 365 * 24 * 3600_000
export const SERVER_VALIDITY_MS = 90 * 24 * 3600_000
/** Certificates start slightly in the past, because clocks differ. */
export const BACKDATE_MS = 5 * 60_000
/**
 * URI prefix of the serial number of the renewed certificate. It does not use the `sealane` scheme, because earlier
 * releases require exactly one such URI.
 */
export const RENEWS = 'urn:sealane:renews:'

export interface CertificateFacts {
  /** In hexadecimal. */
  readonly serial: string
  readonly notBeforeMs: number
  readonly notAfterMs: number
  /** Time of renewal: after two thirds of the lifetime. */
  readonly renewAtMs: number
  readonly isCa: boolean
  readonly dnsNames: readonly string[]
  /** From the `sealane` URI. Absent if the certificate does not belong to a clusterset. */
  readonly clusterset?: string
  /** The member that the certificate was issued for. */
  readonly cluster?: ClusterId
  /** Serial number, in hexadecimal, of the certificate that this one renews. */
  readonly renews?: string
}

/** Takes DER. Throws an Error if it is not an X.509 certificate. */
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

/** Parses with Node, because a broker reads a certificate for each connection and @peculiar/x509 takes 2 ms. */
function parse(der: Uint8Array): X509Certificate {
  try {
    // X509Certificate accepts PEM too.
    if (der[0] !== 0x30) throw new Error('not DER')
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
 * Splits the subject alternative names. Node returns them as one text, `DNS:a, URI:b`, with ambiguous names quoted as
 * JSON, so one name cannot pass for two.
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

/** Requires exactly one `sealane` URI. A certificate with several identities has none. */
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

// The server name that a client sends in the TLS handshake. A broker that serves several clustersets selects its
// certificate by this name, which contains the authority that the client trusts. The name proves nothing: the selected
// clusterset identifies the client by its certificate or token.

/** Length of the fingerprint prefix. 128 bits cannot be found by brute force. */
const HEX_DIGITS = 32

/** Takes the fingerprint() of an authority's certificate, or undefined to address the broker's default clusterset. */
export function serverNameOf(authority: string | undefined): string {
  return authority === undefined ? SERVER_NAME : `${authority.slice(0, HEX_DIGITS)}.${SERVER_NAME}`
}

/**
 * Returns an Error if the certificate is not for SERVER_NAME. Every broker certificate has this name, whatever server
 * name was sent, because brokers of earlier releases have no other.
 */
export function checkBrokerName(certificate: PeerCertificate): Error | undefined {
  return checkServerIdentity(SERVER_NAME, certificate)
}

// Validates a certificate that a broker issued, before the member stores it.

interface CertificateAsked {
  readonly cluster: string
  readonly clusterset: string
  readonly key: KeyObject
  /**
   * CA certificates that are already trusted, in DER. The answer must contain one of them. Absent if there are none
   * yet.
   */
  readonly trusted?: readonly Uint8Array[]
}

interface CertificateAnswer {
  /** In DER. */
  readonly certificate: Uint8Array
  readonly caBundle: readonly Uint8Array[]
}

/** Returns in words why the answer is not a valid identity of this member, or undefined if it is. */
export function certificateProblem(
  { cluster, clusterset, key, trusted }: CertificateAsked,
  { certificate, caBundle }: CertificateAnswer,
  nowMs: number,
): string | undefined {
  const own = read(certificate)
  if (own === undefined) return 'certificate: not an X.509 certificate'
  const facts = readCertificate(certificate)
  if (facts.cluster !== cluster || facts.clusterset !== clusterset)
    return `certificate: it belongs to cluster ${shown(facts.cluster)} of clusterset ${shown(facts.clusterset)}, expected ${shown(cluster)} of ${shown(clusterset)}`
  if (facts.notAfterMs <= nowMs) return `certificate: it expired at ${new Date(facts.notAfterMs).toISOString()}`
  if (!own.checkPrivateKey(key)) return 'certificate: it belongs to another key'
  const authorities = caBundle.map(read)
  if (authorities.some((ca) => ca?.ca !== true)) return 'caBundle: expected certificates of CAs'
  const others = caBundle.map((der) => readCertificate(der).clusterset).filter((name) => name !== clusterset)
  if (others.length > 0)
    return `caBundle: it contains a CA of clusterset ${shown(others[0])}, expected ${shown(clusterset)}`
  const known = new Set((trusted ?? []).map(fingerprint))
  if (trusted !== undefined && !caBundle.some((der) => known.has(fingerprint(der))))
    return 'caBundle: this cluster trusts none of its CAs'
  if (!authorities.some((ca) => ca !== undefined && own.verify(ca.publicKey)))
    return 'caBundle: none of its CAs has signed the certificate'
  return undefined
}

function read(der: Uint8Array): X509Certificate | undefined {
  try {
    readCertificate(der)
    return new X509Certificate(der)
  } catch {
    return undefined
  }
}

function shown(text: string | undefined): string {
  return text === undefined ? 'none' : JSON.stringify(text.slice(0, 100))
}

// PEM conversion and fingerprints.

/** Returns the SHA-256 of the DER form, 64 hexadecimal digits. Join tokens pin the CA by it. */
export function fingerprint(der: Uint8Array): string {
  return createHash('sha256').update(der).digest('hex')
}

export function certificateToPem(der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? []
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`
}

/** Returns every certificate in the text, as DER. Throws an Error if there is none or one is malformed. */
export function certificatesFromPem(pem: string): Uint8Array[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []
  if (blocks.length === 0) throw new Error('no certificate in PEM form')
  return blocks.map((block) => {
    try {
      return new Uint8Array(new X509Certificate(block).raw)
    } catch {
      throw new Error('a certificate in PEM form is damaged')
    }
  })
}
