/**
 * Issues the certificates of a clusterset: one CA, a server certificate for the broker and a client certificate for
 * each member. Every certificate names the clusterset in a URI, which distinguishes a certificate of another clusterset
 * from a malformed one:
 *   CA      sealane://<clusterset>
 *   broker  sealane://<clusterset>/broker
 *   member  sealane://<clusterset>/cluster/<cluster id>
 * A renewed member certificate names the previous one in a second URI, urn:sealane:renews:<its serial>.
 */
import './reflect-metadata.ts'
import { type KeyObject, createPublicKey, randomBytes, type webcrypto } from 'node:crypto'
import { isIP } from 'node:net'
import * as x509 from '@peculiar/x509'
import { type ClusterId, InvalidNameError, isDnsSubdomain } from '../../model/model.ts'
import {
  BACKDATE_MS,
  CA_VALIDITY_MS,
  MEMBER_VALIDITY_MS,
  RENEWS,
  SERVER_NAME,
  SERVER_VALIDITY_MS,
} from './certificates.ts'
import { KEY_ALGORITHM, createKey, publicKeyHash } from './keys.ts'

export const SIGNING = { name: 'ECDSA', hash: 'SHA-256' }

/** A certificate (DER) and its private key. */
export interface Identity {
  readonly certificate: Uint8Array
  readonly key: KeyObject
}

/**
 * An authority whose key may be stored elsewhere. `sign` takes the DER to be signed, and returns an ECDSA signature
 * with SHA-256 in DER.
 */
export type Issuer =
  Identity | { readonly certificate: Uint8Array; readonly sign: (toBeSigned: Uint8Array) => Promise<Uint8Array> }

/** A certificate signing request that cannot be used. The text may be sent to the caller. */
export class CsrError extends Error {
  constructor(problem: string) {
    super(`certificate request: ${problem}`)
    this.name = 'CsrError'
  }
}

export interface CaInit {
  readonly clusterset: string
  readonly key: KeyObject
  readonly nowMs: number
  readonly validMs?: number
}

/** Creates a self-signed CA. Throws InvalidNameError if the clusterset is not an RFC 1123 subdomain. */
export async function createCa(init: CaInit): Promise<Identity> {
  const { key, nowMs, validMs = CA_VALIDITY_MS } = init
  const clusterset = checkClusterset(init.clusterset)
  const keys = cryptoPair(key)
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    name: [{ CN: [`Sealane CA ${clusterset}`] }],
    ...lifetime(nowMs, validMs),
    signingAlgorithm: SIGNING,
    keys,
    extensions: [
      // Path length 0: this CA signs certificates of the broker and of members, but no other CA.
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      uriName(`sealane://${clusterset}`),
    ],
  })
  return { certificate: new Uint8Array(certificate.rawData), key }
}

export interface ServerCertificateInit {
  readonly clusterset: string
  readonly key: KeyObject
  /** Host names and addresses besides SERVER_NAME, for users who connect with other tools. */
  readonly hosts?: readonly string[]
  readonly nowMs: number
  readonly validMs?: number
}

/** Issues the broker's certificate, for server authentication only. */
export async function createServerCertificate(ca: Issuer, init: ServerCertificateInit): Promise<Identity> {
  const hosts = [SERVER_NAME, ...(init.hosts ?? []).filter((host) => host !== SERVER_NAME)]
  const certificate = await issue(ca, {
    publicKey: new x509.PublicKey(new Uint8Array(createPublicKey(init.key).export({ type: 'spki', format: 'der' }))),
    commonName: SERVER_NAME,
    usage: x509.ExtendedKeyUsage.serverAuth,
    names: [
      ...hosts.map((host): x509.JsonGeneralName => ({ type: isIP(host) === 0 ? 'dns' : 'ip', value: host })),
      { type: 'url', value: `sealane://${checkClusterset(init.clusterset)}/broker` },
    ],
    nowMs: init.nowMs,
    validMs: init.validMs ?? SERVER_VALIDITY_MS,
  })
  return { certificate, key: init.key }
}

