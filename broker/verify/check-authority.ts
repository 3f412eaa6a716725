/** Of the certificate authority: it is one, it is this clusterset's, it has not ended, and its key is its own. */
import { X509Certificate } from 'node:crypto'
import { keyFromPem } from '../../protocol/identity/keys.ts'
import { certificatesFromPem } from '../../protocol/identity/pem.ts'
import { readCertificate } from '../../protocol/identity/read-certificate.ts'
import type { Findings } from './findings.ts'

export interface AuthorityTexts {
  /** PEM; undefined: there is none. */
  readonly certificate: string | undefined
  readonly key: string | undefined
}

/** `clusterset` is that of the settings. */
export function checkAuthority(
  findings: Findings,
  { certificate, key }: AuthorityTexts,
  { clusterset, nowMs }: { readonly clusterset: string | undefined; readonly nowMs: number },
): void {
  const wrong = (file: string, text: string): void => findings.add('StoreAuthorityInvalid', file, text)
  const der = certificate === undefined ? undefined : firstCertificate(certificate)
  if (der === undefined) {
    wrong('ca.crt', certificate === undefined ? 'it is not there' : 'it holds no certificate in PEM form')
    return
  }
  const facts = readCertificate(der)
  if (!facts.isCa) wrong('ca.crt', 'it is no certificate of an authority')
  if (clusterset !== undefined && facts.clusterset !== clusterset)
    wrong('ca.crt', `it is of clusterset "${facts.clusterset ?? ''}", not "${clusterset}"`)
  const untilText = new Date(facts.notAfterMs).toISOString()
  if (facts.notAfterMs <= nowMs) wrong('ca.crt', `it ended at ${untilText}`)
  if (key === undefined) {
    wrong('ca.key', 'it is not there')
    return
  }
  try {
    if (!new X509Certificate(der).checkPrivateKey(keyFromPem(key))) wrong('ca.key', 'it does not belong to ca.crt')
  } catch {
    // What the library says of a key that it cannot read may hold some of it.
    wrong('ca.key', 'it holds no private key in PEM form')
  }
}

function firstCertificate(text: string): Uint8Array | undefined {
  try {
    const der = certificatesFromPem(text)[0]
    if (der === undefined) return undefined
    readCertificate(der)
    return der
  } catch {
    return undefined
  }
}
