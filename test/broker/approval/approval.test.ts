/**
 * Joins that an operator must approve, at a real broker. A joining cluster that waits receives nothing, and is admitted
 * only with the key that it showed.
 */
import type { KeyObject } from 'node:crypto'
import t, { type Test } from 'tap'
import { asOperator } from '../../support/broker-store.ts'
import type { JoinRequest } from '../../../protocol/broker-api.ts'
import { createKey, keyFingerprint, publicKeyHash } from '../../../protocol/identity/keys.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { failure, messageOf } from '../../support/failure.ts'
import { MemorySink, shortLine } from '../audit/audit-lines.ts'
import { type Harness, facts, joinRequest, startBroker } from '../support/harness.ts'

const MINUTE = 60_000
const never = new AbortController().signal

async function started(t: Test, approve = true) {
  const sink = new MemorySink()
  const harness = await startBroker(t, { auditSink: sink, config: { approve } })
  let seen = 0
  const lines = async () => {
    await harness.log.refresh()
    await harness.audit.flush(never)
    const fresh = sink.lines().slice(seen)
    seen += fresh.length
    return fresh
  }
  return { ...harness, lines }
}

/** A joining cluster, which can repeat its request with the same key. */
class Joiner {
  readonly key: KeyObject
  readonly fingerprint: string
  readonly #harness: Harness
  readonly #request: JoinRequest

  static async make(harness: Harness, change: Partial<JoinRequest> & { token?: string } = {}): Promise<Joiner> {
    const key = createKey()
    const request = await joinRequest(harness, { csr: await createCsr(key), waits: true, ...change })
    return new Joiner(harness, key, request)
  }

  private constructor(harness: Harness, key: KeyObject, request: JoinRequest) {
    this.#harness = harness
    this.#request = request
    this.key = key
    this.fingerprint = keyFingerprint(publicKeyHash(key))
  }

  ask(change: Partial<JoinRequest> = {}) {
    const nowMs = this.#harness.clock.now()
    return this.#harness.broker.join({ ...this.#request, nowMs, ...change }, '192.0.2.1')
  }

  /** Returns `joined`, or the reason code of the refusal. */
  async outcome(change: Partial<JoinRequest> = {}): Promise<string> {
    const done = this.ask(change).then(() => 'joined')
    return done.catch((error: unknown) => (error as { reason: string }).reason)
  }

  withdraw(): Promise<void> {
    return this.#harness.broker.withdrawJoin({ ...this.#request, withdraw: true }, '192.0.2.1')
  }
}

t.test('who waits gets nothing, is shown, and is let in with the key that it showed', async (t) => {
  const harness = await started(t)
  const { tokens, log, broker, clock } = harness
  const made = await tokens.create({})
  const paris = await Joiner.make(harness, { token: made.text, cluster: 'paris' })
  await harness.lines()
  const waits = await failure(paris.ask())
  t.match(waits, { reason: 'JoinAwaitsApproval', code: 'FailedPrecondition' })
  t.match(waits.message, `sealane cluster accept paris --fingerprint ${paris.fingerprint}`)
  t.equal(log.get('member', 'paris'), undefined, 'no number, no addresses, no certificate')
  t.equal(log.count('record'), 0)
  t.match(await tokens.waiting(), [
    {
      id: 'paris',
      state: 'waiting',
      fingerprint: paris.fingerprint,
      token: made.id,
      address: '192.0.2.1',
      podCIDRs: ['10.42.0.0/16'],
      serviceCIDRs: ['10.43.0.0/16'],
      sinceMs: clock.now(),
      untilMs: made.expiresAtMs,
      isMember: false,
    },
  ])
  const waiting = await harness.lines()
  t.same(waiting.map(shortLine), ['join.waiting ok paris'])
  t.match(waiting[0]?.what.details, { fingerprint: paris.fingerprint, token: made.id, podCIDRs: ['10.42.0.0/16'] })
  await broker.tidy()
  t.equal(await paris.outcome(), 'JoinAwaitsApproval')
  t.same((await harness.lines()).map(shortLine), [], 'asking again is no news')

  const accepted = await tokens.accept({ cluster: 'paris', fingerprint: paris.fingerprint })
  t.same(accepted, { id: 'paris', fingerprint: paris.fingerprint, token: made.id, repeated: false })
  t.same(await tokens.accept({ cluster: 'paris' }), { ...accepted, repeated: true })
  t.match(await tokens.waiting(), [{ state: 'accepted' }])
  t.equal(log.get('member', 'paris'), undefined, 'it has to come for it')
  const response = await paris.ask()
  t.equal(response.clusterIndex, 1)
  t.same(await tokens.waiting(), [])
  t.match(await tokens.list(), [{ state: 'used', usesLeft: 0, usedBy: ['paris'], heldBy: [] }])
  const lines = await harness.lines()
  t.same(lines.map(shortLine), ['cluster.accept ok paris', 'cluster.accept ok paris', 'join ok paris'])
  t.match(lines[0]?.who, { kind: 'operator' })
  t.match(lines[0]?.what.details, { fingerprint: paris.fingerprint, address: '192.0.2.1', repeated: false })
  t.equal(await paris.outcome(), 'joined', 'the answer was lost: the same request again')
  t.match(await tokens.accept({ cluster: 'paris', fingerprint: paris.fingerprint }), { repeated: true })
  t.match(await failure(tokens.accept({ cluster: 'paris', fingerprint: keyFingerprint('00'.repeat(32)) })), {
    reason: 'FingerprintDiffers',
  })
})

