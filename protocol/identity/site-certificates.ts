/**
 * Certificates within one plain site: its nodes call the hub of the site with them (kubeapi/remote/). The authority of a
 * site is separate from that of the clusterset, so that a node of a site is no member, and a member is no node.
 *   CA    sealane-site://<site>
 *   hub   DNS name HUB_SERVER_NAME, for servers only
 *   node  sealane-site://<site>/node/<name of its Node>, for clients only
 *   hub of several, which is a node too: sealane-site://<site>/hub/<name of its Node> and HUB_SERVER_NAME, for both
 */
import './reflect-metadata.ts'
import { type KeyObject, X509Certificate, createPublicKey } from 'node:crypto'
import * as x509 from '@peculiar/x509'
import { isDnsSubdomain } from '../../model/model.ts'
import { CA_VALIDITY_MS, SERVER_VALIDITY_MS } from './certificates.ts'
import { createKey } from './keys.ts'
import { type Identity, SIGNING, cryptoPair, issue, lifetime, newSerial, verifiedCsrKey } from './x509.ts'

/** The name in the certificate of a hub, whatever address it is called at. */
export const HUB_SERVER_NAME = 'hub.sealane.internal'
/** The hub keeps the hash of each node's key and refuses others, so a certificate need not be short-lived. */
const NODE_VALIDITY_MS = 365 * 24 * 3_600_000

const HUB_NAMES = `DNS:${HUB_SERVER_NAME}, `

/** Creates the authority of a site. `site` is the name of the site: an RFC 1123 label. */
export async function createSiteCa(site: string, nowMs: number): Promise<Identity> {
  const key = createKey()
  const keys = cryptoPair(key)
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    name: [{ CN: ['Sealane site CA'] }],
    ...lifetime(nowMs, CA_VALIDITY_MS),
    signingAlgorithm: SIGNING,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      new x509.SubjectAlternativeNameExtension([{ type: 'url', value: `sealane-site://${site}` }]),
    ],
  })
  return { certificate: new Uint8Array(certificate.rawData), key }
}

/** Issues the certificate of a hub, for a new key. It is valid for 90 days. */
export async function createHubCertificate(ca: Identity, nowMs: number): Promise<Identity> {
  const key = createKey()
  const certificate = await issue(ca, {
    publicKey: new x509.PublicKey(new Uint8Array(createPublicKey(key).export({ type: 'spki', format: 'der' }))),
    commonName: HUB_SERVER_NAME,
    usage: x509.ExtendedKeyUsage.serverAuth,
    names: [{ type: 'dns', value: HUB_SERVER_NAME }],
    nowMs,
    validMs: SERVER_VALIDITY_MS,
  })
  return { certificate, key }
}

export interface NodeCertificateInit {
  readonly site: string
  readonly node: string
  /** PKCS #10 in DER. Only its public key is used, and the signature as proof that the sender has the private key. */
  readonly csr: Uint8Array
  readonly nowMs: number
  readonly validMs?: number
  /** Whether the node is one of several hubs. */
  readonly isHub?: boolean
}

/** Issues the certificate (DER) of a node. Throws CsrError. */
export async function issueNodeCertificate(ca: Identity, init: NodeCertificateInit): Promise<Uint8Array> {
  const { site, node, csr, nowMs, validMs = NODE_VALIDITY_MS, isHub = false } = init
  const { clientAuth, serverAuth } = x509.ExtendedKeyUsage
  return issue(ca, {
    publicKey: await verifiedCsrKey(csr),
    // The name of a Node may be longer than a common name (RFC 5280 appendix A.1: 64 characters).
    commonName: 'Sealane site node',
    usage: isHub ? [clientAuth, serverAuth] : clientAuth,
    names: [
      ...(isHub ? [{ type: 'dns' as const, value: HUB_SERVER_NAME }] : []),
      { type: 'url', value: `sealane-site://${site}/${isHub ? 'hub' : 'node'}/${node}` },
    ],
    nowMs,
    validMs,
  })
}

export interface NodeCertificateFacts {
  readonly site: string
  readonly node: string
  readonly isHub: boolean
  /** Its public key. */
  readonly key: KeyObject
  readonly notAfterMs: number
  /** After two thirds of the lifetime. */
  readonly renewAtMs: number
}

/**
 * Takes DER. Undefined if it is not the certificate of exactly one node. It does not check who issued the certificate;
 * TLS does.
 */
export function readNodeCertificate(der: Uint8Array): NodeCertificateFacts | undefined {
  try {
    if (der[0] !== 0x30) return undefined
    const certificate = new X509Certificate(der)
    const names = certificate.subjectAltName ?? ''
    const isHub = names.startsWith(HUB_NAMES)
    const match = /^URI:sealane-site:\/\/([^/,"\s]+)\/(node|hub)\/([^/,"\s]+)$/.exec(
      isHub ? names.slice(HUB_NAMES.length) : names,
    )
    const [, site = '', role, node = ''] = match ?? []
    if (role !== (isHub ? 'hub' : 'node')) return undefined
    if (certificate.ca || !isDnsSubdomain(site) || !isDnsSubdomain(node)) return undefined
    const notBeforeMs = certificate.validFromDate.getTime()
    const notAfterMs = certificate.validToDate.getTime()
    const renewAtMs = notAfterMs - Math.floor((notAfterMs - notBeforeMs) / 3)
    return { site, node, isHub, key: certificate.publicKey, notAfterMs, renewAtMs }
  } catch {
    return undefined
  }
}
