/**
 * Checks what each watcher received, in order: revisions only grow, and a removed or overwritten version does not come
 * back.
 */
import type { History, Observation, RecordCall, RecordValue } from './history.ts'
import { type Violation, checkAddresses } from './violations.ts'

export function checkWatchers({ calls, observations }: History): Violation[] {
  const puts = new Map<string, RecordCall>()
  for (const call of calls) if (call.t === 'put') puts.set(nameOf(call.key, call.version), call)
  const found: Violation[] = []
  for (const [watcher, shown] of Map.groupBy(observations, (one) => one.watcher)) {
    for (const { rule, text } of checkOne(shown, puts)) found.push({ rule, text: `${watcher} ${text}` })
  }
  return found
}

const nameOf = (key: string, version: number): string => `${key} ${version}`

function checkOne(shown: readonly Observation[], puts: ReadonlyMap<string, RecordCall>): Violation[] {
  const found: Violation[] = []
  const records = new Map<string, RecordValue>()
  /** The highest version of each record so far, including removed records. */
  const highest = new Map<string, number>()
  let last: Observation | undefined
  for (const now of shown) {
    const when = `at ${Math.round(now.at)} ms`
    if (last?.epoch === now.epoch && now.revision < last.revision) {
      found.push({ rule: 'revision', text: `${when}: revision ${now.revision} came after ${last.revision}` })
    }
    last = now
    for (const { key, value } of now.changes) {
      const before = records.get(key)
      if (value === undefined) records.delete(key)
      else records.set(key, value)
      const version = value?.version
      if (version === undefined) continue
      const put = puts.get(nameOf(key, version))
      if (put === undefined || put.start > now.at || put.outcome === 'failed') {
        const why =
          put === undefined ? 'nobody put it' : put.outcome === 'failed' ? 'it was refused' : 'before it was put'
        found.push({ rule: 'shown', text: `${when}: was shown version ${version} of ${key}: ${why}` })
      }
      const known = highest.get(key) ?? 0
      const isBack = version < known || (version === known && before === undefined)
      if (isBack) found.push({ rule: 'shown', text: `${when}: was shown version ${version} of ${key} after ${known}` })
      highest.set(key, Math.max(known, version))
    }
    if (now.changes.some(({ value }) => value?.ips !== undefined)) {
      found.push(...checkAddresses(records).map(({ rule, text }) => ({ rule, text: `${when}: ${text}` })))
    }
  }
  return found
}