t.test('the token is bound to the key that waits, and free again when that is taken back', async (t) => {
  const harness = await started(t)
  const { text, id } = await harness.tokens.create({})
  const paris = await Joiner.make(harness, { token: text, cluster: 'paris' })
  const thief = await Joiner.make(harness, { token: text, cluster: 'oslo' })
  const twin = await Joiner.make(harness, { token: text, cluster: 'paris' })
  t.equal(await paris.outcome(), 'JoinAwaitsApproval')
  t.match(
    await messageOf(thief.ask()),
    `token: ${id} is in use by a request with another key, as cluster "paris", which has waited for approval since 2026-01-01T00:00:00Z: `,
  )
  t.equal(await twin.outcome(), 'TokenAwaitsApproval')
  t.match(await harness.tokens.list(), [{ state: 'waiting', usesLeft: 1, heldBy: ['paris'] }])
  t.match(await failure(thief.withdraw()), { reason: 'WaitingUnknown' }, 'another key takes nothing back')
  await harness.lines()
  await paris.withdraw()
  t.same((await harness.lines()).map(shortLine), ['join.withdraw ok paris'])
  t.match(await failure(paris.withdraw()), { reason: 'WaitingUnknown' })
  t.match(await harness.tokens.list(), [{ state: 'valid', heldBy: [] }])
  t.equal(await thief.outcome(), 'JoinAwaitsApproval', 'the token is free')
  t.equal(await paris.outcome(), 'TokenAwaitsApproval')
})

t.test('who was accepted and takes it back does not join', async (t) => {
  const harness = await started(t)
  const paris = await Joiner.make(harness, { cluster: 'paris' })
  await paris.outcome()
  await harness.tokens.accept({ cluster: 'paris' })
  await paris.withdraw()
  t.equal(await paris.outcome(), 'JoinAwaitsApproval', 'it waits anew')
  t.match(await harness.tokens.waiting(), [{ state: 'waiting' }])
})

