/** Builds the history that a store without faults produces from a list of steps. */
import fc from 'fast-check'
import type { AnyCall, History, Observation, Outcome, QuietLook, RecordValue, SeenRecord } from './history.ts'

export interface Step {
  readonly act: 'put' | 'remove' | 'evict'
  readonly cluster: number
  readonly key: number
  readonly outcome: Outcome
  /** Whether a call of unknown outcome took effect. */
  readonly made: boolean
}

const CLUSTERS = 3

export const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.record({
    act: fc.constantFrom('put' as const, 'put' as const, 'put' as const, 'remove' as const, 'evict' as const),
    cluster: fc.nat(CLUSTERS - 1),
    key: fc.nat(2),
    outcome: fc.constantFrom('ok' as const, 'ok' as const, 'failed' as const, 'unknown' as const),
    made: fc.boolean(),
  }),
  { maxLength: 40 },
)

export const keyOf = (cluster: number, key: number): string => `c${cluster}/ServiceExport/shop/s${key}`
const addressKey = (key: number): string => `/ClusterSetIP/shop/s${key}`

/** Builds a history in which all clusters join first, join again after each eviction, and put one record at the end. */
export function soundHistory(list: readonly Step[]): History {
  const store = new SoundStore()
  for (let cluster = 0; cluster < CLUSTERS; cluster += 1) store.join(cluster)
  for (const step of list) store.take(step)
  for (let cluster = 0; cluster < CLUSTERS; cluster += 1)
    store.take({ act: 'put', cluster, key: 0, outcome: 'ok', made: true })
  return store.history()
}

class SoundStore {
  readonly #calls: AnyCall[] = []
  readonly #observations: Observation[] = []
  readonly #records = new Map<string, RecordValue>()
  readonly #lives = Array.from({ length: CLUSTERS }, () => 0)
  readonly #used = new Map<string, string>()
  #now = 0
  #revision = 0
  #version = 0

  join(cluster: number): void {
    const life = (this.#lives[cluster] = (this.#lives[cluster] ?? 0) + 1)
    const token = `t${this.#used.size}`
    this.#used.set(token, `c${cluster}`)
    this.#calls.push({ t: 'token', token, ...this.#call('ok') })
    const given = { index: cluster + 1, blocks: [`244.${cluster}.0.0/16`] }
    this.#calls.push({ t: 'join', token, cluster: `c${cluster}`, life, ...given, ...this.#call('ok') })
  }

  take({ act, cluster, key, outcome, made }: Step): void {
    const life = this.#lives[cluster] ?? 0
    if (act === 'evict') {
      const gone = [...this.#records.keys()].filter((one) => one.startsWith(`c${cluster}/`))
      this.#calls.push({ t: 'end', how: 'evicted', cluster: `c${cluster}`, life, ...this.#call('ok') })
      this.#show(gone.map((one) => ({ key: one })))
      this.join(cluster)
      return
    }
    const version = (this.#version += 1)
    const name = keyOf(cluster, key)
    this.#calls.push({ t: act, cluster: `c${cluster}`, life, key: name, version, ...this.#call(outcome) })
    if (outcome === 'failed' || (outcome === 'unknown' && !made)) return
    if (act === 'remove') this.#show(this.#records.has(name) ? [{ key: name }] : [])
    else this.#show([{ key: name, value: this.#value({ version }) }, ...this.#address(key)])
  }

  history(): History {
    const records = new Map(this.#records)
    const members = this.#lives.map((_, i) => ({
      ...{ cluster: `c${i}`, index: i + 1, blocks: [`244.${i}.0.0/16`], isMember: true },
    }))
    const tokens = [...this.#used].map(([id, cluster]) => ({ id, usesLeft: 0, usedBy: [cluster] }))
    const watchers = ['w0', 'w1'].map((watcher) => ({ watcher, epoch: 'e', records: new Map(records) }))
    const look: QuietLook = { at: (this.#now += 1), epoch: 'e', records, members, tokens, watchers }
    return { calls: this.#calls, observations: this.#observations, looks: [look] }
  }

  #address(key: number): SeenRecord[] {
    const name = addressKey(key)
    return this.#records.has(name) ? [] : [{ key: name, value: this.#value({ ips: [`245.0.0.${key + 1}`] }) }]
  }

  #value(what: Pick<RecordValue, 'version' | 'ips'>): RecordValue {
    return { ...what, revision: (this.#revision += 1), text: JSON.stringify(what) }
  }

  #call(outcome: Outcome): { start: number; end: number; outcome: Outcome } {
    const start = (this.#now += 1)
    return { start, end: (this.#now += 1), outcome }
  }

  #show(changes: readonly SeenRecord[]): void {
    if (changes.length === 0) return
    for (const { key, value } of changes) {
      if (value === undefined) this.#records.delete(key)
      else this.#records.set(key, value)
    }
    if (changes.every(({ value }) => value === undefined)) this.#revision += 1
    const { value: revision } = { value: this.#revision }
    for (const watcher of ['w0', 'w1']) {
      this.#observations.push({ watcher, at: this.#now, epoch: 'e', revision, changes })
    }
  }
}
