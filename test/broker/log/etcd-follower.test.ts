/** A replica that has missed changes lists the store, and continues only after the list has succeeded. */
import t from 'tap'
import { EtcdError } from '../../../broker/store/etcd/client/etcd-connection.ts'
import { EtcdFollower, type ReplicaState } from '../../../broker/store/etcd/etcd-replica.ts'
import type { EtcdReader } from '../../../broker/store/etcd/etcd-reader.ts'
import { WriteTurns } from '../../../broker/store/etcd/write-order.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'

t.test('a list that fails is tried until it works', async (t) => {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const stop = new AbortController()
  const calls: string[] = []
  let failures = 3
  const reader = {
    async *follow(after: number, signal: AbortSignal) {
      calls.push(`follow ${after}`)
      if (calls.length === 1) yield {}
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    },
    wants: () => Promise.resolve([]),
    list: () => {
      calls.push('list')
      if ((failures -= 1) >= 0) throw new EtcdError('unreachable', 'etcd at h: list: no answer')
      return Promise.resolve({})
    },
  } as unknown as EtcdReader
  const state = {
    asOf: 7,
    take: () => {
      throw new EtcdError('compacted', 'revisions 8 to 9: 1 of them came')
    },
    takeListing: () => calls.push('taken'),
  } as unknown as ReplicaState
  const running = new EtcdFollower({ reader, state, turns: new WriteTurns(clock, 'a'), clock, logger }).run(stop.signal)
  await eventually(async () => {
    await clock.advance(100)
    return calls.filter((one) => one === 'follow 7').length === 2
  })
  t.strictSame(calls, ['follow 7', 'list', 'list', 'list', 'list', 'taken', 'follow 7'])
  stop.abort(new Error('over'))
  await running
})
