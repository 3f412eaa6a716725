/** A certificate for the bare TLS server, of the same kind as the broker's. */
import { createKey, keyToPem } from '../../../protocol/identity/keys.ts'
import { certificateToPem } from '../../../protocol/identity/certificates.ts'
import { createCa, createServerCertificate } from '../../../protocol/identity/x509.ts'

export async function newIdentity(): Promise<{ readonly key: string; readonly cert: string }> {
  const nowMs = Date.now()
  const ca = await createCa({ clusterset: 'floor', key: createKey(), nowMs })
  const { certificate, key } = await createServerCertificate(ca, { clusterset: 'floor', key: createKey(), nowMs })
  return { key: keyToPem(key), cert: certificateToPem(certificate) }
}
