/** Certificates as text, and what distinguishes one from another. */
import { X509Certificate, createHash } from 'node:crypto'

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
