/**
 * The rows of joins that wait for approval. Their number is bounded, each token and id has one key, and a row ends with
 * its token.
 */
import fc from 'fast-check'
import t, { type Test } from 'tap'
import {
  ACCEPTED_MS,
  MAX_WAITING,
  MAX_WAITING_OF_TOKEN,
  type WaitingAnswer,
  type WaitingAsk,
  askForApproval,
  isAccepted,
  pruneWaiting,
  usesHeld,
  waitingJoin,
  waitingJoins,
  waitingKey,
  withdrawJoin,
} from '../../../broker/members/waiting-joins.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { Transaction } from '../../../broker/store/record-log.ts'
import { facts } from '../support/harness.ts'

const HOUR = 3_600_000
const TOKEN = { id: 't1', expiresAtMs: HOUR }

function ask(change: Partial<WaitingAsk> = {}): WaitingAsk {
  const who = { cluster: 'paris', token: TOKEN, keyHash: 'key-1', facts: facts(), address: '192.0.2.1' }
  return { ...who, renumbers: [], nowMs: 0, ...change }
}

const named = (answer: WaitingAnswer): string =>
  answer.t === 'waits' ? `waits${answer.news ? ' news' : ''}` : answer.t === 'full' ? `full of ${answer.of}` : answer.t

/** Runs the steps on one store, each in its own transaction, and compares the result of each. */
async function play(
  t: Test,
  steps: readonly (readonly [say: string, run: (tx: Transaction) => unknown, want: unknown])[],
) {
  const log = openMemoryLog()
  for (const [say, run, want] of steps) t.same(await log.transact(run), want, say)
  await log.close()
}

function answer(tx: Transaction, change: Partial<{ acceptedAtMs: number; refusedAtMs: number }>): void {
  const key = waitingKey('paris', TOKEN.id)
  const row = tx.get('waiting', key)
  if (row !== undefined) tx.put('waiting', key, { ...row, ...change })
}

t.test('from the first question to the answer', async (t) => {
  const other = facts(['10.99.0.0/16'])
  await play(t, [
    ['the first', (tx) => named(askForApproval(tx, ask())), 'waits news'],
    ['the same again', (tx) => named(askForApproval(tx, ask({ nowMs: 1000 }))), 'waits'],
    ['another key with this token and id', (tx) => named(askForApproval(tx, ask({ keyHash: 'key-2' }))), 'otherKey'],
    [
      'a newer release of it',
      (tx) => named(askForApproval(tx, ask({ facts: facts(undefined, { version: '9' }) }))),
      'waits',
    ],
    ['not accepted', (tx) => isAccepted(tx, 't1', ask()), false],
    ['accepted', (tx) => (answer(tx, { acceptedAtMs: 5000 }), isAccepted(tx, 't1', ask({ nowMs: 5000 }))), true],
    ['but not with another key', (tx) => isAccepted(tx, 't1', ask({ keyHash: 'key-2', nowMs: 5000 })), false],
    ['it asks', (tx) => named(askForApproval(tx, ask({ nowMs: 6000 }))), 'accepted'],
    [
      'with other addresses than those that were shown',
      (tx) => named(askForApproval(tx, ask({ facts: other }))),
      'waits news',
    ],
    ['and has to be accepted anew', (tx) => isAccepted(tx, 't1', ask()), false],
    [
      'refused',
      (tx) => (answer(tx, { refusedAtMs: 9000 }), named(askForApproval(tx, ask({ facts: other })))),
      'refused',
    ],
    ['with other facts too', (tx) => named(askForApproval(tx, ask())), 'refused'],
    ['who was refused takes nothing back', (tx) => withdrawJoin(tx, 't1', 'key-1', 9000), undefined],
  ])
})

t.test('who takes it back is forgotten; others cannot do that for him', async (t) => {
  await play(t, [
    ['it asks', (tx) => named(askForApproval(tx, ask())), 'waits news'],
    ['another key', (tx) => withdrawJoin(tx, 't1', 'key-2', 0), undefined],
    ['another token', (tx) => withdrawJoin(tx, 't2', 'key-1', 0), undefined],
    [
      'a use of the token is held',
      (tx) => usesHeld(tx, 't1', { cluster: 'paris', keyHash: 'key-2', nowMs: 0 }).length,
      1,
    ],
    ['not against itself', (tx) => usesHeld(tx, 't1', { cluster: 'paris', keyHash: 'key-1', nowMs: 0 }).length, 0],
    ['itself', (tx) => withdrawJoin(tx, 't1', 'key-1', 0)?.cluster, 'paris'],
    ['twice', (tx) => withdrawJoin(tx, 't1', 'key-1', 0), undefined],
    ['the token is free', (tx) => usesHeld(tx, 't1', { cluster: 'oslo', nowMs: 0 }).length, 0],
    ['and takes another key', (tx) => named(askForApproval(tx, ask({ keyHash: 'key-2' }))), 'waits news'],
  ])
})

