/**
 * The rules that every history must obey, whatever faults occurred. The check is pure: it takes a history and returns
 * its violations.
 *
 * A member's record is a register with one writer. At a quiet look it may hold the value of any call that was not
 * refused and that no acknowledged call followed. No other value is allowed. Linearizability requires the same of the
 * last read.
 */
import { checkWatchers } from './check-watchers.ts'
import type { AnyCall, EndCall, History, JoinCall, QuietLook, RecordCall } from './history.ts'
import { type Violation, checkAddresses } from './violations.ts'

export function checkHistory(history: History): Violation[] {
  return [
    ...checkGiven(history),
    ...checkWatchers(history),
    ...history.looks.flatMap((look) => checkLook(history, look)),
  ]
}

/** Checks what the brokers have given out in their answers, whatever the store holds later. */
function checkGiven({ calls }: History): Violation[] {
  const joins = calls.filter((call) => call.t === 'join' && call.outcome === 'ok') as JoinCall[]
  const ends = calls.filter((call) => call.t === 'end' && call.outcome !== 'failed') as EndCall[]
  const found: Violation[] = []
  const until = ({ cluster, life }: JoinCall): number =>
    Math.min(...ends.filter((end) => end.cluster === cluster && end.life === life).map(({ start }) => start))
  for (const [i, one] of joins.entries()) {
    for (const other of joins.slice(i + 1)) {
      if (one.token === other.token) {
        found.push({ rule: 'token', text: `token ${one.token} let in ${nameOf(one)} and ${nameOf(other)}` })
      }
      if (one.cluster === other.cluster) continue
      if (until(one) <= other.start || until(other) <= one.start) continue
      if (one.index !== undefined && one.index === other.index) {
        found.push({ rule: 'index', text: `index ${one.index} was given to ${nameOf(one)} and ${nameOf(other)}` })
      }
      for (const block of one.blocks ?? []) {
        if (!other.blocks?.includes(block)) continue
        found.push({ rule: 'block', text: `${block} was given to ${nameOf(one)} and ${nameOf(other)}` })
      }
    }
  }
  return found
}

function checkLook(history: History, look: QuietLook): Violation[] {
  const calls = history.calls.filter(({ start }) => start <= look.at)
  const wrong = [
    ...checkRecords(calls, look),
    ...checkMembers(calls, look),
    ...checkTokens(calls, look),
    ...checkAddresses(look.records),
    ...checkStates(look),
  ]
  return wrong.map(({ rule, text }) => ({ rule, text: `at ${Math.round(look.at)} ms: ${text}` }))
}

function checkRecords(calls: readonly AnyCall[], look: QuietLook): Violation[] {
  const writes = calls.filter((call): call is RecordCall => call.t === 'put' || call.t === 'remove')
  const ends = calls.filter((call): call is EndCall => call.t === 'end')
  const byKey = Map.groupBy(writes, ({ key }) => key)
  const found: Violation[] = []
  for (const [key, own] of byKey) {
    const cluster = own[0]?.cluster
    const allowed = allowedVersions(
      own,
      ends.filter((end) => end.cluster === cluster),
    )
    const version = look.records.get(key)?.version
    if (!allowed.has(version)) {
      const expected = [...allowed].map((one) => one ?? 'none').join(' or ')
      found.push({ rule: 'record', text: `${key} has version ${version ?? 'none'}: expected ${expected}` })
    }
  }
  for (const [key, { version }] of look.records) {
    if (version !== undefined && !byKey.has(key)) found.push({ rule: 'record', text: `${key}: nobody has put it` })
  }
  return found
}

/** Returns the versions that a record may have; `undefined` stands for no record. */
function allowedVersions(writes: readonly RecordCall[], ends: readonly EndCall[]): Set<number | undefined> {
  const all = [...writes, ...ends].filter(({ outcome }) => outcome !== 'failed')
  const made = all.filter(({ outcome }) => outcome === 'ok')
  const allowed = new Set<number | undefined>()
  if (made.length === 0) allowed.add(undefined)
  for (const call of all) {
    if (made.some((later) => later.start >= call.end)) continue
    if (call.t === 'end') {
      allowed.add(undefined)
      continue
    }
    // A member's writes during its eviction are removed with the member.
    if (ends.some(({ outcome, life }) => outcome === 'ok' && life >= call.life)) continue
    allowed.add(call.t === 'put' ? call.version : undefined)
  }
  return allowed
}

