/** A prefix of an etcd, with the certificate authority that all its brokers share. */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import {
  type EtcdStore,
  type OpenedLog,
  type RecordLog,
  StateError,
  connectEtcd,
  emptyAgain,
  openLog,
} from '../store/store.ts'
import { readSharedFiles, shareFiles } from '../identity/identity.ts'
import type { AuthorityFiles, StorePlace } from './store-location.ts'

export interface EtcdPlaceDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly signal: AbortSignal
}

export class EtcdPlace implements StorePlace {
  readonly name: string
  readonly #deps: EtcdPlaceDeps
  readonly #config: EtcdStoreConfig
  readonly #opened: OpenedLog[] = []
  #etcd: EtcdStore | undefined

  constructor(deps: EtcdPlaceDeps, config: EtcdStoreConfig) {
    this.#deps = deps
    this.#config = config
    this.name = config.url
  }

  /**
   * Throws StateError (Locked) if a broker serves the prefix. A broker that starts later finds the mark of the
   * migration, and one that has started in between ends when the mark is written.
   */
  async lock(): Promise<() => Promise<void>> {
    const etcd = this.#connected()
    const look = { action: 'look for brokers', signal: this.#deps.signal }
    const range = { ...etcd.keys.replicas, limit: 1, keysOnly: true }
    const { kvs } = await etcd.classify(() => etcd.client.range(range, look))
    if (kvs.length > 0) {
      await this.#close()
      const text = `${etcd.where} is in use by a broker, or was until a few seconds ago: stop all of its brokers, wait 15 seconds, and try again`
      throw new StateError('Locked', etcd.where, text)
    }
    return () => this.#close()
  }

  async open(): Promise<RecordLog | undefined> {
    try {
      return await this.#openLog({ create: false })
    } catch (error) {
      if (error instanceof StateError && error.code === 'Absent') return undefined
      throw error
    }
  }

  async renew(clusterset: string): Promise<RecordLog> {
    await emptyAgain(this.#connected(), clusterset, this.#deps.signal)
    return this.#openLog({ create: true, clusterset })
  }

  async authority(): Promise<AuthorityFiles | undefined> {
    const log = this.#opened.at(-1)?.log
    return log === undefined ? undefined : readSharedFiles(this.#connected(), log, this.#deps.signal)
  }

  async putAuthority(files: AuthorityFiles): Promise<void> {
    await shareFiles(this.#connected(), files, this.#deps.signal)
  }

  settled(): Promise<void> {
    return Promise.resolve()
  }

  #connected(): EtcdStore {
    this.#etcd ??= connectEtcd(this.#deps, this.#config)
    return this.#etcd
  }

  async #openLog(init: { readonly create: boolean; readonly clusterset?: string }): Promise<RecordLog> {
    const { signal } = this.#deps
    const opened = await openLog(this.#deps, { stateDir: '', store: this.#config, ...init }, signal)
    this.#opened.push(opened)
    return opened.log
  }

  async #close(): Promise<void> {
    for (const opened of this.#opened.splice(0)) await opened.close()
    this.#etcd?.client.close()
    this.#etcd = undefined
  }
}