t.test('a token that ends ends the waiting, but for a moment after a yes', async (t) => {
  await play(t, [
    ['it asks', (tx) => named(askForApproval(tx, ask())), 'waits news'],
    ['to the last moment', (tx) => waitingJoin(tx, 'paris', 't1', HOUR - 1)?.keyHash, 'key-1'],
    ['over', (tx) => waitingJoin(tx, 'paris', 't1', HOUR), undefined],
    [
      'accepted in the last moment',
      (tx) => (answer(tx, { acceptedAtMs: HOUR - 1 }), isAccepted(tx, 't1', ask({ nowMs: HOUR + 1 }))),
      true,
    ],
    ['not for ever', (tx) => isAccepted(tx, 't1', ask({ nowMs: HOUR + ACCEPTED_MS })), false],
    ['swept up', (tx) => pruneWaiting(tx, HOUR + ACCEPTED_MS).map(({ cluster }) => cluster), ['paris']],
    ['once', (tx) => pruneWaiting(tx, HOUR + ACCEPTED_MS), []],
  ])
})

t.test('it is written that somebody asked, and not each time', async (t) => {
  const log = openMemoryLog()
  await log.transact((tx) => askForApproval(tx, ask()))
  const { revision } = log
  for (let s = 1; s < 60; s += 1) await log.transact((tx) => askForApproval(tx, ask({ nowMs: s * 1000 })))
  t.equal(log.revision, revision, 'a minute of questions costs no write')
  await log.transact((tx) => askForApproval(tx, ask({ nowMs: 61_000 })))
  t.equal(log.get('waiting', 'paris/t1')?.lastAskedMs, 61_000)
  await log.transact((tx) => askForApproval(tx, ask({ nowMs: 62_000, address: '192.0.2.9' })))
  t.equal(log.get('waiting', 'paris/t1')?.address, '192.0.2.9', 'where from is told at once')
  t.equal(log.get('waiting', 'paris/t1')?.sinceMs, 0)
  await log.close()
})

t.test('the list is bounded: of one token, and of all', async (t) => {
  const log = openMemoryLog()
  const asked = (token: string, cluster: string) =>
    log.transact((tx) => named(askForApproval(tx, ask({ cluster, token: { id: token, expiresAtMs: HOUR } }))))
  for (let i = 0; i < MAX_WAITING_OF_TOKEN; i += 1) t.equal(await asked('greedy', `c${i}`), 'waits news')
  t.equal(await asked('greedy', 'one-more'), 'full of token')
  t.equal(await asked('greedy', 'c0'), 'waits', 'who is in it stays in it')
  for (let i = MAX_WAITING_OF_TOKEN; i < MAX_WAITING; i += 1) t.equal(await asked(`t${i}`, `c${i}`), 'waits news')
  t.equal(await asked('late', 'late'), 'full of all')
  t.equal(log.count('waiting'), MAX_WAITING)
  await log.close()
})

const TOKENS = ['a', 'b', 'c']
const step = fc.record({
  act: fc.constantFrom('ask', 'accept', 'refuse', 'withdraw', 'prune'),
  cluster: fc.constantFrom('paris', 'oslo'),
  token: fc.constantFrom(...TOKENS),
  key: fc.constantFrom('k1', 'k2', 'k3'),
  afterMs: fc.nat({ max: HOUR / 4 }),
})

t.test('whatever happens: one key to a token and id, and a yes is for the key that was shown', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const log = openMemoryLog()
      const holders = new Map<string, string>()
      let nowMs = 0
      for (const { act, cluster, token, key, afterMs } of steps) {
        nowMs += afterMs
        const id = waitingKey(cluster, token)
        await log.transact((tx) => {
          const row = waitingJoin(tx, cluster, token, nowMs)
          if (row === undefined) holders.delete(id)
          const given = { cluster, token: { id: token, expiresAtMs: HOUR }, keyHash: key, nowMs }
          if (act === 'ask') {
            const said = askForApproval(tx, ask(given))
            if (said.t === 'waits' && said.news) holders.set(id, key)
            if (said.t === 'accepted' && holders.get(id) !== key) throw new Error('another key was let in')
          } else if (act === 'withdraw') {
            const gone = withdrawJoin(tx, token, key, nowMs)
            if (gone !== undefined) holders.delete(waitingKey(gone.cluster, gone.token))
          } else if (act === 'prune') pruneWaiting(tx, nowMs)
          else if (row !== undefined)
            tx.put('waiting', id, { ...row, ...(act === 'accept' ? { acceptedAtMs: nowMs } : { refusedAtMs: nowMs }) })
        })
        for (const one of waitingJoins(log, nowMs)) {
          const holder = holders.get(waitingKey(one.cluster, one.token))
          if (holder !== one.row.keyHash) throw new Error(`${one.cluster} is held by ${one.row.keyHash}, not ${holder}`)
        }
      }
      await log.close()
    }),
  )
})
