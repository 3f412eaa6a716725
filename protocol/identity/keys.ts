/**
 * Private keys (ECDSA P-256) and fingerprints of public keys. A key is held as a KeyObject, which prints nothing of its
 * content. It is PEM text only on its way to a file.
 */
import { type KeyObject, createHash, createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'

/** Form in which users compare public keys: `SHA256:` and base64 without padding, as ssh writes it. */
const FORM = /^(?:SHA256:)?([A-Za-z0-9+/]{43})=?$/

export const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' } as const

export function createKey(): KeyObject {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
}

/** Returns PKCS #8 PEM, for a file of mode 0600. */
export function keyToPem(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' })
}

/** Throws an Error that does not contain the text if it is not a P-256 private key in PEM form. */
export function keyFromPem(pem: string): KeyObject {
  const key = readKey(pem)
  if (key?.asymmetricKeyType !== 'ec' || key.asymmetricKeyDetails?.namedCurve !== 'prime256v1') {
    throw new Error('not a private key in PEM form (ECDSA P-256)')
  }
  return key
}

function readKey(pem: string): KeyObject | undefined {
  try {
    return createPrivateKey({ key: pem, format: 'pem' })
  } catch {
    return undefined
  }
}

/** Returns the SHA-256 of the public key (SubjectPublicKeyInfo in DER), in hexadecimal. */
export function publicKeyHash(key: KeyObject): string {
  const publicKey = key.type === 'public' ? key : createPublicKey(key)
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex')
}

/** Formats a hash of publicKeyHash() for users. */
export function keyFingerprint(hash: string): string {
  return `SHA256:${Buffer.from(hash, 'hex').toString('base64').replace(/=+$/, '')}`
}

/**
 * Parses a fingerprint that a user has copied, and returns the hash as publicKeyHash() does. Undefined if it is none.
 */
export function hashOfFingerprint(text: string): string | undefined {
  const [, base64] = FORM.exec(text.trim()) ?? []
  if (base64 === undefined) return undefined
  const hash = Buffer.from(base64, 'base64')
  // The last character encodes only four bits. Another text for the same bytes is a typing error.
  return keyFingerprint(hash.toString('hex')) === `SHA256:${base64}` ? hash.toString('hex') : undefined
}
