/**
 * The identity of a node of a plain site at the hub: a private key that is made here and stays here, and the
 * certificate that the hub gives for it. Files below `node/` in the node's own state folder, mode 0600.
 */
import { X509Certificate, type KeyObject } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { NodeFile } from '../../kubeapi/files/files.ts'
import type { NodeTls } from '../../kubeapi/remote/remote.ts'
import {
  HUB_SERVER_NAME,
  createCsr,
  createKey,
  keyFromPem,
  keyToPem,
  publicKeyHash,
  readNodeCertificate,
} from '../../protocol/identity/identity.ts'
import { UserError, replaceFile } from '../../runtime/runtime.ts'

interface Stored {
  readonly key: KeyObject
  /** PEM; absent before the hub has given one. */
  readonly cert?: string
}

export class NodeIdentity {
  readonly #file: NodeFile
  #stored: Stored

  private constructor(file: NodeFile, stored: Stored) {
    this.#file = file
    this.#stored = stored
  }

  /**
   * Reads the identity, or makes a key. A key that another invitation was used for is replaced. Throws UserError if the
   * state folder cannot be used.
   */
  static async open(file: NodeFile): Promise<NodeIdentity> {
    const folder = join(file.state, 'node')
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const invitation = file.token.split('.')[0] ?? ''
      const known = await readText(join(folder, 'invitation'))
      const pem = known === invitation ? await readText(join(folder, 'node.key')) : undefined
      if (pem !== undefined) {
        const key = keyFromPem(pem)
        const cert = await readText(join(folder, 'node.crt'))
        return new NodeIdentity(file, cert !== undefined && fits(cert, key, file) ? { key, cert } : { key })
      }
      const key = createKey()
      await replaceFile(join(folder, 'node.key'), keyToPem(key))
      await replaceFile(join(folder, 'invitation'), invitation)
      return new NodeIdentity(file, { key })
    } catch (cause) {
      throw new UserError(`${folder}: cannot be used for the key of this node: ${(cause as Error).message}`, { cause })
    }
  }

  get isEnrolled(): boolean {
    return this.#stored.cert !== undefined
  }

  /** Whether the certificate makes it one of several hubs. */
  get isHub(): boolean {
    const { cert } = this.#stored
    return cert !== undefined && readNodeCertificate(new Uint8Array(new X509Certificate(cert).raw))?.isHub === true
  }

  tls(): NodeTls {
    const { key, cert } = this.#stored
    const own = cert === undefined ? undefined : { key: keyToPem(key), cert }
    return { ca: this.#file.certificateAuthority, own, serverName: HUB_SERVER_NAME }
  }

  /** PKCS #10 in base64. */
  async csr(): Promise<string> {
    return Buffer.from(await createCsr(this.#stored.key)).toString('base64')
  }

  /** Stores a certificate in PEM. Throws an Error if it does not belong to this node and key, or the site's authority. */
  async keep(cert: unknown): Promise<void> {
    const { key } = this.#stored
    if (typeof cert !== 'string' || cert.length > 16_384 || !fits(cert, key, this.#file))
      throw new Error('the hub has answered with a certificate that is not for this node')
    await replaceFile(join(this.#file.state, 'node', 'node.crt'), cert)
    this.#stored = { key, cert }
  }

  /** True after two thirds of its lifetime. */
  isRenewalDue(nowMs: number): boolean {
    const { cert } = this.#stored
    if (cert === undefined) return false
    return nowMs >= (readNodeCertificate(new Uint8Array(new X509Certificate(cert).raw))?.renewAtMs ?? Infinity)
  }
}

function fits(pem: string, key: KeyObject, { site, node, certificateAuthority }: NodeFile): boolean {
  try {
    const certificate = new X509Certificate(pem)
    const facts = readNodeCertificate(new Uint8Array(certificate.raw))
    const isOurs = facts?.site === site && facts.node === node && publicKeyHash(facts.key) === publicKeyHash(key)
    return isOurs && certificate.verify(new X509Certificate(certificateAuthority).publicKey)
  } catch {
    return false
  }
}

async function readText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
