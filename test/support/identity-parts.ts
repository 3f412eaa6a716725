/** The files of a member's identity, as issued by an arbitrary broker. */
import { parseClusterId } from '../../model/ids.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { encodeMemberIdentity } from '../../protocol/membership/member-files.ts'
import { createCa, createCsr, issueMemberCertificate } from '../../protocol/identity/x509.ts'

/** The files by name. `nowMs` is when the broker issued the certificate. */
export async function identityParts(
  clusterset = 'demo',
  id = 'paris',
  nowMs = Date.now(),
): Promise<Readonly<Record<string, string>>> {
  const key = createKey()
  const ca = await createCa({ clusterset, key: createKey(), nowMs })
  const cluster = parseClusterId(id)
  const csr = await createCsr(key)
  return encodeMemberIdentity({
    cluster,
    clusterset,
    brokerAddresses: ['192.0.2.1:7443'],
    observedAddress: '192.0.2.2',
    observedCounts: true,
    key,
    certificate: await issueMemberCertificate(ca, { clusterset, cluster, csr, nowMs }),
    caBundle: [ca.certificate],
  })
}
