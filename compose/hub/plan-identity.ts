/** Which of two copies of a part of the identity counts, by what the copies say themselves. */
import { X509Certificate, createPublicKey } from 'node:crypto'
import { certificatesFromPem, keyFromPem } from '../../protocol/identity/identity.ts'

const KEY = 'state/identity/cluster.key'
const CERTIFICATE = 'state/identity/cluster.crt'

/**
 * Whether `content` is a certificate of the same key as `other`, of a later time. Of other files nothing says which one is
 * newer.
 */
export function isNewer(path: string, content: Uint8Array, other: Uint8Array): boolean {
  if (path !== CERTIFICATE) return false
  const [one, two] = [certificateOf(content), certificateOf(other)]
  if (one === undefined || two === undefined || !one.publicKey.equals(two.publicKey)) return false
  return one.validFromDate.getTime() > two.validFromDate.getTime()
}

/**
 * Whether a file that another hub has may take the place of a lost one: a key and a certificate of two joins would be no
 * identity. `good`: the parts that are good here, by their path.
 */
export function canRestore(path: string, content: Uint8Array, good: ReadonlyMap<string, Uint8Array>): boolean {
  const pair = { [KEY]: good.get(KEY), [CERTIFICATE]: good.get(CERTIFICATE), [path]: content }
  if (path !== KEY && path !== CERTIFICATE) return true
  if (pair[KEY] === undefined || pair[CERTIFICATE] === undefined) return true
  try {
    const key = createPublicKey(keyFromPem(Buffer.from(pair[KEY]).toString()))
    return certificateOf(pair[CERTIFICATE])?.publicKey.equals(key) === true
  } catch {
    return false
  }
}

function certificateOf(content: Uint8Array): X509Certificate | undefined {
  try {
    const [first] = certificatesFromPem(Buffer.from(content).toString())
    return first === undefined ? undefined : new X509Certificate(first)
  } catch {
    return undefined
  }
}
