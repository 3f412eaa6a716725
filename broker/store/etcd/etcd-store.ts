/** The store below one prefix of an etcd: its keys, and what failures of etcd mean for callers. */
import { StateError } from '../record-log.ts'
import type { EtcdClient } from './client/etcd-client.ts'
import { EtcdError } from './client/etcd-connection.ts'
import type { RequestOp } from './client/gen/etcd.ts'
import { putOp, removeOp } from './etcd-requests.ts'
import { EtcdKeys, ValueReader } from './etcd-rows.ts'

export class EtcdStore {
  readonly client: EtcdClient
  readonly keys: EtcdKeys
  readonly values: ValueReader
  /** The store's name in messages: etcd://HOST:PORT,.../PREFIX */
  readonly where: string

  constructor(client: EtcdClient, prefix: string) {
    this.client = client
    this.keys = new EtcdKeys(prefix)
    this.where = `etcd://${client.endpoints}${prefix}`
    this.values = new ValueReader(this.where, this.keys)
  }

  /** Runs `work` and turns failures of etcd into a StateError that says what to do. Other errors pass. */
  async classify<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw this.stateError(error)
    }
  }

  stateError(error: unknown): unknown {
    if (!(error instanceof EtcdError)) return error
    const { message } = error
    const prefix = this.keys.prefix
    const make = (code: StateError['code'], todo: string): StateError =>
      new StateError(code, this.where, `${message}: ${todo}`, error)
    switch (error.failure) {
      case 'unreachable':
        return make('Unreachable', 'the broker accepts no changes until etcd answers')
      case 'unknown':
        return make('Unknown', 'the result of the write is unknown')
      case 'noLogin':
        return make('Denied', 'check the user, the password file and the client certificate')
      case 'denied':
        return make('Denied', `grant the user to read and write all keys below ${prefix}/`)
      case 'noSpace':
        return make(
          'Full',
          'the broker accepts no changes until etcd has space: compact and defragment etcd or raise its quota, then disarm the alarm',
        )
      case 'tooLarge':
        return make('Failed', 'raise --max-request-bytes of etcd to its standard of 1.5 MiB or more')
      case 'compacted':
      case 'failed':
        return make('Failed', 'check the log of etcd')
    }
  }

  /** The store was removed or replaced while this replica runs. */
  gone(why: string): StateError {
    const text = `${this.where}: ${why}: stop all brokers of it, find out who changed it, and start them again`
    return new StateError('Stale', this.where, text)
  }
}

// Keys of certificate authorities that all replicas sign with. Each is one value, under the fingerprint of its
// certificate.

/** Returns PEM, or undefined if there is no such key. Throws StateError. */
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

/** Does nothing if the key does not exist. Throws StateError. */
export async function removeAuthorityKey(store: EtcdStore, fingerprint: string, signal: AbortSignal): Promise<void> {
  await writeOnce(store, removeOp({ key: store.keys.authority(fingerprint) }), signal)
}

/** The write is idempotent, so it is repeated once if its answer is lost. */
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
