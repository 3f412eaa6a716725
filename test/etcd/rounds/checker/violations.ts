/** What can be wrong with a history, and the one rule that both a look and a watcher are held to. */
import type { RecordValue } from './history.ts'

export type Rule =
  /** An acknowledged call has left no trace, or a withdrawn or refused one has. */
  | 'record'
  | 'member'
  | 'token'
  | 'index'
  | 'block'
  | 'service address'
  /** A watcher was shown an earlier revision after a later one. */
  | 'revision'
  /** A watcher was shown what nobody put, or an earlier version after a later one. */
  | 'shown'
  /** A watcher and the store differ when all is quiet. */
  | 'end state'
  /** Nothing is broken any more, and something does not come back. */
  | 'recovery'

export interface Violation {
  readonly rule: Rule
  readonly text: string
}

/** Each address is of one service. */
export function checkAddresses(records: ReadonlyMap<string, RecordValue>): Violation[] {
  const holders = new Map<string, string>()
  const found: Violation[] = []
  for (const [key, { ips = [] }] of records) {
    for (const ip of ips) {
      const other = holders.get(ip)
      if (other !== undefined) found.push({ rule: 'service address', text: `${ip} is of ${other} and of ${key}` })
      holders.set(ip, key)
    }
  }
  return found
}