export interface MemberCertificateInit {
  readonly clusterset: string
  readonly cluster: ClusterId
  /** PKCS #10 in DER. Only its public key is used, and the signature as proof that the sender has the private key. */
  readonly csr: Uint8Array
  /** Serial number, in hexadecimal, of the certificate that is renewed. Absent if a token was used. */
  readonly renews?: string
  readonly nowMs: number
  readonly validMs?: number
}

/** Issues a member's certificate (DER), for client authentication of one cluster only. Throws CsrError. */
export async function issueMemberCertificate(ca: Issuer, init: MemberCertificateInit): Promise<Uint8Array> {
  return issue(ca, {
    publicKey: await verifiedCsrKey(init.csr),
    commonName: init.cluster,
    usage: x509.ExtendedKeyUsage.clientAuth,
    names: [
      { type: 'url', value: `sealane://${checkClusterset(init.clusterset)}/cluster/${init.cluster}` },
      ...(init.renews === undefined ? [] : [{ type: 'url' as const, value: `${RENEWS}${init.renews}` }]),
    ],
    nowMs: init.nowMs,
    validMs: init.validMs ?? MEMBER_VALIDITY_MS,
  })
}

/** Returns PKCS #10 in DER. It contains only the key, because the broker determines the identity. */
export async function createCsr(key: KeyObject): Promise<Uint8Array> {
  const keys = cryptoPair(key)
  const csr = await x509.Pkcs10CertificateRequestGenerator.create({ keys, signingAlgorithm: SIGNING })
  return new Uint8Array(csr.rawData)
}

/** Throws CsrError unless the request is well formed, for P-256, and signed by its own key. */
export async function verifyCsr(csr: Uint8Array): Promise<void> {
  await verifiedCsrKey(csr)
}

/** Returns the hash of the request's public key as publicKeyHash() does. Throws CsrError as verifyCsr() does. */
export async function csrKeyHash(csr: Uint8Array): Promise<string> {
  const der = Buffer.from((await verifiedCsrKey(csr)).rawData)
  return publicKeyHash(createPublicKey({ key: der, format: 'der', type: 'spki' }))
}

/** Returns the public key of a request, of which the signature was checked. Throws CsrError. */
export async function verifiedCsrKey(der: Uint8Array): Promise<x509.PublicKey> {
  const { csr, publicKey, algorithm } = readCsr(der)
  const { name, namedCurve } = algorithm
  if (name !== 'ECDSA' || namedCurve !== 'P-256') {
    throw new CsrError(`key of type ${String(namedCurve ?? name)}: expected ECDSA P-256`)
  }
  if (!(await csr.verify().catch(() => false))) throw new CsrError('its signature does not match its key')
  return publicKey
}

interface ReadCsr {
  readonly csr: x509.Pkcs10CertificateRequest
  readonly publicKey: x509.PublicKey
  readonly algorithm: { readonly name?: string; readonly namedCurve?: string }
}

function readCsr(der: Uint8Array): ReadCsr {
  try {
    const csr = new x509.Pkcs10CertificateRequest(Uint8Array.from(der))
    // The library decodes the key on first access. This access happens here, where failures are caught.
    return { csr, publicKey: csr.publicKey, algorithm: csr.publicKey.algorithm as ReadCsr['algorithm'] }
  } catch {
    throw new CsrError('not PKCS #10 in DER form')
  }
}

interface IssueInit {
  readonly publicKey: x509.PublicKey
  readonly commonName: string
  readonly usage: x509.ExtendedKeyUsage | readonly x509.ExtendedKeyUsage[]
  readonly names: x509.JsonGeneralNames
  readonly nowMs: number
  readonly validMs: number
}

