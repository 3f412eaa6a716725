/**
 * One certificate authority for all replicas of a store: each has it in its own state directory, where the broker uses
 * it, and the store has the one that counts.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../runtime/thrown.ts'
import { type AuthorityFiles, offerAuthority, readAuthority } from '../log/etcd/etcd-authority.ts'
import type { EtcdStore } from '../log/etcd/etcd-store.ts'
import { StateError } from '../log/record-log.ts'
import { type CertificateAuthority, writeSafely } from '../members/certificate-authority.ts'
import { AUTHORITY_FILES } from './backup.ts'

/**
 * `open` reads the authority in the state directory, or makes one there. Throws what it throws, and StateError where the
 * directory has another authority than the store.
 */
export async function openSharedAuthority(
  store: EtcdStore,
  stateDir: string,
  open: () => Promise<CertificateAuthority>,
  signal: AbortSignal,
): Promise<CertificateAuthority> {
  const shared = await readAuthority(store, signal)
  const own = await ownFiles(stateDir)
  if (shared !== undefined) {
    if (own['ca.crt'] !== undefined && own['ca.crt'] !== shared['ca.crt']) throw otherAuthority(store, stateDir)
    await writeFiles(store, stateDir, shared)
    return open()
  }
  const authority = await open()
  const offered = await ownFiles(stateDir)
  const there = await offerAuthority(store, offered, signal)
  if (there['ca.crt'] === offered['ca.crt']) return authority
  // Another replica was first. Only what was made a moment ago makes way.
  if (own['ca.crt'] !== undefined) throw otherAuthority(store, stateDir)
  await writeFiles(store, stateDir, there)
  return open()
}

async function ownFiles(stateDir: string): Promise<AuthorityFiles> {
  const files: Record<string, string> = {}
  for (const name of AUTHORITY_FILES) {
    const file = join(stateDir, name)
    try {
      files[name] = await readFile(file, 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue
      throw new StateError('Unwritable', file, `${file} cannot be read (${messageOf(error)})`, error)
    }
  }
  return files
}

/** The key first: a certificate without its key is what the broker takes for damage. */
async function writeFiles(store: EtcdStore, stateDir: string, files: AuthorityFiles): Promise<void> {
  for (const name of [...AUTHORITY_FILES].reverse()) {
    const text = files[name]
    if (text === undefined)
      throw new StateError('Damaged', store.where, `${store.where}: its certificate authority has no ${name}`)
    await writeSafely(join(stateDir, name), text)
  }
}

function otherAuthority(store: EtcdStore, stateDir: string): StateError {
  const file = join(stateDir, 'ca.crt')
  const text = `${file} is another certificate authority than that of ${store.where}: choose an empty state directory, or another prefix`
  return new StateError('Foreign', file, text)
}
