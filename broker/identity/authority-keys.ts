/** The keys of authorities that this broker can use, matched to their certificates. */
import { type KeyObject, X509Certificate } from 'node:crypto'
import { type CertificateFacts, type Issuer, fingerprint, readCertificate } from '../../protocol/identity/identity.ts'
import { type KnownAuthority, timeText } from '../store/store.ts'
import { isPair, readGivenAuthorities, readStateAuthorities, writeSecond } from './authority-files.ts'
import type { CommandSigner } from './command-signer.ts'

/** Where the replicas of a store share keys. All methods throw StateError. */
export interface SharedKeys {
  /** Names the place in messages. */
  readonly where: string
  /** Takes DER. Undefined if there is no key. */
  get(certificate: Uint8Array): Promise<KeyObject | undefined>
  /** Takes DER. An existing key is kept. */
  put(certificate: Uint8Array, key: KeyObject): Promise<void>
  /** Removes the key of the authority with this fingerprint. */
  remove(fingerprint: string): Promise<void>
}

export interface AuthorityKeysInit {
  readonly stateDir: string
  readonly givenDir?: string
  readonly signer?: CommandSigner
  /** Absent if no other replica serves the store. */
  readonly shared?: SharedKeys
}

export class AuthorityKeys {
  readonly #init: AuthorityKeysInit
  /** Authorities with usable keys, by fingerprint. */
  readonly #known = new Map<string, Issuer>()

  constructor(init: AuthorityKeysInit) {
    this.#init = init
  }

  get({ fingerprint }: Pick<KnownAuthority, 'fingerprint'>): Issuer | undefined {
    return this.#known.get(fingerprint)
  }

  /**
   * Searches for the keys of those authorities whose keys are not known yet: a Secret may have been added since.
   * Returns itself. Throws StateError for a file or a store that cannot be used.
   */
  async load(wanted: readonly KnownAuthority[]): Promise<this> {
    if (wanted.every((one) => this.#known.has(one.fingerprint))) return this
    const { stateDir } = this.#init
    const found = await readStateAuthorities(stateDir)
    const given = await this.given()
    const inSignersCare = new Set(given.certificates.map(fingerprint))
    for (const one of wanted) {
      if (this.#known.has(one.fingerprint)) continue
      const certificate = certificateOf(one)
      const key = await this.#keyOf(certificate, found.keys, given.keys)
      const issuer = key === undefined ? this.#signerOf(one, inSignersCare) : { certificate, key }
      if (issuer !== undefined) this.#known.set(one.fingerprint, issuer)
    }
    return this
  }

  /** The authorities in the operator's directory. Throws StateError. */
  async given(): ReturnType<typeof readGivenAuthorities> {
    const { givenDir } = this.#init
    return givenDir === undefined ? { certificates: [], keys: [] } : readGivenAuthorities(givenDir)
  }

  /** Searches the shared keys last, and never shares a key from the operator's directory. */
  async #keyOf(
    certificate: Uint8Array,
    own: readonly KeyObject[],
    given: readonly KeyObject[],
  ): Promise<KeyObject | undefined> {
    const { shared, stateDir } = this.#init
    const ofThis = (one: KeyObject): boolean => isPair(certificate, one)
    const known = own.find(ofThis)
    if (known !== undefined) await shared?.put(certificate, known)
    const found = known ?? given.find(ofThis)
    if (found !== undefined || shared === undefined) return found
    const key = await shared.get(certificate)
    if (key !== undefined) await writeSecond(stateDir, certificate, key)
    return key
  }

  #signerOf(authority: KnownAuthority, inItsCare: ReadonlySet<string>): Issuer | undefined {
    const { signer } = this.#init
    if (signer === undefined || !inItsCare.has(authority.fingerprint)) return undefined
    const certificate = certificateOf(authority)
    return { certificate, sign: signer.signFor(certificate) }
  }
}

// Authorities as stored.

/** Takes a certificate in DER. */
export function knownAuthority(certificate: Uint8Array, sinceMs: number): KnownAuthority {
  return { fingerprint: fingerprint(certificate), certificate: Buffer.from(certificate).toString('base64'), sinceMs }
}

/** Returns the certificate in DER. */
export function certificateOf({ certificate }: KnownAuthority): Uint8Array {
  return new Uint8Array(Buffer.from(certificate, 'base64'))
}

export function factsOf(authority: KnownAuthority): CertificateFacts {
  return readCertificate(certificateOf(authority))
}

/** Why this cannot be an authority of the clusterset, as text. Undefined if it can. */
export function certificateProblem(authority: KnownAuthority, clusterset: string, nowMs: number): string | undefined {
  const der = certificateOf(authority)
  const certificate = new X509Certificate(der)
  const facts = readCertificate(der)
  if (!facts.isCa || !certificate.ca) return 'its certificate is not a CA certificate'
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = certificate.publicKey
  if (type !== 'ec' || details?.namedCurve !== 'prime256v1') return 'its key is not ECDSA P-256'
  if (facts.clusterset !== clusterset || facts.cluster !== undefined)
    return `it belongs to clusterset ${JSON.stringify(facts.clusterset ?? '')}; expected a URI name sealane://${clusterset}`
  if (facts.notAfterMs <= nowMs) return `it expired at ${timeText(facts.notAfterMs)}`
  if (facts.notBeforeMs > nowMs) return `it is not valid before ${timeText(facts.notBeforeMs)}`
  return undefined
}
