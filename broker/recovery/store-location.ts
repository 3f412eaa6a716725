/** A place where a broker's store can be, as a migration between kinds of stores uses it. */
import type { RecordLog } from '../store/store.ts'

/** PEM texts by file name: ca.crt and ca.key, and the files of a second authority during a rotation. */
export type AuthorityFiles = Readonly<Record<string, string>>

export interface StorePlace {
  /** The name in commands, in messages and in the mark at the other end. It contains no password. */
  readonly name: string
  /** Keeps brokers from serving the store until released. Throws StateError (Locked) while a broker serves it. */
  lock(): Promise<() => Promise<void>>
  /** Returns undefined if there is no store. Throws StateError if the store cannot be read. */
  open(): Promise<RecordLog | undefined>
  /**
   * Creates an empty store with a new epoch for this clusterset. An existing store makes room, and is kept elsewhere if
   * possible. The existing store must not be open. Throws StateError.
   */
  renew(clusterset: string, nowMs: number): Promise<RecordLog>
  /** The files of the certificate authority that are kept with the store. Undefined if there are none. */
  authority(): Promise<AuthorityFiles | undefined>
  /** Stores the authority of the other end. This end must have none, or the same one. */
  putAuthority(files: AuthorityFiles): Promise<void>
  /**
   * Call it when the migration is over. `log` is the store that is served from now on. `isHere` says whether it is this
   * one.
   */
  settled(log: RecordLog, nowMs: number, isHere: boolean): Promise<void>
}
