/**
 * The certificate authority of the clusterset, which signs the certificates of members and the broker's own server
 * certificate. The store determines which authority is in use, or which two are during a rotation (rotation.ts). The
 * keys are in the state directory, in a directory of the operator, or behind a signing command. They never leave the
 * broker, except that the replicas of a store share them.
 */
import { type KeyObject, X509Certificate, createHash } from 'node:crypto'
import { isIP } from 'node:net'
import { join } from 'node:path'
import type { ClusterId } from '../../model/model.ts'
import { BrokerUnreachableError, RefusedError } from '../../protocol/protocol.ts'
import {
  BACKDATE_MS,
  CsrError,
  type Identity,
  type Issuer,
  certificateToPem,
  certificatesFromPem,
  createCa,
  createServerCertificate,
  fingerprint,
  issueMemberCertificate,
  readCertificate,
} from '../../protocol/identity/identity.ts'
import type { ServerTls } from '../../protocol/transport/transport.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import {
  AUTHORITY_KEY,
  type AuthorityRow,
  type HandedOut,
  type KnownAuthority,
  type LogView,
  type RecordLog,
  StateError,
  makeStateDir,
  readIfThere,
  writeSafely,
} from '../store/store.ts'
import { CA_CERTIFICATE, CA_KEY, caFromPem, isPair, openKey, readKey, settleFiles } from './authority-files.ts'
import { AuthorityKeys, type SharedKeys, certificateOf, certificateProblem, knownAuthority } from './authority-keys.ts'
import type { CommandSigner } from './command-signer.ts'
import { acceptedAuthorities, bundleOf, signingAuthority } from './plan-rotation.ts'
import { normalSerial } from './succession.ts'

export interface CertificateAuthorityDeps {
  readonly clock: Clock
  readonly log: RecordLog
}

export interface CertificateAuthorityInit {
  readonly stateDir: string
  readonly clusterset: string
  /** Host names and addresses for the server certificate. */
  readonly hosts: readonly string[]
  /** Lifetime of member certificates. */
  readonly memberMs: number
  /** Directory of the operator with certificates and keys of authorities. */
  readonly givenDir?: string
  /** Signs for certificates in `givenDir` that have no key beside them. */
  readonly signer?: CommandSigner
  /** Where the replicas of the store share keys. Absent if no other replica serves it. */
  readonly shared?: SharedKeys
}

export interface IssuedMember {
  /** The certificate in DER. */
  readonly certificate: Uint8Array
  readonly serial: string
  readonly issuedAtMs: number
  readonly expiresAtMs: number
  /** SHA-256 of the public key, hex. */
  readonly keyHash: string
  /** Fingerprint of the authority that signed it. */
  readonly authority: string
}

export class CertificateAuthority {
  readonly #deps: CertificateAuthorityDeps
  readonly #init: CertificateAuthorityInit
  readonly #keys: AuthorityKeys
  #server: Identity
  /** Server certificates that were issued in advance, by fingerprint of the authority. */
  readonly #prepared = new Map<string, Uint8Array>()
  /** The result of tls() at the last call of hasChanged(). */
  #shown = ''

  private constructor(
    deps: CertificateAuthorityDeps,
    init: CertificateAuthorityInit,
    keys: AuthorityKeys,
    server: KeyObject,
  ) {
    this.#deps = deps
    this.#init = init
    this.#keys = keys
    this.#server = { certificate: new Uint8Array(), key: server }
  }

  /**
   * Reads the authority, or creates it at the first start. Throws StateError naming the file, and
   * BrokerUnreachableError if there is no server certificate yet and the key cannot be used now.
   */
  static async open(deps: CertificateAuthorityDeps, init: CertificateAuthorityInit): Promise<CertificateAuthority> {
    await makeStateDir(init.stateDir)
    const keys = new AuthorityKeys(init)
    await firstAuthority(deps, init, keys)
    const key = await openKey(join(init.stateDir, 'server.key'))
    const authority = new CertificateAuthority(deps, init, keys, key)
    await authority.#loadServer()
    authority.hasChanged()
    return authority
  }

