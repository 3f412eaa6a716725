/** X25519 keys in WireGuard's base64 form (RFC 7748; wg genkey and wg pubkey give the same). */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import { KernelError } from '../errors.ts'

// The fixed head of a PKCS #8 X25519 key (RFC 8410); the 32 key bytes follow.
const PKCS8_HEAD = Buffer.from('302e020100300506032b656e04220420', 'hex')
const KEY_BYTES = 32

export function generateWireguardKey(): { readonly privateKey: string; readonly publicKey: string } {
  const pair = generateKeyPairSync('x25519')
  const secret = pair.privateKey.export({ type: 'pkcs8', format: 'der' }).subarray(-KEY_BYTES)
  const open = pair.publicKey.export({ type: 'spki', format: 'der' }).subarray(-KEY_BYTES)
  return { privateKey: clamp(secret).toString('base64'), publicKey: open.toString('base64') }
}

/** Throws KernelError EINVAL, without the key, when the text is not 32 bytes in base64. */
export function publicKeyOf(privateKey: string): string {
  const bytes = Buffer.from(privateKey.trim(), 'base64')
  if (bytes.length !== KEY_BYTES)
    throw new KernelError('EINVAL', 'wg pubkey', 'the private key is not 32 bytes in base64')
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_HEAD, bytes]), format: 'der', type: 'pkcs8' })
  return createPublicKey(key).export({ type: 'spki', format: 'der' }).subarray(-KEY_BYTES).toString('base64')
}

// The form that wg itself stores and prints (RFC 7748 section 5); the public key is the same either way.
function clamp(secret: Buffer): Buffer {
  const bytes = Buffer.from(secret)
  bytes.writeUInt8((bytes[0] ?? 0) & 248, 0)
  bytes.writeUInt8(((bytes[31] ?? 0) & 127) | 64, 31)
  return bytes
}
