/** The kinds of violations of a history, and the one rule that applies to both quiet looks and watchers. */
import type { RecordValue } from './history.ts'

export type Rule =
  /** An acknowledged call left no trace, or a withdrawn or refused call left one. */
  | 'record'
  | 'member'
  | 'token'
  | 'index'
  | 'block'
  | 'service address'
  /** A watcher received an earlier revision after a later one. */
  | 'revision'
  /** A watcher received a record that no member put, or an earlier version after a later one. */
  | 'shown'
  /** A watcher and the store differ at a quiet look. */
  | 'end state'
  /** All faults have ended, and a part does not recover. */
  | 'recovery'

export interface Violation {
  readonly rule: Rule
  readonly text: string
}

/** Checks that no two services have the same address. */
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
