/**
 * Keys of certificate authorities that the replicas of a store share. The log determines which authorities are in use.
 * Each replica keeps a copy of their keys in its own state directory.
 */
import type { KeyObject } from 'node:crypto'
import { certificateToPem, fingerprint, keyFromPem, keyToPem } from '../../protocol/identity/identity.ts'
import { CA_CERTIFICATE, caFromPem, isPair } from './authority-files.ts'
import { type SharedKeys, certificateOf } from './authority-keys.ts'
import { acceptedAuthorities } from './plan-rotation.ts'
import {
  AUTHORITY_KEY,
  type EtcdStore,
  type LogView,
  StateError,
  readAuthorityKey,
  removeAuthorityKey,
  writeAuthorityKey,
} from '../store/store.ts'

/** `signal` aborts operations in progress. All methods throw StateError. */
export function sharedKeys(store: EtcdStore, signal: AbortSignal): SharedKeys {
  /** Fingerprints of authorities whose keys were removed already. */
  const removed = new Set<string>()
  const get = async (certificate: Uint8Array): Promise<KeyObject | undefined> => {
    const pem = await readAuthorityKey(store, fingerprint(certificate), signal)
    return pem === undefined ? undefined : keyOf(store, certificate, pem)
  }
  return {
    where: store.where,
    get,
    async put(certificate, key) {
      if ((await get(certificate)) === undefined)
        await writeAuthorityKey(store, fingerprint(certificate), keyToPem(key), signal)
    },
    async remove(authority) {
      if (removed.has(authority)) return
      await removeAuthorityKey(store, authority, signal)
      removed.add(authority)
    },
  }
}

/**
 * The shared authorities as files of a state directory, for a move of the store: those in use whose keys are shared.
 * Undefined if the current authority is not among them. Throws StateError.
 */
export async function readSharedFiles(
  store: EtcdStore,
  view: LogView,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>> | undefined> {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row === undefined) return undefined
  const files: Record<string, string> = {}
  for (const one of acceptedAuthorities(row)) {
    const key = await sharedKeys(store, signal).get(certificateOf(one))
    if (key === undefined) continue
    const name = one.fingerprint === row.current.fingerprint ? 'ca' : `ca.${one.fingerprint}`
    files[`${name}.crt`] = certificateToPem(certificateOf(one))
    files[`${name}.key`] = keyToPem(key)
  }
  return files[CA_CERTIFICATE] === undefined ? undefined : files
}

/**
 * Shares the authorities of these files. A certificate without a key is left out: its key is elsewhere. Throws
 * StateError.
 */
export async function shareFiles(
  store: EtcdStore,
  files: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<void> {
  const shared = sharedKeys(store, signal)
  for (const [name, text] of Object.entries(files)) {
    const pem = name.endsWith('.crt') ? files[name.replace(/\.crt$/, '.key')] : undefined
    if (pem !== undefined) await shared.put(caFromPem(name, text), keyFromPem(pem))
  }
}

function keyOf(store: EtcdStore, certificate: Uint8Array, pem: string): KeyObject {
  try {
    const key = keyFromPem(pem)
    if (isPair(certificate, key)) return key
  } catch {
    // The error below covers this case.
  }
  const name = store.keys.authority(fingerprint(certificate)).toString()
  const text = `${store.where}: key ${name} is damaged (no private key of its authority): restore etcd from a backup`
  throw new StateError('Damaged', store.where, text)
}
