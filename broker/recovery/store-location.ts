/** A place where a broker's store can be: what a move from one kind of store to another needs to know of each. */
import type { RecordLog } from '../store/store.ts'

/** PEM texts by the names of their files: ca.crt, ca.key, and of a second authority during a rotation. */
export type AuthorityFiles = Readonly<Record<string, string>>

export interface StorePlace {
  /** As commands name it, and as it is named in messages and at the other end. Has no password. */
  readonly name: string
  /** Until released nobody serves it. Throws StateError (Locked) while a broker does. */
  lock(): Promise<() => Promise<void>>
  /** Undefined: nothing is there. Throws StateError where it cannot be read. */
  open(): Promise<RecordLog | undefined>
  /**
   * An empty store of a new epoch, for this clusterset; what was there makes way, and can be found afterwards where that is
   * possible. Nothing of it is open. Throws StateError.
   */
  renew(clusterset: string, nowMs: number): Promise<RecordLog>
  /** Of the certificate authority what is kept with the store; undefined: nothing. */
  authority(): Promise<AuthorityFiles | undefined>
  /** Takes the authority of the other end, where this one has none or the same. */
  putAuthority(files: AuthorityFiles): Promise<void>
  /** To be called when the move is over: `log` is the store that is served from now on: here, or at the other end. */
  settled(log: RecordLog, nowMs: number, isHere: boolean): Promise<void>
}
