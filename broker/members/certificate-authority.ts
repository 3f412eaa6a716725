/**
 * The clusterset's certificate authority, in the state directory: ca.key and server.key (mode 0600), ca.crt,
 * server.crt. The CA's key signs members and the broker's own server certificate; it never leaves this folder.
 */
import { type KeyObject, X509Certificate, createHash, createPublicKey } from 'node:crypto'
import { mkdir, open, readFile, rename, stat } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'
import type { ClusterId } from '../../model/ids.ts'
import { RefusedError } from '../../protocol/broker-api.ts'
import { BACKDATE_MS } from '../../protocol/identity/certificate-terms.ts'
import { createKey, keyFromPem, keyToPem } from '../../protocol/identity/keys.ts'
import { certificateToPem, certificatesFromPem, fingerprint } from '../../protocol/identity/pem.ts'
import { readCertificate } from '../../protocol/identity/read-certificate.ts'
import {
  CsrError,
  type Identity,
  createCa,
  createServerCertificate,
  issueMemberCertificate,
} from '../../protocol/identity/x509.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { StateError } from '../log/record-log.ts'
import { normalSerial } from './succession.ts'

export interface CertificateAuthorityDeps {
  readonly clock: Clock
}

export interface CertificateAuthorityInit {
  readonly stateDir: string
  readonly clusterset: string
  /** Host names and addresses for the server certificate. */
  readonly hosts: readonly string[]
  /** Lifetime of member certificates. */
  readonly memberMs: number
}

export interface IssuedMember {
  /** DER. */
  readonly certificate: Uint8Array
  readonly serial: string
  readonly issuedAtMs: number
  readonly expiresAtMs: number
  /** SHA-256 of the public key, hex. */
  readonly keyHash: string
}

export class CertificateAuthority {
  readonly #clock: Clock
  readonly #init: CertificateAuthorityInit
  readonly #ca: Identity
  #server: Identity

  private constructor(clock: Clock, init: CertificateAuthorityInit, ca: Identity, server: Identity) {
    this.#clock = clock
    this.#init = init
    this.#ca = ca
    this.#server = server
  }

  /** Reads the CA, or makes it at the first start. Throws StateError naming the file. */
  static async open(deps: CertificateAuthorityDeps, init: CertificateAuthorityInit): Promise<CertificateAuthority> {
    await makeStateDir(init.stateDir)
    const ca = await openCa(deps.clock, init)
    const key = await openKey(join(init.stateDir, 'server.key'))
    const authority = new CertificateAuthority(deps.clock, init, ca, { certificate: new Uint8Array(), key })
    await authority.#loadServer()
    return authority
  }

  /** DER. */
  get caCertificate(): Uint8Array {
    return this.#ca.certificate
  }
  /** What join tokens pin. */
  get pin(): string {
    return fingerprint(this.#ca.certificate)
  }
  get server(): Identity {
    return this.#server
  }

  /**
   * A certificate for one cluster; `renews` is the serial of the one that was shown for it. Throws RefusedError, field
   * `csr`, when the request is not in order.
   */
  async issue(cluster: ClusterId, csr: Uint8Array, renews?: string): Promise<IssuedMember> {
    const { clusterset, memberMs } = this.#init
    try {
      const nowMs = this.#clock.now()
      const certificate = await issueMemberCertificate(this.#ca, {
        clusterset,
        cluster,
        csr,
        nowMs,
        validMs: memberMs,
        ...(renews === undefined ? {} : { renews }),
      })
      const { serial, notBeforeMs, notAfterMs } = readCertificate(certificate)
      return {
        certificate,
        serial: normalSerial(serial),
        issuedAtMs: notBeforeMs + BACKDATE_MS,
        expiresAtMs: notAfterMs,
        keyHash: publicKeyHash(certificate),
      }
    } catch (error) {
      if (error instanceof CsrError) throw new RefusedError('InvalidValue', 'csr', error.message)
      throw error
    }
  }

