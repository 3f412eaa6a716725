/**
 * Files of the certificate authority. The state directory has `ca.key` and `ca.crt`, and during a rotation a second
 * pair that is named by its fingerprint. A directory of the operator may have any certificates and keys.
 */
import { type KeyObject, X509Certificate } from 'node:crypto'
import { readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import {
  certificateToPem,
  certificatesFromPem,
  createKey,
  fingerprint,
  keyFromPem,
  keyToPem,
  readCertificate,
} from '../../protocol/identity/identity.ts'
import { StateError, attempt, readIfThere, writeSafely } from '../store/store.ts'

export const CA_CERTIFICATE = 'ca.crt'
export const CA_KEY = 'ca.key'
/** Files of a second authority: `ca.<fingerprint>.crt` and `.key`. */
const SECOND = /^ca\.[0-9a-f]{64}\.(?:crt|key)$/
/** Whether a file of this name belongs to an authority in a state directory, and so to its backup. */
export function isAuthorityFile(name: string): boolean {
  return name === CA_CERTIFICATE || name === CA_KEY || SECOND.test(name)
}

/** Limit of certificates and keys in a directory of the operator. */
const MAX_FILES = 64

/** The first certificate of the file, as DER. Throws StateError if it is not a CA certificate. */
export function caFromPem(file: string, text: string): Uint8Array {
  try {
    const certificate = certificatesFromPem(text)[0]
    if (certificate !== undefined && readCertificate(certificate).isCa) return certificate
  } catch {
    // The error below covers this case.
  }
  throw new StateError('Damaged', file, `${file} is damaged (no CA certificate in PEM form): restore it from a backup`)
}

/** Reads a private key of the state directory, or creates it. Throws StateError. */
export async function openKey(file: string): Promise<KeyObject> {
  const found = await readKey(file)
  if (found !== undefined) return found
  const key = createKey()
  await writeSafely(file, keyToPem(key))
  return key
}

/**
 * Undefined if there is no such file. Throws StateError for a key that other users can read: it is no longer secret.
 * `given`: the file may be from a Secret that a kubelet mounts. Such files belong to root and are readable by the group
 * of the pod, which has no other members.
 */
export async function readKey(file: string, { given = false } = {}): Promise<KeyObject | undefined> {
  const text = await readIfThere(file)
  if (text === undefined) return undefined
  const { mode, uid } = await attempt(file, 'cannot be read', () => stat(file))
  const isMounted = given && uid === 0 && process.getuid?.() !== 0
  if ((mode & (isMounted ? 0o037 : 0o077)) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0')
    throw new StateError(
      'Failed',
      file,
      `${file} can be read by others (mode ${octal}): change its mode to 0600, and replace the key if others may have read it`,
    )
  }
  try {
    return keyFromPem(text)
  } catch {
    throw new StateError('Damaged', file, `${file} is damaged (no private key in PEM form): restore it from a backup`)
  }
}

export interface FoundAuthorities {
  /** Certificates in DER. */
  readonly certificates: readonly Uint8Array[]
  readonly keys: readonly KeyObject[]
}

/** All certificates and keys of authorities in the state directory. Throws StateError if one cannot be used. */
export async function readStateAuthorities(stateDir: string): Promise<FoundAuthorities> {
  const names = [CA_CERTIFICATE, CA_KEY, ...(await secondFiles(stateDir))]
  return readAuthorities(stateDir, names, false)
}

/**
 * As readStateAuthorities(), for a directory of the operator: each `*.crt` and `*.key` in it. Empty if there is no such
 * directory, as for an optional Secret. Throws StateError.
 */
export async function readGivenAuthorities(directory: string): Promise<FoundAuthorities> {
  const names = (await namesIn(directory)).filter((name) => /\.(?:crt|key)$/.test(name) && !name.startsWith('.'))
  if (names.length > MAX_FILES) {
    const message = `${directory} has ${names.length} certificates and keys: expected at most ${MAX_FILES}`
    throw new StateError('Failed', directory, message)
  }
  return readAuthorities(directory, names, true)
}

async function readAuthorities(directory: string, names: readonly string[], given: boolean): Promise<FoundAuthorities> {
  const certificates: Uint8Array[] = []
  const keys: KeyObject[] = []
  for (const name of names) {
    const file = join(directory, name)
    if (name.endsWith('.key')) {
      const key = await readKey(file, { given })
      if (key !== undefined) keys.push(key)
      continue
    }
    const text = await readIfThere(file)
    if (text !== undefined) certificates.push(caFromPem(file, text))
  }
  return { certificates, keys }
}

/** Writes a second authority to the state directory, the key first. Throws StateError. */
export async function writeSecond(stateDir: string, certificate: Uint8Array, key: KeyObject): Promise<void> {
  const name = `ca.${fingerprint(certificate)}`
  await writeSafely(join(stateDir, `${name}.key`), keyToPem(key))
  await writeSafely(join(stateDir, `${name}.crt`), certificateToPem(certificate))
}

/** Names of the files of second authorities. Throws StateError. */
export async function secondFiles(stateDir: string): Promise<readonly string[]> {
  return (await namesIn(stateDir)).filter((name) => SECOND.test(name))
}

export interface WantedFiles {
  /** DER. `ca.crt` is to hold this certificate, and `ca.key` its key if the state directory has it. */
  readonly current: Uint8Array
  /** Fingerprints of authorities whose keys are no longer needed. */
  readonly removed: readonly string[]
}

/**
 * Makes the files match the decided state. It can be interrupted at any point: certificates and keys are matched by
 * their contents. The only key of an authority in use is never removed.
 */
export async function settleFiles(stateDir: string, { current, removed }: WantedFiles): Promise<void> {
  const name = `ca.${fingerprint(current)}`
  const key = await readKey(join(stateDir, `${name}.key`))
  if (key !== undefined && isPair(current, key)) {
    await writeSafely(join(stateDir, CA_KEY), keyToPem(key))
    await writeSafely(join(stateDir, CA_CERTIFICATE), certificateToPem(current))
    await removeFiles(stateDir, name)
  }
  const known = await readKey(join(stateDir, CA_KEY))
  const isMissing = (await readIfThere(join(stateDir, CA_CERTIFICATE))) === undefined
  if (isMissing && known !== undefined && isPair(current, known))
    await writeSafely(join(stateDir, CA_CERTIFICATE), certificateToPem(current))
  for (const fp of removed) await removeFiles(stateDir, `ca.${fp}`)
  await removeOld(stateDir, removed)
}

/** Whether the key belongs to the certificate. */
export function isPair(certificate: Uint8Array, key: KeyObject): boolean {
  return new X509Certificate(certificate).checkPrivateKey(key)
}

/**
 * Removes the pair of a removed authority if it is still in `ca.key` and `ca.crt`, as when the key of the new authority
 * is kept elsewhere.
 */
async function removeOld(stateDir: string, removed: readonly string[]): Promise<void> {
  const text = await readIfThere(join(stateDir, CA_CERTIFICATE))
  if (text === undefined || !removed.includes(fingerprint(caFromPem(CA_CERTIFICATE, text)))) return
  await remove(join(stateDir, CA_KEY))
  await remove(join(stateDir, CA_CERTIFICATE))
}

async function removeFiles(stateDir: string, name: string): Promise<void> {
  await remove(join(stateDir, `${name}.crt`))
  await remove(join(stateDir, `${name}.key`))
}

async function remove(file: string): Promise<void> {
  await attempt(file, 'cannot be removed', () => rm(file, { force: true }))
}

async function namesIn(directory: string): Promise<readonly string[]> {
  return attempt(directory, 'cannot be read', async () => {
    try {
      return (await readdir(directory)).sort()
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
      throw error
    }
  })
}
