/** Whether this member has the authorities that the broker says. Pure. */
import { X509Certificate } from 'node:crypto'
import type { Authorities } from '../../../protocol/broker-api.ts'
import type { MemberIdentity } from '../../../protocol/identity/member-files.ts'
import { fingerprint } from '../../../protocol/identity/pem.ts'

/** True where it trusts others, or its certificate is not of the one that signs now: then it is to be renewed. */
export function isBehind(
  { caBundle, certificate }: Pick<MemberIdentity, 'caBundle' | 'certificate'>,
  { bundle, signing }: Authorities,
): boolean {
  const own = caBundle.map((der) => fingerprint(der))
  const isSame = own.length === bundle.length && bundle.every((one) => own.includes(one))
  const signer = caBundle[own.indexOf(signing)]
  return !isSame || signer === undefined || !isSignedBy(certificate, signer)
}

function isSignedBy(certificate: Uint8Array, authority: Uint8Array): boolean {
  return new X509Certificate(certificate).verify(new X509Certificate(authority).publicKey)
}
