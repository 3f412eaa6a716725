/** Keys of certificate authorities that all replicas sign with: one value of the store for each, by its fingerprint. */
import { EtcdError } from './client/etcd-error.ts'
import type { RequestOp } from './client/gen/etcd.ts'
import { putOp, removeOp } from './etcd-compare.ts'
import type { EtcdStore } from './etcd-store.ts'

/** PEM; undefined: there is none. Throws StateError. */
export async function readAuthorityKey(
  store: EtcdStore,
  fingerprint: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { client, keys } = store
  const init = { action: 'read of the key of a certificate authority', signal }
  const [kv] = (await store.classify(() => client.range({ key: keys.authority(fingerprint) }, init))).kvs
  return kv?.value.toString()
}

/** Takes PEM. Throws StateError. */
export async function writeAuthorityKey(
  store: EtcdStore,
  fingerprint: string,
  pem: string,
  signal: AbortSignal,
): Promise<void> {
  await writeOnce(store, putOp(store.keys.authority(fingerprint), Buffer.from(pem)), signal)
  if ((await readAuthorityKey(store, fingerprint, signal)) === undefined)
    throw store.gone('the key of a certificate authority is not there after it was written')
}

/** Does nothing where it is gone. Throws StateError. */
export async function removeAuthorityKey(store: EtcdStore, fingerprint: string, signal: AbortSignal): Promise<void> {
  await writeOnce(store, removeOp({ key: store.keys.authority(fingerprint) }), signal)
}

/** A key is written and removed once, by whoever is first: doing it again does no harm where the answer was lost. */
async function writeOnce(store: EtcdStore, op: RequestOp, signal: AbortSignal): Promise<void> {
  const write = (): Promise<unknown> =>
    store.client.txn(
      { compare: [], success: [op], failure: [] },
      { action: 'write of a certificate authority', signal },
    )
  try {
    await write()
  } catch (error) {
    if (!(error instanceof EtcdError && error.failure === 'unknown')) throw store.stateError(error)
    await store.classify(write)
  }
}
