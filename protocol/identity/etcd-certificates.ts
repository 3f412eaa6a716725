/**
 * Certificates for an etcd that runs beside the broker. Its authority is separate from that of the clusterset, so that
 * access to the store and membership are independent.
 */
import './reflect-metadata.ts'
import { createPublicKey } from 'node:crypto'
import * as x509 from '@peculiar/x509'
import { CA_VALIDITY_MS } from './certificates.ts'
import { createKey } from './keys.ts'
import { type Identity, SIGNING, cryptoPair, lifetime, newSerial } from './x509.ts'

/** An operator must run `sealane broker deploy` at least once within this time, or the store stops. */
const ETCD_VALIDITY_MS = 5 * 365 * 24 * 3_600_000

export async function createEtcdCa(nowMs: number): Promise<Identity> {
  const key = createKey()
  const keys = cryptoPair(key)
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    name: [{ CN: ['Sealane etcd CA'] }],
    ...lifetime(nowMs, CA_VALIDITY_MS),
    signingAlgorithm: SIGNING,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  return { certificate: new Uint8Array(certificate.rawData), key }
}

export interface EtcdCertificateInit {
  readonly commonName: string
  /** DNS names of an etcd member. Empty for a client. */
  readonly hosts: readonly string[]
  readonly nowMs: number
}

/** Issues a certificate for a new key. An etcd member is a server, and also a client of the other members. */
export async function createEtcdCertificate(ca: Identity, init: EtcdCertificateInit): Promise<Identity> {
  const { commonName, hosts, nowMs } = init
  const key = createKey()
  const publicKey = new x509.PublicKey(new Uint8Array(createPublicKey(key).export({ type: 'spki', format: 'der' })))
  const issuer = new x509.X509Certificate(Uint8Array.from(ca.certificate))
  const { clientAuth, serverAuth } = x509.ExtendedKeyUsage
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: newSerial(),
    subject: [{ CN: [commonName] }],
    issuer: issuer.subjectName,
    ...lifetime(nowMs, ETCD_VALIDITY_MS),
    signingAlgorithm: SIGNING,
    publicKey,
    signingKey: cryptoPair(ca.key).privateKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(hosts.length === 0 ? [clientAuth] : [serverAuth, clientAuth], true),
      await x509.SubjectKeyIdentifierExtension.create(publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
      ...(hosts.length === 0
        ? []
        : [new x509.SubjectAlternativeNameExtension(hosts.map((value) => ({ type: 'dns', value })))]),
    ],
  })
  return { certificate: new Uint8Array(certificate.rawData), key }
}