function checkMembers(calls: readonly AnyCall[], { members }: QuietLook): Violation[] {
  const found: Violation[] = []
  const joins = calls.filter((call): call is JoinCall => call.t === 'join')
  const ends = calls.filter((call) => call.t === 'end' && call.outcome !== 'failed') as EndCall[]
  for (const [cluster, own] of Map.groupBy(joins, (join) => join.cluster)) {
    const row = members.find((one) => one.cluster === cluster)
    const last = own.filter(({ outcome }) => outcome === 'ok').at(-1)
    const tried = own.filter(({ outcome }) => outcome === 'unknown').some(({ life }) => life > (last?.life ?? 0))
    const end = ends.find((one) => one.cluster === cluster && one.life === last?.life)
    if (last === undefined) {
      if (row?.isMember === true && !tried)
        found.push({ rule: 'member', text: `${cluster} is a member: its joins were refused` })
      continue
    }
    if (row === undefined) {
      found.push({ rule: 'member', text: `${nameOf(last)} is lost` })
      continue
    }
    if (last.index !== undefined && row.index !== last.index)
      found.push({ rule: 'index', text: `${nameOf(last)} has index ${row.index}: it was told ${last.index}` })
    if (end === undefined && !row.isMember)
      found.push({ rule: 'member', text: `${nameOf(last)} is no member any more` })
    if (end?.outcome === 'ok' && row.isMember && !tried)
      found.push({ rule: 'member', text: `${nameOf(last)} is a member: it was ${end.how}` })
  }
  for (const { cluster, isMember } of members) {
    if (isMember && !joins.some((join) => join.cluster === cluster))
      found.push({ rule: 'member', text: `${cluster} is a member: nobody has let it in` })
  }
  const indices = new Map<number, string>()
  const blocks = new Map<string, string>()
  for (const { cluster, index, blocks: own } of members) {
    const other = indices.get(index)
    if (other !== undefined) found.push({ rule: 'index', text: `index ${index} is of ${other} and of ${cluster}` })
    indices.set(index, cluster)
    for (const block of own) {
      const holder = blocks.get(block)
      if (holder !== undefined) found.push({ rule: 'block', text: `${block} is of ${holder} and of ${cluster}` })
      blocks.set(block, cluster)
    }
  }
  return found
}

function checkTokens(calls: readonly AnyCall[], { tokens }: QuietLook): Violation[] {
  const found: Violation[] = []
  const stored = new Map(tokens.map((one) => [one.id, one]))
  for (const call of calls) {
    if (call.t === 'token' && call.outcome === 'ok' && call.token !== undefined && !stored.has(call.token))
      found.push({ rule: 'token', text: `token ${call.token} is lost` })
    if (call.t !== 'join' || call.outcome !== 'ok') continue
    const token = stored.get(call.token)
    if (token === undefined) continue
    if (token.usesLeft !== 0)
      found.push({ rule: 'token', text: `token ${token.id} let in ${nameOf(call)} and is unspent` })
    else if (!token.usedBy.includes(call.cluster))
      found.push({
        rule: 'token',
        text: `token ${token.id} let in ${nameOf(call)}: the store says ${token.usedBy.join()}`,
      })
  }
  for (const { id, usedBy } of tokens) {
    if (usedBy.length > 1) found.push({ rule: 'token', text: `token ${id} was used by ${usedBy.join(' and ')}` })
  }
  return found
}

function checkStates({ epoch, records, watchers }: QuietLook): Violation[] {
  const found: Violation[] = []
  for (const { watcher, epoch: own, records: has } of watchers) {
    if (own !== epoch)
      found.push({ rule: 'end state', text: `${watcher} is in epoch ${own}: the store is in ${epoch}` })
    for (const key of new Set([...records.keys(), ...has.keys()])) {
      const [theirs, stored] = [has.get(key), records.get(key)]
      if (theirs?.revision === stored?.revision && theirs?.text === stored?.text) continue
      const [left, right] = [theirs, stored].map((one) => (one === undefined ? 'nothing' : `revision ${one.revision}`))
      found.push({ rule: 'end state', text: `${watcher} has ${left} of ${key}: the store has ${right}` })
    }
  }
  return found
}

const nameOf = ({ cluster, life }: JoinCall): string => `${cluster} (${life})`