t.test('refused: said to this key until its token ends, and audited', async (t) => {
  const harness = await started(t)
  const { text } = await harness.tokens.create({ uses: 2 })
  const paris = await Joiner.make(harness, { token: text, cluster: 'paris' })
  await paris.outcome()
  await harness.lines()
  t.match(await harness.tokens.refuse({ cluster: 'paris' }), { fingerprint: paris.fingerprint, repeated: false })
  t.match(await harness.tokens.refuse({ cluster: 'paris' }), { repeated: true })
  t.equal(
    await messageOf(paris.ask()),
    'approval: an operator of the broker refused cluster "paris" at 2026-01-01T00:00:00Z',
  )
  t.match(await failure(paris.ask()), { reason: 'JoinRefusedByOperator', code: 'PermissionDenied' })
  t.same((await harness.lines()).map(shortLine), [
    'cluster.refuse ok paris',
    'cluster.refuse ok paris',
    'join refused JoinRefusedByOperator paris',
    'join refused JoinRefusedByOperator paris',
  ])
  t.match(await failure(harness.tokens.accept({ cluster: 'paris' })), { reason: 'JoinRefusedByOperator' })
  const again = await Joiner.make(harness, { token: text, cluster: 'paris' })
  t.equal(await again.outcome(), 'TokenAwaitsApproval', 'nor with another key of the same token')
  const anew = await Joiner.make(harness, { cluster: 'paris' })
  t.equal(await anew.outcome(), 'JoinAwaitsApproval', 'a new token may ask again')
})

t.test('an accepted one that has not come yet can still be refused', async (t) => {
  const harness = await started(t)
  const paris = await Joiner.make(harness, { cluster: 'paris' })
  await paris.outcome()
  await harness.tokens.accept({ cluster: 'paris' })
  await harness.tokens.refuse({ cluster: 'paris' })
  t.equal(await paris.outcome(), 'JoinRefusedByOperator')
})

t.test('two tokens, two keys, one id: both are shown, and only a fingerprint chooses', async (t) => {
  const harness = await started(t)
  const paris = await Joiner.make(harness, { cluster: 'paris' })
  const other = await Joiner.make(harness, { cluster: 'paris' })
  for (const one of [paris, other]) t.equal(await one.outcome(), 'JoinAwaitsApproval')
  const ambiguous = await failure(harness.tokens.accept({ cluster: 'paris' }))
  t.match(ambiguous, { reason: 'WaitingAmbiguous' })
  for (const { fingerprint } of [paris, other]) t.match(ambiguous.message, fingerprint)
  t.match(await failure(harness.tokens.refuse({ cluster: 'paris' })), { reason: 'WaitingAmbiguous' })
  await harness.tokens.accept({ cluster: 'paris', fingerprint: paris.fingerprint })
  t.equal(await other.outcome(), 'JoinAwaitsApproval')
  t.equal(await paris.outcome(), 'joined')
  t.match(await harness.tokens.waiting(), [{ fingerprint: other.fingerprint, isMember: true }])
  await harness.tokens.accept({ cluster: 'paris', fingerprint: other.fingerprint })
  t.equal(await other.outcome(), 'ClusterIdTaken', 'a yes does not take the id from a member')
})

t.test('what an operator says wrong is named', async (t) => {
  const harness = await started(t)
  const paris = await Joiner.make(harness, { cluster: 'paris' })
  t.equal(
    await messageOf(harness.tokens.accept({ cluster: 'paris' })),
    'cluster "paris" does not wait for approval; no cluster waits',
  )
  await paris.outcome()
  t.match(await failure(harness.tokens.accept({ cluster: 'oslo' })), {
    reason: 'WaitingUnknown',
    message: 'cluster "oslo" does not wait for approval; the waiting clusters are paris',
  })
  const wrong = keyFingerprint('ab'.repeat(32))
  t.match(await failure(harness.tokens.accept({ cluster: 'paris', fingerprint: wrong })), {
    reason: 'FingerprintDiffers',
    message: `cluster "paris" waits with a different key: ${paris.fingerprint} (from 192.0.2.1 since 2026-01-01T00:00:00Z)`,
  })
  t.match(await failure(harness.tokens.accept({ cluster: 'paris', fingerprint: 'SHA256:short' })), {
    reason: 'InvalidValue',
  })
  t.match(await failure(harness.tokens.accept({ cluster: 'Paris!' })), { name: 'InvalidNameError' })
  t.equal(await paris.outcome(), 'JoinAwaitsApproval', 'nothing was done')
})

