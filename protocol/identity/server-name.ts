/**
 * What a client calls the broker by when it begins TLS, and what the broker's certificate is for. A broker that serves
 * several clustersets shows each caller the certificate of its own: the name has the authority that the caller trusts.
 * It is a choice, and proves nothing: who calls is what its certificate or its token says to that clusterset alone.
 */
import { type PeerCertificate, checkServerIdentity } from 'node:tls'
import { SERVER_NAME } from './certificate-terms.ts'

/** So much of a fingerprint as nobody finds by trying. */
const HEX_DIGITS = 32

/** Takes fingerprint() of a certificate of the authority; undefined: whatever broker is there. */
export function serverNameOf(authority: string | undefined): string {
  return authority === undefined ? SERVER_NAME : `${authority.slice(0, HEX_DIGITS)}.${SERVER_NAME}`
}

/** The certificate says the same name whatever the broker was called by: brokers of earlier releases know no other. */
export function checkBrokerName(certificate: PeerCertificate): Error | undefined {
  return checkServerIdentity(SERVER_NAME, certificate)
}
