/** A certificate authority for the etcd of a test. It issues the certificates of the members and of the client. */
import '../../../protocol/identity/reflect-metadata.ts'
import { KeyObject, randomBytes, webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'

const KEY = { name: 'ECDSA', namedCurve: 'P-256' }
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' }
const DAY_MS = 24 * 3_600_000

export interface PemPair {
  readonly certificate: string
  readonly key: string
}

export interface TestAuthority {
  readonly ca: string
  /** Issues a server and client certificate for 127.0.0.1, localhost and these addresses. */
  issue(subject: string, addresses?: readonly string[]): Promise<PemPair>
}

export async function testAuthority(): Promise<TestAuthority> {
  const keys = await webcrypto.subtle.generateKey(KEY, true, ['sign', 'verify'])
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    ...common('CN=etcd test CA'),
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
    ],
  })
  const issue = async (subject: string, addresses: readonly string[] = []): Promise<PemPair> => {
    const own = await webcrypto.subtle.generateKey(KEY, true, ['sign', 'verify'])
    const certificate = await x509.X509CertificateGenerator.create({
      ...common(subject),
      issuer: ca.subject,
      publicKey: own.publicKey,
      signingKey: keys.privateKey,
      extensions: [
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
        new x509.SubjectAlternativeNameExtension([
          { type: 'ip', value: '127.0.0.1' },
          { type: 'dns', value: 'localhost' },
          ...addresses.map((value) => ({ type: 'ip', value }) as const),
        ]),
      ],
    })
    const key = KeyObject.from(own.privateKey).export({ type: 'pkcs8', format: 'pem' })
    return { certificate: `${certificate.toString('pem')}\n`, key }
  }
  return { ca: `${ca.toString('pem')}\n`, issue }
}

function common(subject: string) {
  return {
    serialNumber: `00${randomBytes(8).toString('hex')}`,
    subject,
    notBefore: new Date(Date.now() - DAY_MS),
    notAfter: new Date(Date.now() + DAY_MS),
    signingAlgorithm: SIGNING,
  }
}
