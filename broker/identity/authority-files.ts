/**
 * Files of the certificate authority. In the state directory: `ca.key`, `ca.crt`, and during a rotation a second pair
 * that is named by its fingerprint. In a directory that an operator gives: whatever certificates and keys lie there.
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
/** Of a second authority: `ca.<fingerprint>.crt` and `.key`. */
const SECOND = /^ca\.[0-9a-f]{64}\.(?:crt|key)$/
/** Whether a file of this name belongs to an authority in a state directory, and so into its backup. */
export function isAuthorityFile(name: string): boolean {
  return name === CA_CERTIFICATE || name === CA_KEY || SECOND.test(name)
}

/** More in a directory of an operator is none of ours. */
const MAX_FILES = 64

/** The first certificate of a file, DER. Throws StateError for what is no certificate of an authority. */
export function caFromPem(file: string, text: string): Uint8Array {
  try {
    const certificate = certificatesFromPem(text)[0]
    if (certificate !== undefined && readCertificate(certificate).isCa) return certificate
  } catch {
    // Said below.
  }
  throw new StateError('Damaged', file, `${file} is damaged (no CA certificate in PEM form): restore it from a backup`)
}

/** Reads a private key of the state directory, or makes one. Throws StateError. */
export async function openKey(file: string): Promise<KeyObject> {
  const found = await readKey(file)
  if (found !== undefined) return found
  const key = createKey()
  await writeSafely(file, keyToPem(key))
  return key
}

/**
 * Undefined where there is no such file. A key that others could have read is no secret any more. Of a Secret that a
 * kubelet mounts, the files belong to root and are readable by the group of the pod, which is nobody else: `given`.
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
      `${file} can be read by others (mode ${octal}): make it mode 0600, and replace it if others had access`,
    )
  }
  try {
    return keyFromPem(text)
  } catch {
    throw new StateError('Damaged', file, `${file} is damaged (no private key in PEM form): restore it from a backup`)
  }
}

export interface FoundAuthorities {
  /** DER. */
  readonly certificates: readonly Uint8Array[]
  readonly keys: readonly KeyObject[]
}

/** All certificates and keys of authorities in the state directory. Throws StateError for one that cannot be used. */
export async function readStateAuthorities(stateDir: string): Promise<FoundAuthorities> {
  const names = [CA_CERTIFICATE, CA_KEY, ...(await secondFiles(stateDir))]
  return readAuthorities(stateDir, names, false)
}

/**
 * The same of a directory of an operator: each `*.crt` and `*.key` in it. Nothing where there is no such directory: a
 * Secret that is optional. Throws StateError.
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

/** Keeps a second authority in the state directory, the key first. Throws StateError. */
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
  /** DER: what `ca.crt` is to be, and, where its key is here, `ca.key`. */
  readonly current: Uint8Array
  /** Fingerprints of authorities whose keys are not needed any more. */
  readonly removed: readonly string[]
}

/**
 * Brings the files to what is decided, and can be broken off anywhere: certificates and keys find each other again by
 * what is in them. The only key of an authority that is in use is never taken away.
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

/** Whether the key is that of the certificate. */
export function isPair(certificate: Uint8Array, key: KeyObject): boolean {
  return new X509Certificate(certificate).checkPrivateKey(key)
}

/** Where the new authority's key is elsewhere, that of the one before does not stay. */
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
