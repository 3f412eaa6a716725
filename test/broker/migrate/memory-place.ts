/**
 * A store location in memory that can be made to fail at any of its writes. It models what a real location does during
 * a move.
 */
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { type RecordLog, StateError } from '../../../broker/store/record-log.ts'
import type { AuthorityFiles, StorePlace } from '../../../broker/recovery/store-location.ts'

export class MemoryPlace implements StorePlace {
  readonly name: string
  log: RecordLog | undefined
  files: AuthorityFiles | undefined
  /** The number of writes that still succeed. After that, every write fails until a test sets the number again. */
  writesLeft = Infinity
  /** The epoch of the log that was served last, as settled() received it. */
  served: string | undefined
  locked = false

  constructor(name: string, log?: RecordLog) {
    this.name = name
    this.log = log
  }

  lock(): Promise<() => Promise<void>> {
    if (this.locked) return Promise.reject(new StateError('Locked', this.name, `${this.name} is served: stop it`))
    this.locked = true
    return Promise.resolve(() => {
      this.locked = false
      return Promise.resolve()
    })
  }

  open(): Promise<RecordLog | undefined> {
    return Promise.resolve(this.log === undefined ? undefined : this.#opened(this.log))
  }

  renew(): Promise<RecordLog> {
    this.#write()
    this.log = openMemoryLog()
    return Promise.resolve(this.#opened(this.log))
  }

  authority(): Promise<AuthorityFiles | undefined> {
    return Promise.resolve(this.files)
  }

  putAuthority(files: AuthorityFiles): Promise<void> {
    this.#write()
    this.files = files
    return Promise.resolve()
  }

  settled(log: RecordLog): Promise<void> {
    this.#write()
    this.served = log.epoch
    return Promise.resolve()
  }

  #write(): void {
    if (this.writesLeft <= 0) throw new StateError('Unwritable', this.name, `${this.name}: broken off`)
    this.writesLeft -= 1
  }

  /** The log outlives its user, as a file does, so close() does nothing. */
  #opened(log: RecordLog): RecordLog {
    const write = (): void => this.#write()
    return new Proxy(log, {
      get(target, name) {
        if (name === 'close') return () => Promise.resolve()
        if (name === 'transact') {
          return (decide: Parameters<RecordLog['transact']>[0]) => {
            write()
            return target.transact(decide)
          }
        }
        const value: unknown = Reflect.get(target, name, target)
        return typeof value === 'function' ? (value.bind(target) as unknown) : value
      },
    })
  }
}
