/** The fingerprint of a key, as two people compare it. */
import { createHash, createPublicKey } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { hashOfFingerprint, keyFingerprint, publicKeyHash } from '../../protocol/identity/keys.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { createCsr, csrKeyHash } from '../../protocol/identity/x509.ts'

const HASH = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex'))

t.test('a key, its public part and its request have one hash', async (t) => {
  const key = createKey()
  const hash = publicKeyHash(key)
  t.match(hash, /^[0-9a-f]{64}$/)
  const publicKey = createPublicKey(key)
  t.equal(publicKeyHash(publicKey), hash)
  const der = publicKey.export({ type: 'spki', format: 'der' })
  const expected = createHash('sha256').update(der).digest('base64').replace('=', '')
  t.equal(keyFingerprint(hash), `SHA256:${expected}`)
  t.equal(await csrKeyHash(await createCsr(key)), hash)
  t.not(publicKeyHash(createKey()), hash)
  await t.rejects(csrKeyHash(Buffer.from('none')), { message: 'certificate request: not PKCS #10 in DER form' })
})

t.test('what is printed is read, with and without its head; one bit more or less is another', (t) => {
  fc.assert(
    fc.property(HASH, (hash) => {
      const text = keyFingerprint(hash)
      return (
        hashOfFingerprint(text) === hash &&
        hashOfFingerprint(`  ${text.slice('SHA256:'.length)}=\n`) === hash &&
        hashOfFingerprint(`${text}A`) === undefined &&
        hashOfFingerprint(text.slice(0, -1)) === undefined
      )
    }),
  )
  fc.assert(fc.property(fc.string(), (text) => hashOfFingerprint(text) === undefined || text.trim().length >= 43))
  t.equal(hashOfFingerprint(`SHA256:${'A'.repeat(42)}B`), undefined, 'bits that are none')
  t.equal(hashOfFingerprint(`MD5:${'A'.repeat(43)}`), undefined)
  t.end()
})