t.test('what was accepted are the addresses that were shown', async (t) => {
  const harness = await started(t)
  const paris = await Joiner.make(harness, { cluster: 'paris' })
  await paris.outcome()
  await harness.tokens.accept({ cluster: 'paris' })
  t.equal(await paris.outcome({ facts: facts(['10.99.0.0/16']) }), 'JoinAwaitsApproval')
  t.match(await harness.tokens.waiting(), [{ state: 'waiting', podCIDRs: ['10.99.0.0/16'] }])
  t.equal(await paris.outcome(), 'JoinAwaitsApproval', 'and those of before are to be shown again, too')
})

t.test('a join that cannot be granted anyway is refused at once, and does not wait', async (t) => {
  const harness = await started(t)
  const paris = await Joiner.make(harness, { cluster: 'paris' })
  await paris.outcome()
  await harness.tokens.accept({ cluster: 'paris' })
  await paris.ask()
  const late = await Joiner.make(harness, { cluster: 'paris' })
  t.equal(await late.outcome(), 'ClusterIdTaken')
  const space = await Joiner.make(harness, { cluster: 'oslo', facts: facts(['203.0.113.0/28']) })
  t.equal(await space.outcome(), 'PublicSpaceNotAllowed')
  const broken = await Joiner.make(harness, { cluster: 'oslo', csr: Buffer.from('none') })
  t.equal(await broken.outcome(), 'InvalidValue')
  t.same(await harness.tokens.waiting(), [])
})

t.test('a token ends while somebody waits; a yes in the last moment is heard', async (t) => {
  const harness = await started(t)
  const { tokens, clock, broker } = harness
  const [paris, oslo] = [
    await Joiner.make(harness, { cluster: 'paris' }),
    await Joiner.make(harness, { cluster: 'oslo' }),
  ]
  for (const one of [paris, oslo]) await one.outcome()
  await clock.advance(15 * MINUTE - 1)
  await tokens.accept({ cluster: 'paris' })
  await harness.lines()
  await clock.advance(MINUTE)
  await broker.tidy()
  t.same((await harness.lines()).map(shortLine), ['join.waiting refused TokenExpired oslo'])
  t.equal(await oslo.outcome(), 'TokenExpired')
  t.match(await failure(tokens.accept({ cluster: 'oslo' })), { reason: 'WaitingUnknown' })
  t.equal(await paris.outcome(), 'joined')
})

t.test('a token that is revoked lets nobody in who waits with it', async (t) => {
  const harness = await started(t)
  const { text, id } = await harness.tokens.create({})
  const paris = await Joiner.make(harness, { token: text, cluster: 'paris' })
  await paris.outcome()
  await harness.tokens.accept({ cluster: 'paris' })
  await harness.tokens.revoke(id)
  t.same(await harness.tokens.waiting(), [])
  t.equal(await paris.outcome(), 'TokenRevoked')
})

t.test('a token that a rotation or a restore ends: who waits with it is told, and so is the audit log', async (t) => {
  const harness = await started(t)
  const { log, broker, tokens, clock } = harness
  const { text, id } = await tokens.create({})
  const paris = await Joiner.make(harness, { token: text, cluster: 'paris' })
  await paris.outcome()
  await harness.lines()
  await log.transact((tx) => {
    const row = tx.get('token', id)
    if (row !== undefined) tx.put('token', id, { ...row, revokedAtMs: clock.now() })
  })
  t.same(await tokens.waiting(), [])
  t.match(await failure(tokens.accept({ cluster: 'paris' })), { reason: 'TokenRevoked' }, 'the operator hears why')
  t.equal(await paris.outcome(), 'TokenRevoked')
  await broker.tidy()
  t.same((await harness.lines()).map(shortLine), [
    'cluster.accept refused TokenRevoked paris',
    'join refused TokenRevoked paris',
    'join.waiting refused TokenRevoked paris',
  ])

  const other = await tokens.create({})
  await (await Joiner.make(harness, { token: other.text, cluster: 'oslo' })).outcome()
  await harness.lines()
  await log.transact((tx) => tx.remove('token', other.id))
  await broker.tidy()
  t.same((await harness.lines()).map(shortLine), ['join.waiting refused TokenUnknown oslo'])
})

