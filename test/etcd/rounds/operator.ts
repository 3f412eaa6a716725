/** An operator that makes tokens and evicts members by commands on the store that the brokers use. */
import { type BrokerStore, openBrokerStore } from '../../support/broker-store.ts'
import { StateError } from '../../../broker/store/record-log.ts'
import { openState } from '../../../broker/admin/command-state.ts'
import { RefusedError } from '../../../protocol/broker-api.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import type { Outcome, QuietLook } from './checker/history.ts'
import { recordValue } from './record-values.ts'
import type { Recorder } from './recorder.ts'

const clock = new SystemClock()

export class Operator {
  readonly #state: string
  readonly #recorder: Recorder
  #store: Promise<BrokerStore> | undefined

  /** `state` is the state directory of a broker, which names the store. */
  constructor(state: string, recorder: Recorder) {
    this.#state = state
    this.#recorder = recorder
  }

  /** Returns a token for one cluster; undefined when the store gives none at the moment. */
  async token(): Promise<{ readonly id: string; readonly text: string } | undefined> {
    const answered = this.#recorder.begin({ t: 'token' })
    try {
      const { id, text } = await (await this.#opened()).create({})
      answered('ok', { token: id })
      return { id, text }
    } catch (error) {
      answered(outcomeOf(error))
      return undefined
    }
  }

  /** Returns true when the store confirms that the cluster is no longer a member. */
  async evict(cluster: string, life: number): Promise<boolean> {
    const answered = this.#recorder.begin({ t: 'end', how: 'evicted', cluster, life })
    try {
      await (await this.#opened()).evict({ cluster, force: true })
      answered('ok')
      return true
    } catch (error) {
      answered(outcomeOf(error))
      return false
    }
  }

  /** Reads everything that the store holds. */
  async look(): Promise<Omit<QuietLook, 'at' | 'watchers'>> {
    const opened = await openState(this.#state, clock)
    const { log } = opened
    try {
      const records = log.list('record').map(({ key, value }) => {
        const revision = log.row('record', key)?.revision ?? 0
        return [key, recordValue(value.body, value.createdAtMs, revision)] as const
      })
      const members = log.list('member').map(({ key, value: { index, blocks, departedAtMs } }) => {
        return { cluster: key, index, blocks: Object.values(blocks), isMember: departedAtMs === undefined }
      })
      const tokens = log.list('token').map(({ key, value: { usesLeft, uses } }) => {
        return { id: key, usesLeft, usedBy: uses.map(({ cluster }) => cluster) }
      })
      return { epoch: log.epoch, records: new Map(records), members, tokens }
    } finally {
      await opened.close()
    }
  }

  async close(): Promise<void> {
    const store = await this.#store?.catch(() => undefined)
    this.#store = undefined
    await store?.close()
  }

  #opened(): Promise<BrokerStore> {
    const opening = (this.#store ??= openBrokerStore(this.#state, clock))
    void opening.catch(() => {
      if (this.#store === opening) this.#store = undefined
    })
    return opening
  }
}

/** An error with any code but "Unknown" means that the store has not written. The checker relies on this. */
function outcomeOf(error: unknown): Outcome {
  if (error instanceof RefusedError) return 'failed'
  return error instanceof StateError && error.code !== 'Unknown' ? 'failed' : 'unknown'
}
