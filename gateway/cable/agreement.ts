/**
 * What two identities agree on (X25519, RFC 7748): a secret that follows from the private part of one and the public
 * part of the other, the same from either side. A relay and the ends of links prove themselves to each other by it
 * (gateway/reach/frames/). It is only ever the input of a key derivation with a label of its own, and WireGuard derives
 * its keys from handshakes with fresh keys, so neither use reveals anything about the other.
 */
import { createPrivateKey, createPublicKey, diffieHellman } from 'node:crypto'

/** A key of 32 octets in base64, with or without the end of a line. */
const KEY = /^[A-Za-z0-9+/]{43}=\n?$/
/** What precedes the 32 octets in PKCS #8 and SubjectPublicKeyInfo (RFC 8410). */
const PKCS8 = Buffer.from('302e020100300506032b656e04220420', 'hex')
const SPKI = Buffer.from('302a300506032b656e032100', 'hex')

/** Gives undefined for an identity with which nothing is agreed. */
export type Agreement = (identity: string) => Buffer | undefined

/**
 * Reads the content of a key file (lane-keys.ts) and returns the function that agrees with other identities. That gives
 * undefined for an identity that is no key, or one with which every key agrees on the same secret. Throws TypeError for
 * a content that is no key; the message does not contain it.
 */
export function agreementOf(privateKey: string): Agreement {
  if (!KEY.test(privateKey)) throw new TypeError('key file: expected 32 octets in base64')
  const der = Buffer.concat([PKCS8, Buffer.from(privateKey, 'base64')])
  const own = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  return (identity) => {
    if (!KEY.test(identity)) return undefined
    const far = Buffer.concat([SPKI, Buffer.from(identity, 'base64')])
    try {
      const secret = diffieHellman({
        privateKey: own,
        publicKey: createPublicKey({ key: far, format: 'der', type: 'spki' }),
      })
      return secret.every((octet) => octet === 0) ? undefined : secret
    } catch {
      // OpenSSL refuses points of small order, with which the secret would be zero.
      return undefined
    }
  }
}
