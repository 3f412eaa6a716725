/** Private keys, ECDSA P-256. They live as KeyObject, which prints as nothing; PEM text only on its way to a file. */
import { type KeyObject, createPrivateKey, generateKeyPairSync } from 'node:crypto'

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
