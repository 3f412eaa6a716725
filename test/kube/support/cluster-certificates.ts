/** The certificates of a test cluster: one CA that the API server, its clients and the nodes' kubelets share. */
import '../../../protocol/identity/reflect-metadata.ts'
import { randomBytes, webcrypto } from 'node:crypto'
import { isIP } from 'node:net'
import * as x509 from '@peculiar/x509'

const KEY = { name: 'ECDSA', namedCurve: 'P-256' }
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' }
const HOUR_MS = 3600_000

/** PEM texts. */
export interface CertificateAndKey {
  readonly certificate: string
  readonly key: string
}

export interface CertificateRequest {
  /** Common name: for a client, the user. */
  readonly name: string
  /** Organizations: for a client, the groups. */
  readonly groups?: readonly string[]
  /** Names and addresses; giving any makes it a server's certificate too. */
  readonly hosts?: readonly string[]
  /** Default 24 hours from now. May be negative, for an expired one. */
  readonly validMs?: number
}

export interface ClusterCa extends CertificateAndKey {
  issue(request: CertificateRequest): Promise<CertificateAndKey>
}

/** A new CA. Its name distinguishes clusters in error messages. */
export async function makeClusterCa(cluster: string): Promise<ClusterCa> {
  const keys = await webcrypto.subtle.generateKey(KEY, true, ['sign', 'verify'])
  const own = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: randomBytes(8).toString('hex'),
    name: [{ CN: [`${cluster} test CA`] }],
    ...lifetime(10 * 24 * HOUR_MS),
    signingAlgorithm: SIGNING,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  return {
    certificate: pem(own),
    key: await keyPem(keys.privateKey),
    issue: (request) => issue(own, keys.privateKey, request),
  }
}

/** A key pair without certificate, for signing ServiceAccount tokens. */
export async function makeTokenKey(): Promise<{ readonly key: string; readonly publicKey: string }> {
  const keys = await webcrypto.subtle.generateKey(KEY, true, ['sign', 'verify'])
  const spki = await webcrypto.subtle.exportKey('spki', keys.publicKey)
  return {
    key: await keyPem(keys.privateKey),
    publicKey: `${x509.PemConverter.encode(spki, 'PUBLIC KEY')}\n`,
  }
}

async function issue(
  ca: x509.X509Certificate,
  signingKey: webcrypto.CryptoKey,
  request: CertificateRequest,
): Promise<CertificateAndKey> {
  const { name, groups = [], hosts = [], validMs = 24 * HOUR_MS } = request
  const keys = await webcrypto.subtle.generateKey(KEY, true, ['sign', 'verify'])
  const usages = [x509.ExtendedKeyUsage.clientAuth, ...(hosts.length > 0 ? [x509.ExtendedKeyUsage.serverAuth] : [])]
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: randomBytes(8).toString('hex'),
    issuer: ca.subject,
    subject: [...groups.map((group) => ({ O: [group] })), { CN: [name] }],
    ...lifetime(validMs),
    signingAlgorithm: SIGNING,
    publicKey: keys.publicKey,
    signingKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(usages),
      await x509.AuthorityKeyIdentifierExtension.create(ca.publicKey),
      ...(hosts.length > 0 ? [new x509.SubjectAlternativeNameExtension(hosts.map(generalName))] : []),
    ],
  })
  return { certificate: pem(certificate), key: await keyPem(keys.privateKey) }
}

function generalName(host: string): x509.JsonGeneralName {
  return isIP(host) === 0 ? { type: 'dns', value: host } : { type: 'ip', value: host }
}

function lifetime(validMs: number): { notBefore: Date; notAfter: Date } {
  const end = Date.now() + validMs
  return { notBefore: new Date(Math.min(Date.now(), end) - HOUR_MS), notAfter: new Date(end) }
}

function pem(certificate: x509.X509Certificate): string {
  return `${certificate.toString('pem')}\n`
}

async function keyPem(key: webcrypto.CryptoKey): Promise<string> {
  return `${x509.PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')}\n`
}
