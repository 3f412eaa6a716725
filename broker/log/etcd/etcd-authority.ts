/** The certificate authority of all replicas, as one value of the store: written once, by the replica that is first. */
import { messageOf } from '../../../runtime/thrown.ts'
import { StateError } from '../record-log.ts'
import { EtcdError } from './client/etcd-error.ts'
import { isAbsent, putOp } from './etcd-compare.ts'
import type { EtcdStore } from './etcd-store.ts'

/** PEM by name of the file. */
export type AuthorityFiles = Readonly<Record<string, string>>

/** Undefined: there is none yet. Throws StateError. */
export async function readAuthority(store: EtcdStore, signal: AbortSignal): Promise<AuthorityFiles | undefined> {
  const { client, keys } = store
  const init = { action: 'read of the certificate authority', signal }
  const [kv] = (await store.classify(() => client.range({ key: keys.authority }, init))).kvs
  if (kv === undefined) return undefined
  try {
    const files: unknown = JSON.parse(kv.value.toString())
    if (typeof files === 'object' && files !== null) return files as AuthorityFiles
  } catch (error) {
    throw damaged(store, messageOf(error))
  }
  throw damaged(store, 'it is no object')
}

/** Writes it where there is none; gives the one that is there afterwards. Throws StateError. */
export async function offerAuthority(
  store: EtcdStore,
  files: AuthorityFiles,
  signal: AbortSignal,
): Promise<AuthorityFiles> {
  const { client, keys } = store
  const success = [putOp(keys.authority, Buffer.from(JSON.stringify(files)))]
  const request = { compare: [isAbsent(keys.authority)], success, failure: [] }
  try {
    await client.txn(request, { action: 'write of the certificate authority', signal })
  } catch (error) {
    // What came of it is read below.
    if (!(error instanceof EtcdError && error.failure === 'unknown')) throw store.stateError(error)
  }
  const there = await readAuthority(store, signal)
  if (there === undefined) throw store.gone('the certificate authority is not there after it was written')
  return there
}

function damaged(store: EtcdStore, why: string): StateError {
  const text = `${store.where}: key ${store.keys.authority.toString()} is damaged (${why}): restore etcd from a backup`
  return new StateError('Damaged', store.where, text)
}
