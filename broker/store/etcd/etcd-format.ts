/**
 * Opens a store: checks that etcd is new enough and that the prefix holds the log of this clusterset, or creates the
 * log.
 */
import { randomUUID } from 'node:crypto'
import { StateError, absentState } from '../record-log.ts'
import { EtcdError } from './client/etcd-connection.ts'
import type { TxnRequest } from './client/gen/etcd.ts'
import { isAbsent, putOp, removeOp, wasCreatedAt } from './etcd-requests.ts'
import { type EtcdKeys, FORMAT_VERSION, type Format, encodeHead } from './etcd-rows.ts'
import type { EtcdStore } from './etcd-store.ts'

/**
 * The version in Debian 12. Nested transactions came with 3.3, and the other features in use, such as `hasleader`, are
 * older.
 */
const LOWEST_VERSION = [3, 4] as const

export interface OpenStoreInit {
  /** The clusterset that the store must have. Absent: any. */
  readonly clusterset?: string | undefined
  /** False: the store must exist. */
  readonly create: boolean
}

export interface OpenedStore {
  readonly format: Format
  /** The revision of etcd at which the format was written. It shows whether the store was replaced since. */
  readonly createdAt: number
}

/** Opens the store, and creates it if the prefix is empty. Throws StateError; then nothing was written. */
export async function openStore(store: EtcdStore, init: OpenStoreInit, signal: AbortSignal): Promise<OpenedStore> {
  return store.classify(async () => {
    const { version } = await store.client.status(signal)
    checkVersion(store, version)
    for (;;) {
      const found = await look(store, signal)
      if (found.opened !== undefined) return checkFormat(store, found.opened, init)
      if (found.foreign !== undefined) {
        const text = `${store.where} holds other data (key ${found.foreign}): choose another prefix`
        throw new StateError('Foreign', store.where, text)
      }
      if (!init.create) throw absentState(store.where)
      // Another replica may create the store first. The next iteration reads the result.
      await create(store, init.clusterset ?? '', signal).catch((error: unknown) => {
        if (!(error instanceof EtcdError && error.failure === 'unknown')) throw error
      })
    }
  })
}

function checkVersion(store: EtcdStore, version: string): void {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [lowestMajor, lowestMinor] = LOWEST_VERSION
  if (major > lowestMajor || (major === lowestMajor && minor >= lowestMinor)) return
  const text = `${store.where}: etcd at ${store.client.endpoint} is version ${version}: expected ${LOWEST_VERSION.join('.')} or later`
  throw new StateError('TooOld', store.where, text)
}

interface Found {
  readonly opened?: OpenedStore
  /** A key below the prefix that is not the broker's. */
  readonly foreign?: string
}

async function look({ client, keys, values }: EtcdStore, signal: AbortSignal): Promise<Found> {
  const action = `look at prefix ${keys.prefix}`
  // The order matters: if the store is created between the two reads, the first one finds nothing and the second one
  // finds the format.
  const [other] = (await client.range({ ...keys.all, limit: 1, keysOnly: true }, { action, signal })).kvs
  const [format] = (await client.range({ key: keys.format }, { action, signal })).kvs
  if (format !== undefined) return { opened: { format: values.format(format.value), createdAt: format.createRevision } }
  return other === undefined ? {} : { foreign: other.key.toString() }
}

function checkFormat(store: EtcdStore, opened: OpenedStore, { clusterset }: OpenStoreInit): OpenedStore {
  const { format } = opened
  if (format.format > FORMAT_VERSION) {
    const text = `${store.where} has format ${format.format}, this broker knows up to ${FORMAT_VERSION}: use the newer version of Sealane`
    throw new StateError('TooNew', store.where, text)
  }
  if (clusterset !== undefined && format.clusterset !== clusterset) {
    const text = `${store.where} holds clusterset "${format.clusterset}", and this broker serves "${clusterset}": choose another prefix`
    throw new StateError('Foreign', store.where, text)
  }
  return opened
}

async function create({ client, keys }: EtcdStore, clusterset: string, signal: AbortSignal): Promise<void> {
  const request: TxnRequest = {
    compare: [isAbsent(keys.format), isAbsent(keys.head)],
    success: emptyStore(keys, clusterset),
    failure: [],
  }
  await client.txn(request, { action: `first write below ${keys.prefix}`, signal })
}

/**
 * Replaces the existing store by an empty one with a new epoch, in one transaction that removes only the broker's own
 * keys. Throws StateError.
 */
export async function emptyAgain(store: EtcdStore, clusterset: string, signal: AbortSignal): Promise<void> {
  const { client, keys } = store
  await store.classify(async () => {
    const { opened } = await look(store, signal)
    if (opened === undefined) return
    const request: TxnRequest = {
      compare: [wasCreatedAt(keys.format, opened.createdAt)],
      success: [...keys.content.map(removeOp), ...emptyStore(keys, clusterset)],
      failure: [],
    }
    const { succeeded } = await client.txn(request, { action: 'removal of the store of before', signal })
    if (!succeeded) throw store.gone('it has changed meanwhile')
  })
}

function emptyStore(keys: EtcdKeys, clusterset: string): TxnRequest['success'] {
  const format: Format = { sealane: 'broker', format: FORMAT_VERSION, epoch: randomUUID(), clusterset }
  return [
    putOp(keys.format, Buffer.from(JSON.stringify(format))),
    putOp(keys.head, encodeHead({ revision: 0, compacted: 0, writes: [] })),
  ]
}
