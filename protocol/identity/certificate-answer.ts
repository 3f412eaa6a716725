/** A certificate that a broker hands out, validated by the member that asked for it, before it is kept. */
import { type KeyObject, X509Certificate } from 'node:crypto'
import { fingerprint } from './pem.ts'
import { readCertificate } from './read-certificate.ts'

export interface CertificateAsked {
  readonly cluster: string
  readonly clusterset: string
  readonly key: KeyObject
  /** CA certificates that are trusted already, DER: one of them has to be in the answer. Absent: there are none yet. */
  readonly trusted?: readonly Uint8Array[]
}

export interface CertificateAnswer {
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