  /** The row as stored now. */
  get row(): AuthorityRow {
    return rowOf(this.#deps.log)
  }
  /** The certificate of the signing authority in DER. */
  get caCertificate(): Uint8Array {
    return certificateOf(signingAuthority(this.row))
  }
  /** The pin that join tokens name first. */
  get pin(): string {
    return signingAuthority(this.row).fingerprint
  }
  get server(): Identity {
    return this.#server
  }

  /** For the port: the authorities whose certificates are accepted, and those that a refusal reports as removed. */
  tls(): ServerTls {
    const { row } = this
    const accepted = acceptedAuthorities(row).map(certificateOf)
    // The authority that signed the server certificate comes first, because the port sends it along.
    const signed = new X509Certificate(this.#server.certificate)
    const first = accepted.filter((der) => signed.verify(new X509Certificate(der).publicKey))
    return {
      ...this.#server,
      ca: [...first, ...accepted.filter((der) => !first.includes(der))],
      removed: row.removed.map(certificateOf),
      clusterset: this.#init.clusterset,
    }
  }

  /**
   * What is sent with an issued certificate, according to the row in this transaction: the DER bundle, and the note for
   * the member's row. Throws BrokerUnreachableError if the issuing authority was removed in the meantime: a repeated
   * request gets another certificate.
   */
  handOut(
    view: LogView,
    { serial, expiresAtMs, authority }: Pick<IssuedMember, 'serial' | 'expiresAtMs' | 'authority'>,
  ): { readonly handedOut: HandedOut; readonly caBundle: readonly Uint8Array[] } {
    const row = rowOf(view)
    if (!acceptedAuthorities(row).some((one) => one.fingerprint === authority)) {
      throw new BrokerUnreachableError('the certificate authority changed during the request', {
        reason: 'AuthorityChanged',
      })
    }
    const bundle = bundleOf(row)
    return {
      handedOut: { serial, expiresAtMs, authority, bundle: bundle.map(({ fingerprint }) => fingerprint) },
      caBundle: bundle.map(certificateOf),
    }
  }

  /**
   * Issues a certificate for a cluster. `renews` is the serial of the certificate that the member showed. Throws
   * RefusedError (field `csr`) for an invalid request, and BrokerUnreachableError if the key cannot be used now.
   */
  async issue(cluster: ClusterId, csr: Uint8Array, renews?: string): Promise<IssuedMember> {
    const { clusterset, memberMs } = this.#init
    const signing = signingAuthority(this.row)
    const issuer = await this.#issuer(signing)
    try {
      const certificate = await issueMemberCertificate(issuer, {
        clusterset,
        cluster,
        csr,
        nowMs: this.#deps.clock.now(),
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
        authority: signing.fingerprint,
      }
    } catch (error) {
      if (error instanceof CsrError) throw new RefusedError('InvalidValue', 'csr', error.message)
      throw error
    }
  }

  /**
   * Renews the server certificate after two thirds of its lifetime, when another authority signs, and when it lacks one
   * of the host names. Returns true if there is a new one. Throws BrokerUnreachableError if the key cannot be used now:
   * the previous certificate stays in use.
   */
  async renewServer(): Promise<boolean> {
    const signing = signingAuthority(this.row)
    if (this.#isServerGood(this.#server.certificate, signing)) return false
    const certificate = this.#prepared.get(signing.fingerprint) ?? (await this.#makeServer(signing))
    this.#prepared.delete(signing.fingerprint)
    this.#server = { ...this.#server, certificate }
    await writeSafely(join(this.#init.stateDir, 'server.crt'), certificateToPem(certificate))
    return true
  }

  /**
   * Applies what is stored: loads keys, serves by the signing authority, and makes the files match. Throws
   * BrokerUnreachableError if the key cannot be used now, and StateError for a file or the store.
   */
  async refresh(): Promise<void> {
    const { row } = this
    await this.#keys.load(acceptedAuthorities(row))
    await this.renewServer()
    const removed = row.removed.map((one) => one.fingerprint)
    await settleFiles(this.#init.stateDir, { current: certificateOf(row.current), removed })
    for (const one of removed) await this.#init.shared?.remove(one)
  }

  /** Whether the result of tls() has changed since the last call. */
  hasChanged(): boolean {
    const { ca, removed = [], certificate } = this.tls()
    const shown = [[certificate], ca, removed].map((some) => some.map((der) => fingerprint(der)).join()).join('/')
    if (shown === this.#shown) return false
    this.#shown = shown
    return true
  }

  /**
   * Issues the server certificate of this authority in advance, so that it is known to work before members rely on it.
   * Throws BrokerUnreachableError if the key of this authority cannot be used now.
   */
  async prepare(authority: KnownAuthority): Promise<void> {
    const known = this.#prepared.get(authority.fingerprint)
    if (known !== undefined && this.#isServerGood(known, authority)) return
    this.#prepared.set(authority.fingerprint, await this.#makeServer(authority))
  }

  async #makeServer(authority: KnownAuthority): Promise<Uint8Array> {
    const { clusterset, hosts } = this.#init
    const issuer = await this.#issuer(authority)
    const init = { clusterset, key: this.#server.key, hosts, nowMs: this.#deps.clock.now() }
    return (await createServerCertificate(issuer, init)).certificate
  }

  async #issuer(authority: KnownAuthority): Promise<Issuer> {
    const known = this.#keys.get(authority) ?? (await this.#keys.load([authority])).get(authority)
    if (known !== undefined) return known
    const message = `this broker has no key of authority ${authority.fingerprint.slice(0, 16)}, and cannot sign with it`
    throw new BrokerUnreachableError(message, { reason: 'AuthorityKeyMissing' })
  }

  /** A server certificate that cannot be read is issued again: members trust the CA, not the certificate. */
  async #loadServer(): Promise<void> {
    const text = await readIfThere(join(this.#init.stateDir, 'server.crt'))
    try {
      const certificate = certificatesFromPem(text ?? '')[0]
      if (certificate !== undefined) this.#server = { ...this.#server, certificate }
    } catch {
      // An unreadable certificate counts as missing.
    }
    try {
      await this.renewServer()
    } catch (error) {
      // A broker whose certificate is still valid serves even if its signer fails.
      const accepted = acceptedAuthorities(this.row)
      if (!accepted.some((one) => this.#isServedBy(this.#server.certificate, one))) throw error
    }
  }

  #isServerGood(der: Uint8Array, authority: KnownAuthority): boolean {
    if (!this.#isServedBy(der, authority)) return false
    const certificate = new X509Certificate(der)
    const named = this.#init.hosts.every(
      (host) => (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined,
    )
    return named && this.#deps.clock.now() < readCertificate(der).renewAtMs
  }

  /** Whether the certificate is valid now, was signed by this authority, and belongs to the server key. */
  #isServedBy(der: Uint8Array, authority: KnownAuthority): boolean {
    if (der.length === 0) return false
    const certificate = new X509Certificate(der)
    const ca = new X509Certificate(certificateOf(authority))
    const { notBeforeMs, notAfterMs } = readCertificate(der)
    const nowMs = this.#deps.clock.now()
    const holds = notBeforeMs <= nowMs && nowMs < notAfterMs
    return holds && certificate.verify(ca.publicKey) && certificate.checkPrivateKey(this.#server.key)
  }
}

function rowOf(view: LogView): AuthorityRow {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row === undefined)
    throw new Error('the row of the authority is missing: opening the authority should have written it')
  return row
}

function publicKeyHash(certificate: Uint8Array): string {
  const key = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha256').update(key).digest('hex')
}

// The authority of a clusterset when its broker starts: that of the store. If the store has none, it is the one in the
// state directory, where earlier releases keep it, or that of the operator's directory, or a new one.

interface Deps {
  readonly clock: Clock
  readonly log: RecordLog
}

interface Init {
  readonly stateDir: string
  readonly clusterset: string
  readonly givenDir?: string
  readonly shared?: SharedKeys
}

/** Throws StateError naming the file if there is no authority that can be used. */
async function firstAuthority(deps: Deps, init: Init, keys: AuthorityKeys): Promise<AuthorityRow> {
  const { clock, log } = deps
  const stored = log.get('authority', AUTHORITY_KEY)
  const own = init.shared === undefined ? undefined : await ownAuthority(init.stateDir)
  if (stored !== undefined) refuseOther(own, stored, init)
  const current = stored?.current ?? knownAuthority(await found(deps, init, keys), clock.now())
  // Shares the key before the authority is written to the store, where other replicas see it.
  await check(current, init, { keys, nowMs: clock.now() })
  const row = await log.transact((tx) => {
    // Another replica may have written the row first.
    const row = tx.get('authority', AUTHORITY_KEY)
    if (row !== undefined) return row
    const made = { current, removed: [] }
    tx.put('authority', AUTHORITY_KEY, made)
    return made
  })
  refuseOther(own, row, init)
  if (row.current.fingerprint !== current.fingerprint) {
    // Another replica was first. Only an authority that was just created is removed.
    await init.shared?.remove(current.fingerprint)
    await check(row.current, init, { keys, nowMs: clock.now() })
  }
  if (init.shared !== undefined) await settleFiles(init.stateDir, { current: certificateOf(row.current), removed: [] })
  return row
}

/** Fingerprint of the authority in the state directory. */
async function ownAuthority(stateDir: string): Promise<string | undefined> {
  const file = join(stateDir, CA_CERTIFICATE)
  const text = await readIfThere(file)
  return text === undefined ? undefined : fingerprint(caFromPem(file, text))
}

/** Throws StateError if the directory belongs to another clusterset, whose key would be overwritten. */
function refuseOther(
  own: string | undefined,
  { current, next, removed }: AuthorityRow,
  { stateDir, shared }: Init,
): void {
  const known = [current, ...(next === undefined ? [] : [next]), ...removed]
  if (own === undefined || known.some((one) => one.fingerprint === own)) return
  const file = join(stateDir, CA_CERTIFICATE)
  const text = `${file} is not the certificate authority of ${shared?.where}: choose an empty state directory, or another prefix`
  throw new StateError('Foreign', file, text)
}

/** Finds or creates the first authority of the clusterset. Returns its certificate in DER. */
async function found({ clock }: Deps, init: Init, keys: AuthorityKeys): Promise<Uint8Array> {
  const { stateDir, clusterset, givenDir } = init
  const file = join(stateDir, CA_CERTIFICATE)
  const text = await readIfThere(file)
  if (text !== undefined) return caFromPem(file, text)
  const { certificates } = await keys.given()
  const [certificate, ...others] = certificates
  if (certificate === undefined) {
    // A key without a certificate is left by an interrupted first start.
    const key = await openKey(join(stateDir, CA_KEY))
    const made = await createCa({ clusterset, key, nowMs: clock.now() })
    await writeSafely(file, certificateToPem(made.certificate))
    return made.certificate
  }
  if (others.length > 0) {
    const message = `${givenDir} has ${certificates.length} certificates: expected exactly one CA certificate at the first start`
    throw new StateError('Failed', givenDir ?? '', message)
  }
  const problem = certificateProblem(knownAuthority(certificate, 0), clusterset, clock.now())
  if (problem === undefined) return certificate
  throw new StateError(
    'Failed',
    givenDir ?? '',
    `${givenDir}: its certificate cannot be used as the authority: ${problem}`,
  )
}

async function check(
  current: KnownAuthority,
  init: Init,
  { keys, nowMs }: { readonly keys: AuthorityKeys; readonly nowMs: number },
): Promise<void> {
  const { stateDir, clusterset } = init
  const file = join(stateDir, CA_CERTIFICATE)
  const certificate = certificateOf(current)
  if ((await keys.load([current])).get(current) === undefined) await refuseWithoutKey(certificate, init)
  const facts = readCertificate(certificate)
  if (facts.clusterset !== clusterset) {
    throw new StateError(
      'Failed',
      file,
      `${file} belongs to clusterset "${facts.clusterset ?? ''}", not "${clusterset}": a clusterset cannot be renamed`,
    )
  }
  if (facts.notAfterMs > nowMs) return
  const at = new Date(facts.notAfterMs).toISOString()
  throw new StateError('Failed', file, `${file} expired at ${at}: check this machine's clock`)
}

async function refuseWithoutKey(certificate: Uint8Array, { stateDir, givenDir, shared }: Init): Promise<never> {
  const [file, keyFile] = [join(stateDir, CA_CERTIFICATE), join(stateDir, CA_KEY)]
  const text = await readIfThere(file)
  const key = await readKey(keyFile)
  if (text !== undefined && key === undefined) {
    const message = `${keyFile} is missing, although ${file} exists: restore the key from a backup`
    throw new StateError('Failed', keyFile, message)
  }
  if (text !== undefined && key !== undefined && !isPair(caFromPem(file, text), key)) {
    const message = `${keyFile} does not belong to ${file}: restore both from one backup`
    throw new StateError('Failed', keyFile, message)
  }
  const others = [givenDir, shared?.where].flatMap((one) => (one === undefined ? [] : [`, nor in ${one}`]))
  const short = knownAuthority(certificate, 0).fingerprint.slice(0, 16)
  const message = `the key of authority ${short} of this clusterset is not in ${stateDir}${others.join('')}: restore it`
  throw new StateError('Failed', keyFile, message)
}
