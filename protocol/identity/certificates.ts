/** What a certificate says. Reading is not trusting: whether the CA signed it, TLS has checked (or not). */
import { type KeyObject, X509Certificate, createHash } from 'node:crypto'
import { type PeerCertificate, checkServerIdentity } from 'node:tls'
import { type ClusterId, isDnsLabel, isDnsSubdomain } from '../../model/model.ts'

/** The name and the lifetimes in the certificates of a clusterset. */
export const SERVER_NAME = 'broker.sealane.internal'
export const MEMBER_VALIDITY_MS = 24 * 3600_000
export const CA_VALIDITY_MS = 10 * 365 * 24 * 3600_000
export const SERVER_VALIDITY_MS = 90 * 24 * 3600_000
/** Certificates begin a little in the past: clocks differ. */
export const BACKDATE_MS = 5 * 60_000
/**
 * Before the serial of the certificate that was shown for a new one; not a URI of ours, which earlier releases would
 * count.
 */
export const RENEWS = 'urn:sealane:renews:'

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

// What a client calls the broker by when it begins TLS, and what the broker's certificate is for. A broker that serves
// several clustersets shows each caller the certificate of its own: the name has the authority that the caller trusts.
// It is a choice, and proves nothing: who calls is what its certificate or its token says to that clusterset alone.

/** So much of a fingerprint as nobody finds by trying. */
const HEX_DIGITS = 32

/** Takes fingerprint() of a certificate of the authority; undefined: whatever broker is there. */
export function serverNameOf(authority: string | undefined): string {
  return authority === undefined ? SERVER_NAME : `${authority.slice(0, HEX_DIGITS)}.${SERVER_NAME}`
}

/** The certificate says the same name whatever the broker was called by: brokers of earlier releases know no other. */
export function checkBrokerName(certificate: PeerCertificate): Error | undefined {
  return checkServerIdentity(SERVER_NAME, certificate)
}

// A certificate that a broker hands out, validated by the member that asked for it, before it is kept.

interface CertificateAsked {
  readonly cluster: string
  readonly clusterset: string
  readonly key: KeyObject
  /** CA certificates that are trusted already, DER: one of them has to be in the answer. Absent: there are none yet. */
  readonly trusted?: readonly Uint8Array[]
}

interface CertificateAnswer {
  /** DER. */
  readonly certificate: Uint8Array
  readonly caBundle: readonly Uint8Array[]
}

/** Why the answer is no identity of this member, in words; undefined when it is. */
export function certificateProblem(
  { cluster, clusterset, key, trusted }: CertificateAsked,
  { certificate, caBundle }: CertificateAnswer,
  nowMs: number,
): string | undefined {
  const own = read(certificate)
  if (own === undefined) return 'certificate: not an X.509 certificate'
  const facts = readCertificate(certificate)
  if (facts.cluster !== cluster || facts.clusterset !== clusterset)
    return `certificate: it is for cluster ${shown(facts.cluster)} of clusterset ${shown(facts.clusterset)}, expected ${shown(cluster)} of ${shown(clusterset)}`
  if (facts.notAfterMs <= nowMs) return `certificate: it ended at ${new Date(facts.notAfterMs).toISOString()}`
  if (!own.checkPrivateKey(key)) return 'certificate: it is for another key'
  const authorities = caBundle.map(read)
  if (authorities.some((ca) => ca?.ca !== true)) return 'caBundle: expected certificates of CAs'
  const others = caBundle.map((der) => readCertificate(der).clusterset).filter((name) => name !== clusterset)
  if (others.length > 0) return `caBundle: it has a CA of clusterset ${shown(others[0])}, expected ${shown(clusterset)}`
  const known = new Set((trusted ?? []).map(fingerprint))
  if (trusted !== undefined && !caBundle.some((der) => known.has(fingerprint(der))))
    return 'caBundle: none of it is trusted here already'
  if (!authorities.some((ca) => ca !== undefined && own.verify(ca.publicKey)))
    return 'caBundle: none of it has signed the certificate'
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

// Certificates as text, and what distinguishes one from another.

/** SHA-256 of the DER form, 64 hex digits: the pin in a join token. */
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

/** Every certificate in the text, as DER. Throws an Error when there is none or one is broken. */
export function certificatesFromPem(pem: string): Uint8Array[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []
  if (blocks.length === 0) throw new Error('no certificate in PEM form')
  return blocks.map((block) => {
    try {
      return new Uint8Array(new X509Certificate(block).raw)
    } catch {
      throw new Error('a certificate in PEM form is broken')
    }
  })
}
