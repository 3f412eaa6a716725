/** A public key as people compare it on two screens: `SHA256:` and base64 without padding, as ssh writes it. */
import { type KeyObject, createHash, createPublicKey } from 'node:crypto'

const FORM = /^(?:SHA256:)?([A-Za-z0-9+/]{43})=?$/

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
