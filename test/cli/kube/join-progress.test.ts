/** The progress of the agent's join, read from its Secret. */
import t from 'tap'
import { joinProgress } from '../../../cli/cluster/watch-join.ts'
import { secretIdentity } from '../../../protocol/membership/secret-identity.ts'
import { endOfIdentity } from '../../../protocol/membership/join.ts'
import { failure } from '../../support/failure.ts'
import { identityParts } from '../../support/identity-parts.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'
import { MemorySecret } from '../../support/memory-secret.ts'

const { signal } = new AbortController()
const NAMESPACE = 'sealane-system'

t.test('joining: refused is final, about the token that lies there; the rest is waited for', async (t) => {
  const admin = new MemoryAdmin()
  const look = (secret: MemorySecret) =>
    joinProgress(admin, { secret, settings: 'kind: Site', namespace: NAMESPACE, nowMs: 0 }, signal)
  const secret = new MemorySecret({ token: 'sealane1.one' })
  const store = secretIdentity(secret, 'kind: Site')
  t.strictSame(await look(secret), { what: 'agent', why: undefined })
  await store.problem({ text: 'broker at b:1: connection refused' })
  t.strictSame(await look(secret), { what: 'agent', why: 'broker at b:1: connection refused' })
  await store.problem({ text: 'cluster: "c2" is already a member', refused: 'sealane1.one' })
  const refused = await failure(look(secret))
  t.equal(refused.message, 'cluster: "c2" is already a member')
  t.match(refused, { hint: 'fix that, or create a new token (sealane token create), and run this command again' })
  t.equal(await store.isRefused('sealane1.one\n'), true)
  t.equal(await secretIdentity(secret, 'another').isRefused('sealane1.one'), false, 'with other settings it may do')
  await secretIdentity(secret, 'another').problem({ text: 'no', refused: 'sealane1.one' })
  t.strictSame(await look(secret), { what: 'agent', why: 'no' }, 'an agent of earlier settings speaks of those')
  await store.problem({ text: 'cluster: "c2" is already a member', refused: 'sealane1.one' })
  await secret.change({ data: { token: 'sealane1.two' } })
  t.strictSame(await look(secret), { what: 'agent', why: 'cluster: "c2" is already a member' }, 'not about this token')
  t.equal(await store.isRefused('sealane1.two'), false)
})

t.test('joining: what to tell the operator of the broker is printed at once, and may take its time', async (t) => {
  const secret = new MemorySecret({ token: 'sealane1.one' })
  const place = { secret, settings: 'kind: Site', namespace: NAMESPACE, nowMs: 0, approvalMs: 900_000 }
  const text = 'c2 waits for approval\nby an operator'
  await secretIdentity(secret, 'kind: Site').problem({ text, reason: 'JoinAwaitsApproval' })
  t.strictSame(await joinProgress(new MemoryAdmin(), place, signal), {
    what: 'c2 waits for approval by an operator',
    mayTakeMs: 900_000,
  })
})

t.test('joining: an identity is all that is waited for; looking writes nothing', async (t) => {
  const secret = new MemorySecret({ token: 'sealane1.late', ...(await identityParts()) })
  const place = { secret, settings: 'kind: Site', namespace: NAMESPACE, nowMs: Date.now() }
  secret.failure = new Error('nothing is to be written')
  t.equal(await joinProgress(new MemoryAdmin(), place, signal), undefined)
})

t.test('joining: an identity that has ended is none, and the token stays for the agent', async (t) => {
  const secret = new MemorySecret({ token: 'sealane1.new', ...(await identityParts()) })
  const known = await secretIdentity(secret).read()
  const endsAtMs = known === undefined ? 0 : endOfIdentity(known)
  const place = { secret, settings: 'kind: Site', namespace: NAMESPACE }
  const look = (nowMs: number) => joinProgress(new MemoryAdmin(), { ...place, nowMs }, signal)
  t.strictSame(await look(endsAtMs), { what: 'agent', why: undefined })
  t.equal(secret.content?.data['token'], 'sealane1.new')
  t.equal(await look(endsAtMs - 1), undefined)
})