t.test('a joiner of the last release is told, and its token stays good', async (t) => {
  const harness = await started(t)
  const old = await Joiner.make(harness, { cluster: 'paris', waits: false })
  t.match(await failure(old.ask()), {
    reason: 'ApprovalNotSupported',
    message: /this release of Sealane does not support that: join with the broker's release; the token is still valid$/,
  })
  t.same(await harness.tokens.waiting(), [])
  t.match(await harness.tokens.list(), [{ state: 'valid' }])
})

t.test('without --approve only the token asks; a look tells nothing before the operator has decided', async (t) => {
  const harness = await started(t, false)
  const plain = await Joiner.make(harness, { cluster: 'milano', waits: false })
  t.equal(await plain.outcome(), 'joined')
  const { text } = await harness.tokens.create({ approve: true })
  t.same((await harness.tokens.list()).map(({ approve }) => approve).sort(), [false, true])
  const paris = await Joiner.make(harness, { token: text, cluster: 'paris' })
  const look = await joinRequest(harness, { token: text, cluster: 'paris' })
  t.match(await failure(harness.broker.lookAtJoin(look, '192.0.2.1')), { reason: 'JoinAwaitsApproval' })
  t.equal(await paris.outcome(), 'JoinAwaitsApproval')
  t.match(
    await harness.tokens.waiting(),
    [{ id: 'paris', renumbers: ['milano'] }],
    'the operator is told whom it changes',
  )
})

t.test('the list outlives the broker', async (t) => {
  const first = await startBroker(t, { config: { approve: true } })
  const paris = await Joiner.make(first, { cluster: 'paris' })
  await paris.outcome()
  await first.tokens.accept({ cluster: 'paris' })
  await first.stop()
  const second = await startBroker(t, { stateDir: first.stateDir, clock: first.clock, config: { approve: true } })
  t.match(await second.tokens.waiting(), [{ id: 'paris', state: 'accepted', fingerprint: paris.fingerprint }])
})

t.test('asking too fast is refused for a moment, and by one key does not slow down another', async (t) => {
  const harness = await started(t)
  const { text } = await harness.tokens.create({})
  const paris = await Joiner.make(harness, { token: text, cluster: 'paris' })
  await paris.outcome()
  const thief = await Joiner.make(harness, { token: text, cluster: 'paris' })
  for (let i = 0; i < 30; i += 1) await thief.outcome()
  t.equal(await thief.outcome(), 'TooManyAttempts')
  t.equal(await paris.outcome(), 'JoinAwaitsApproval')
  for (let i = 0; i < 30; i += 1) await paris.outcome()
  t.equal(await paris.outcome(), 'TooManyAttempts')
  await harness.clock.advance(MINUTE)
  await harness.tokens.accept({ cluster: 'paris' })
  t.equal(await paris.outcome(), 'joined')
})

t.test('who waits is counted: neither who was answered nor whose token has ended', async (t) => {
  const harness = await started(t)
  const { tokens, clock, broker, log, metrics } = harness
  const counted = async () => /waiting_joins\S* (\d+)/.exec(await metrics.text())?.[1]
  const status = async () => {
    const { log: found, problems } = await asOperator(harness.stateDir, clock, (admin) => admin.status())
    const said = problems.find(({ text }) => text.startsWith('number of clusters that wait'))?.text
    return ['waiting' in found ? found.waiting : found.why, said]
  }
  for (const cluster of ['paris', 'oslo', 'lima']) await (await Joiner.make(harness, { cluster })).outcome()
  t.equal(await counted(), '3')
  t.same(await status(), [3, 'number of clusters that wait for approval: 3'])
  await tokens.accept({ cluster: 'paris' })
  await tokens.refuse({ cluster: 'oslo' })
  await log.refresh()
  t.equal(await counted(), '1', 'the cluster that no operator has answered')
  t.same(await status(), [1, 'number of clusters that wait for approval: 1'])
  await clock.advance(15 * MINUTE)
  broker.reportContact()
  t.equal(await counted(), '0', 'its token has ended')
  t.same(await status(), [0, undefined])
})