/** Issues a certificate (DER) that is no authority, for the names and the usage that `init` states. */
export async function issue(ca: Issuer, init: IssueInit): Promise<Uint8Array> {
  const issuer = new x509.X509Certificate(Uint8Array.from(ca.certificate))
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: newSerial(),
    subject: [{ CN: [init.commonName] }],
    issuer: issuer.subjectName,
    ...lifetime(init.nowMs, init.validMs),
    signingAlgorithm: SIGNING,
    publicKey: init.publicKey,
    // If the key of the authority is elsewhere, a temporary key signs, and the signature is replaced below.
    signingKey: cryptoPair('key' in ca ? ca.key : createKey()).privateKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([init.usage].flat(), true),
      await x509.SubjectKeyIdentifierExtension.create(init.publicKey),
      await authorityKeyId(issuer),
      new x509.SubjectAlternativeNameExtension(init.names),
    ],
  })
  const der = new Uint8Array(certificate.rawData)
  return 'key' in ca ? der : replaceSignature(der, ca.sign)
}

/** Copies the key id from the authority's certificate, which other tools may have created, or else computes it. */
async function authorityKeyId(issuer: x509.X509Certificate): Promise<x509.AuthorityKeyIdentifierExtension> {
  const own = issuer.getExtension(x509.SubjectKeyIdentifierExtension)
  if (own === null) return x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey)
  return new x509.AuthorityKeyIdentifierExtension(own.keyId)
}

/** Certificate ::= SEQUENCE { toBeSigned, algorithm, BIT STRING } (RFC 5280 section 4.1). */
async function replaceSignature(
  der: Uint8Array,
  sign: (toBeSigned: Uint8Array) => Promise<Uint8Array>,
): Promise<Uint8Array> {
  const content = derContent(der)
  const toBeSigned = derElement(content)
  const algorithm = derElement(content.subarray(toBeSigned.length))
  const signature = await sign(toBeSigned)
  // The first octet of a BIT STRING is the number of unused bits.
  const bits = derOf(0x03, [Uint8Array.of(0), signature])
  return derOf(0x30, [toBeSigned, algorithm, bits])
}

/** Returns the first element including its header. */
function derElement(der: Uint8Array): Uint8Array {
  const { header, length } = derLength(der)
  return der.subarray(0, header + length)
}

function derContent(der: Uint8Array): Uint8Array {
  const { header, length } = derLength(der)
  return der.subarray(header, header + length)
}

function derLength(der: Uint8Array): { readonly header: number; readonly length: number } {
  const first = der[1] ?? 0
  if (first < 0x80) return { header: 2, length: first }
  const count = first & 0x7f
  const length = der.subarray(2, 2 + count).reduce((sum, byte) => sum * 256 + byte, 0)
  return { header: 2 + count, length }
}

function derOf(tag: number, parts: readonly Uint8Array[]): Uint8Array {
  const content = Buffer.concat(parts)
  const size = content.length
  const length = size < 0x80 ? [size] : size < 0x100 ? [0x81, size] : [0x82, size >> 8, size & 0xff]
  return new Uint8Array(Buffer.concat([Buffer.from([tag, ...length]), content]))
}

export function lifetime(nowMs: number, validMs: number): { notBefore: Date; notAfter: Date } {
  return { notBefore: new Date(nowMs - BACKDATE_MS), notAfter: new Date(nowMs + validMs) }
}

function uriName(value: string): x509.SubjectAlternativeNameExtension {
  return new x509.SubjectAlternativeNameExtension([{ type: 'url', value }])
}

/** Returns a random serial number that is positive in DER. It is unique without a counter that could be lost. */
export function newSerial(): string {
  const bytes = randomBytes(16)
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40
  return bytes.toString('hex')
}

function checkClusterset(name: string): string {
  if (!isDnsSubdomain(name)) throw new InvalidNameError('clusterset', name, 'an RFC 1123 subdomain')
  return name
}

export function cryptoPair(key: KeyObject): webcrypto.CryptoKeyPair {
  const publicKey = createPublicKey(key)
  return {
    privateKey: key.toCryptoKey(KEY_ALGORITHM, true, ['sign']),
    publicKey: publicKey.toCryptoKey(KEY_ALGORITHM, true, ['verify']),
  }
}
