/**
 * Private keys, ECDSA P-256, and the fingerprints of their public parts. A key lives as KeyObject, which prints as
 * nothing; PEM text only on its way to a file.
 */
import { type KeyObject, createHash, createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'

/** How people compare a public key on two screens: `SHA256:` and base64 without padding, as ssh writes it. */
const FORM = /^(?:SHA256:)?([A-Za-z0-9+/]{43})=?$/

export const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' } as const

export function createKey(): KeyObject {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
}

/** PKCS #8 PEM, for a file of mode 0600. */
export function keyToPem(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' })
}

/** Throws an Error without the text when it is not a P-256 private key in PEM. */
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

/** SHA-256 of a key's public part (SubjectPublicKeyInfo, DER), hex. */
export function publicKeyHash(key: KeyObject): string {
  const publicKey = key.type === 'public' ? key : createPublicKey(key)
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex')
}

/** Takes what publicKeyHash() gives. */
export function keyFingerprint(hash: string): string {
  return `SHA256:${Buffer.from(hash, 'hex').toString('base64').replace(/=+$/, '')}`
}

/** The hash of what a person copied, as publicKeyHash() gives it; undefined: it is no fingerprint. */
export function hashOfFingerprint(text: string): string | undefined {
  const [, base64] = FORM.exec(text.trim()) ?? []
  if (base64 === undefined) return undefined
  const hash = Buffer.from(base64, 'base64')
  // The last character stands for four bits only: another text of the same bytes is a slip of the hand.
  return keyFingerprint(hash.toString('hex')) === `SHA256:${base64}` ? hash.toString('hex') : undefined
}