  /** Renews the server certificate when two thirds of its life are over. True when there is a new one. */
  async renewServer(): Promise<boolean> {
    if (this.#isServerGood(this.#server.certificate)) return false
    const { clusterset, hosts, stateDir } = this.#init
    const nowMs = this.#clock.now()
    this.#server = await createServerCertificate(this.#ca, { clusterset, key: this.#server.key, hosts, nowMs })
    await writeSafely(join(stateDir, 'server.crt'), certificateToPem(this.#server.certificate))
    return true
  }

  /** A server certificate that cannot be read is only made again: members trust the CA, not it. */
  async #loadServer(): Promise<void> {
    const text = await readIfThere(join(this.#init.stateDir, 'server.crt'))
    try {
      const certificate = certificatesFromPem(text ?? '')[0]
      if (certificate !== undefined) this.#server = { ...this.#server, certificate }
    } catch {
      // As above.
    }
    await this.renewServer()
  }

  #isServerGood(der: Uint8Array): boolean {
    if (der.length === 0) return false
    const certificate = new X509Certificate(der)
    const ours = certificate.verify(createPublicKey(this.#ca.key)) && certificate.checkPrivateKey(this.#server.key)
    const named = this.#init.hosts.every(
      (host) => (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined,
    )
    const facts = readCertificate(der)
    const now = this.#clock.now()
    return ours && named && facts.notBeforeMs <= now && now < facts.renewAtMs
  }
}

/**
 * Makes the directory with mode 0700. One that is there already keeps its mode: it may serve others too, and each of
 * our files in it is private by itself. Throws StateError.
 */
export async function makeStateDir(stateDir: string): Promise<void> {
  await onFile(stateDir, 'cannot be made', () => mkdir(stateDir, { recursive: true, mode: 0o700 }))
}

async function openCa(clock: Clock, init: CertificateAuthorityInit): Promise<Identity> {
  const certificateFile = join(init.stateDir, 'ca.crt')
  const keyFile = join(init.stateDir, 'ca.key')
  const text = await readIfThere(certificateFile)
  if (text === undefined) {
    // A key without certificate is a first start that was interrupted.
    const ca = await createCa({ clusterset: init.clusterset, key: await openKey(keyFile), nowMs: clock.now() })
    await writeSafely(certificateFile, certificateToPem(ca.certificate))
    return ca
  }
  const certificate = readCa(certificateFile, text)
  if ((await readIfThere(keyFile)) === undefined) {
    throw new StateError(
      'Failed',
      keyFile,
      `${keyFile} is missing, but ${certificateFile} is there: restore the key from a backup`,
    )
  }
  const key = await openKey(keyFile)
  const facts = readCertificate(certificate)
  if (!new X509Certificate(certificate).checkPrivateKey(key)) {
    throw new StateError(
      'Failed',
      keyFile,
      `${keyFile} does not belong to ${certificateFile}: restore both from one backup`,
    )
  }
  if (facts.clusterset !== init.clusterset) {
    throw new StateError(
      'Failed',
      certificateFile,
      `${certificateFile} belongs to clusterset "${facts.clusterset ?? ''}", not "${init.clusterset}": a clusterset cannot be renamed`,
    )
  }
  if (facts.notAfterMs <= clock.now()) {
    throw new StateError(
      'Failed',
      certificateFile,
      `${certificateFile} expired at ${new Date(facts.notAfterMs).toISOString()}: check this machine's clock`,
    )
  }
  return { certificate, key }
}

function readCa(file: string, text: string): Uint8Array {
  try {
    const certificate = certificatesFromPem(text)[0]
    if (certificate !== undefined && readCertificate(certificate).isCa) return certificate
  } catch {
    // Said below.
  }
  throw new StateError('Damaged', file, `${file} is damaged (no CA certificate in PEM form): restore it from a backup`)
}

/** Reads a private key, or makes one. A key that others could have read is no secret any more. */
async function openKey(file: string): Promise<KeyObject> {
  const text = await readIfThere(file)
  if (text === undefined) {
    const key = createKey()
    await writeSafely(file, keyToPem(key))
    return key
  }
  const { mode } = await onFile(file, 'cannot be read', () => stat(file))
  if ((mode & 0o077) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0')
    throw new StateError(
      'Failed',
      file,
      `${file} can be read by others (mode ${octal}): make it mode 0600, and replace it if others had access`,
    )
  }
  try {
    return keyFromPem(text)
  } catch {
    throw new StateError('Damaged', file, `${file} is damaged (no private key in PEM form): restore it from a backup`)
  }
}

function publicKeyHash(certificate: Uint8Array): string {
  const key = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha256').update(key).digest('hex')
}

async function readIfThere(file: string): Promise<string | undefined> {
  return onFile(file, 'cannot be read', async () => {
    try {
      return await readFile(file, 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
  })
}

/** A crash leaves the old file or the new one; mode 0600. Throws StateError. */
export async function writeSafely(file: string, text: string): Promise<void> {
  await onFile(file, 'cannot be written', async () => {
    const handle = await open(`${file}.new`, 'w', 0o600)
    try {
      await handle.chmod(0o600)
      await handle.writeFile(text)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(`${file}.new`, file)
  })
}

async function onFile<T>(file: string, what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const reason = messageOf(error)
    throw new StateError(
      'Unwritable',
      file,
      `${file} ${what} (${reason}): check the directory and its permissions`,
      error,
    )
  }
}
