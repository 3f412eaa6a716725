/** The agent joins with the token in its Secret, and writes into the Secret what prevents a join. */
import t, { type Test } from 'tap'
import { leaveToken } from '../../cli/installation/apply-objects.ts'
import { joinWithToken, rejoinWhenEnded } from '../../agent/membership/join-with-token.ts'
import {
  ASK_FIRST_ANNOTATION,
  PROBLEM_ANNOTATION,
  REASON_ANNOTATION,
  type SecretChange,
  secretIdentity,
} from '../../protocol/membership/secret-identity.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { MembershipChanges } from '../../kubeapi/membership.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { parseClusterId } from '../../model/ids.ts'
import { createJoinToken, parseJoinToken } from '../../protocol/identity/token.ts'
import { endOfIdentity } from '../../protocol/membership/join.ts'
import { askToLeave } from '../../protocol/membership/leave.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { rememberIdentity } from '../../agent/membership/keep-membership.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { eventually } from '../support/eventually.ts'
import { MemorySecret } from '../support/memory-secret.ts'
import { LoopbackBroker } from './loopback-broker.ts'

const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: 'test' }

function start(t: Test, secret: MemorySecret, id = 'milano', given?: () => Promise<string | undefined>) {
  const api = new MemoryApi()
  const status = new StatusBoard()
  const logger = new CapturingLogger()
  const deps = { clock: new SystemClock(), logger, metrics: createMetrics('agent'), status }
  const store = rememberIdentity({ ...deps, api }, secretIdentity(secret, '', given))
  const stop = new AbortController()
  t.teardown(() => stop.abort())
  const init = { cluster: parseClusterId(id), facts, identity: store, store: store }
  const done = joinWithToken({ ...deps, api, changes: new MembershipChanges(api) }, init, stop.signal)
  done.catch(() => undefined)
  return { api, status, store, stop, done, logger }
}

const problem = (secret: MemorySecret): string | undefined => secret.content?.annotations[PROBLEM_ANNOTATION]

t.test('a token becomes an identity, and goes', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  const { api, store, done } = start(t, secret)
  await done
  t.strictSame(Object.keys(secret.content?.data ?? {}).sort(), ['broker.json', 'ca.crt', 'cluster.crt', 'cluster.key'])
  t.equal((await store.read())?.cluster, 'milano')
  const memberships = api.cache('Membership')
  await memberships.whenSynced(AbortSignal.timeout(1000))
  t.equal(memberships.get('self')?.spec.phase, 'joined')
  t.equal(memberships.get('self')?.spec.observedAddress, undefined, 'the broker saw loopback, which tells nothing')
  await start(t, secret).done
  t.pass('the second start finds the identity and asks nobody')
})

t.test('a refused token is named, and the next one works', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const bound = await broker.tokens((store) => store.create({ cluster: 'paris' }))
  const secret = new MemorySecret({ token: bound.text })
  const { done } = start(t, secret)
  await eventually(() => problem(secret) !== undefined)
  t.equal(problem(secret), `token: ${bound.id} is for cluster "paris", not "milano"`)
  await secret.change({ data: { token: await broker.token() } })
  await done
  t.equal(problem(secret), undefined)
})

t.test('a broker that is away is waited for; the same token then works', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  await broker.stop()
  const { done } = start(t, secret)
  await eventually(() => problem(secret) !== undefined)
  t.equal(problem(secret), `broker at 127.0.0.1:${broker.port}: connection refused: nothing listens there`)
  await broker.start()
  await done
})

t.test('too many joins of strangers from its address: the same token then works', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const { addresses, caPin, clusterset, expiresAtMs } = parseJoinToken(await broker.token(), Date.now())
  const unknown = (): string => createJoinToken({ addresses, caPin, clusterset, expiresAtMs }).text()
  const stranger = async (): Promise<string> => {
    const secret = new MemorySecret({ token: unknown() })
    const { stop } = start(t, secret)
    await eventually(() => problem(secret) !== undefined)
    stop.abort()
    return problem(secret) ?? ''
  }
  await eventually(async () => (await stranger()).includes('too many joins'), { deadlineMs: 20_000, intervalMs: 0 })
  const secret = new MemorySecret({ token: unknown() })
  const { done, store } = start(t, secret)
  await eventually(() => problem(secret)?.includes('too many joins'))
  t.equal(await store.isRefused(secret.content?.data['token'] ?? ''), false, 'it may be made known yet')
  await secret.change({ data: { token: await broker.token() } })
  await done
})

t.test('without a token it waits and says for what; a stop ends it', async (t) => {
  const { status, stop, done } = start(t, new MemorySecret())
  await eventually(() => status.notReady().length > 0 && JSON.stringify(status.notReady()).includes('waiting for'))
  t.strictSame(status.notReady(), ['join: waiting for a join token in Secret sealane-system/sealane-identity'])
  stop.abort(new Error('stopped'))
  await t.rejects(done, { message: 'stopped' })
})

t.test('the answer is lost: the same token goes on with the same key', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  const first = start(t, secret)
  first.api.failure = new ClusterApiError('Unavailable', 'away')
  await t.rejects(first.done, { message: 'away' })
  t.ok(secret.content?.data['joining.key'])
  await start(t, secret).done
  t.equal(secret.content?.data['joining.key'], undefined)
})

t.test('a refused token is tried again when the refusal is taken away', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const first = new MemorySecret({ token: await broker.token() })
  const milano = start(t, first)
  await milano.done
  const secret = new MemorySecret({ token: await broker.token() })
  const { done, store } = start(t, secret)
  await eventually(() => problem(secret) !== undefined)
  t.equal(
    problem(secret)?.replace(/\S+Z(?=[,)])/g, 'TIME'),
    'cluster: "milano" is already a member (joined TIME, last seen TIME): choose another cluster id; or, if this is the ' +
      'same cluster, run "sealane leave" there first or join with a token for this id: "sealane token create --cluster-id milano"',
  )
  const token = secret.content?.data['token'] ?? ''
  t.equal(await store.isRefused(token), true)
  const identity = await milano.store.read()
  if (identity === undefined) throw new Error('it has joined')
  await askToLeave(identity, { clock: new SystemClock(), logger: new CapturingLogger() }, AbortSignal.timeout(5000))
  await leaveToken(secret, token)
  await done
  t.equal((await store.read())?.cluster, 'milano')
})

t.test('an operator decides: the agent says with which key it waits, asks on, and joins', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const secret = new MemorySecret({ token: await broker.token() })
  const first = start(t, secret)
  await eventually(() => problem(secret) !== undefined)
  const waiting = async () => (await broker.tokens((store) => store.waiting()))[0]
  const fingerprint = (await waiting())?.fingerprint ?? ''
  t.equal(
    problem(secret),
    `milano waits for approval by an operator of the broker. The fingerprint of its key is ${fingerprint}. ` +
      `On the broker, run: sealane cluster accept milano --fingerprint ${fingerprint}`,
  )
  t.equal(secret.content?.annotations[REASON_ANNOTATION], 'JoinAwaitsApproval')
  t.strictSame(first.status.notReady(), [`join: ${problem(secret) ?? ''}`])
  t.equal(await first.store.isRefused(secret.content?.data['token'] ?? ''), false, 'it is not over')
  first.stop.abort()
  await first.done.catch(() => undefined)
  const second = start(t, secret)
  await eventually(() => second.status.notReady().join().includes('waits for approval'))
  t.equal((await waiting())?.fingerprint, fingerprint, 'an agent that starts anew has the same key')
  t.equal(second.logger.lines.filter(({ message }) => message === 'join failed').length, 1, 'logged once')
  await broker.tokens((store) => store.accept({ cluster: 'milano', fingerprint }))
  await second.done
  t.equal((await second.store.read())?.cluster, 'milano')
  t.equal(problem(secret), undefined)
})

t.test('one that asks first and has to be accepted asks the operator, who is told what changes', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token({ approve: true }) })
  await secret.change({ annotations: { [ASK_FIRST_ANNOTATION]: 'true' } })
  const { done } = start(t, secret)
  const waiting = async () => (await broker.tokens((store) => store.waiting()))[0]
  const { fingerprint } = await eventually(waiting)
  await broker.tokens((store) => store.accept({ cluster: 'milano', fingerprint }))
  await done
})

t.test('an operator refuses: the agent asks no more with this token', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const secret = new MemorySecret({ token: await broker.token() })
  const { store } = start(t, secret)
  await eventually(() => problem(secret) !== undefined)
  await broker.tokens((one) => one.refuse({ cluster: 'milano' }))
  await eventually(() => problem(secret)?.includes('refused cluster "milano"'), { deadlineMs: 20_000 })
  t.equal(await store.isRefused(secret.content?.data['token'] ?? ''), true)
})

t.test('a token beside the identity is taken away', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  await start(t, secret).done
  await leaveToken(secret, await broker.token())
  const { done, logger } = start(t, secret)
  await done
  t.strictSame(Object.keys(secret.content?.data ?? {}).sort(), ['broker.json', 'ca.crt', 'cluster.crt', 'cluster.key'])
  t.strictSame(
    logger.lines.map(({ level, message }) => `${level} ${message}`),
    ['info this cluster has joined: the stored join token is removed'],
  )
  await leaveToken(secret, await broker.token())
  secret.failure = new ClusterApiError('Unavailable', 'away')
  const second = start(t, secret)
  await second.done
  t.strictSame(
    second.logger.lines.map(({ level, message }) => `${level} ${message}`),
    ['warn cannot remove a join token that is no longer needed'],
    'that holds up nothing',
  )
})

t.test('a token that comes while the identity is made is taken away', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const late = await broker.token()
  class Raced extends MemorySecret {
    override async change(change: SecretChange): Promise<void> {
      await super.change(change)
      // A second `sealane join` read the Secret a moment before.
      if (change.data?.['cluster.crt'] !== undefined) await leaveToken(this, late)
    }
  }
  const secret = new Raced({ token: await broker.token() })
  await start(t, secret).done
  t.strictSame(Object.keys(secret.content?.data ?? {}).sort(), ['broker.json', 'ca.crt', 'cluster.crt', 'cluster.key'])
})

t.test('what the broker said of a member is noted, and taken back once', async (t) => {
  const secret = new MemorySecret({})
  const store = secretIdentity(secret)
  await store.problem({ text: 'cluster "milano" was evicted' })
  t.equal(problem(secret), 'cluster "milano" was evicted')
  await store.problem(undefined)
  t.equal(problem(secret), undefined)
  secret.failure = new Error('nothing is to be written')
  await store.problem(undefined)
  t.equal(await store.dropToken(), false)
})

t.test('an identity that has ended: the agent runs on, and the next token makes another of the same id', async (t) => {
  const broker = await LoopbackBroker.start(t, { memberCertificateMs: 1000 })
  const secret = new MemorySecret({ token: await broker.token() })
  const { api, store, stop, done, logger } = start(t, secret)
  await done
  const first = await store.read()
  if (first === undefined) throw new Error('it has joined')
  const deps = {
    clock: new SystemClock(),
    logger,
    metrics: createMetrics('agent'),
    status: new StatusBoard(),
    api,
    changes: new MembershipChanges(api),
  }
  const init = { cluster: first.cluster, facts, identity: store, store: store }
  const beside = rejoinWhenEnded(deps, init, stop.signal)
  const bound = await broker.tokens((tokens) => tokens.create({ cluster: 'paris' }))
  await eventually(() => endOfIdentity(first) <= Date.now())
  await secret.change({ data: { token: bound.text } })
  await start(t, secret).done
  t.equal(secret.content?.data['token'], bound.text, 'who starts with it waits for nothing, and leaves the token there')
  await eventually(() => problem(secret) !== undefined)
  t.equal(problem(secret), `token: ${bound.id} is for cluster "paris", not "milano"`)
  t.same((await store.read())?.certificate, first.certificate, 'what there was stays')
  const own = await broker.tokens((tokens) => tokens.create({ cluster: 'milano' }))
  await leaveToken(secret, own.text)
  await eventually(() => secret.content?.data['token'] === undefined)
  const second = await store.read()
  t.equal(second?.cluster, 'milano')
  t.notSame(second?.certificate, first.certificate)
  t.equal(problem(secret), undefined)
  await leaving(api)
  await store.remove()
  await beside
  t.pass('without an identity there is nothing to renew')
})

/** Sets the phase of the Membership to leaving, as `sealane leave` does. */
async function leaving(api: MemoryApi): Promise<void> {
  const membership = api.get('Membership', 'self')
  if (membership === undefined) throw new Error('it has joined')
  await api.apply({ ...membership, spec: { ...membership.spec, phase: 'leaving' } })
}

t.test('an identity that somebody took away is put back; with a token in its place it is joined anew', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  const { api, store, stop, done, logger } = start(t, secret)
  await done
  const first = await store.read()
  if (first === undefined) throw new Error('it has joined')
  const clock = new FakeClock({ now: Date.now() })
  const deps = {
    clock,
    logger,
    metrics: createMetrics('agent'),
    status: new StatusBoard(),
    api,
    changes: new MembershipChanges(api),
  }
  const init = { cluster: first.cluster, facts, identity: store, store: store }
  const beside = rejoinWhenEnded(deps, init, stop.signal)
  beside.catch(() => undefined)
  await eventually(() => clock.pending('sleep').length > 0)
  await secretIdentity(secret).dropIdentity()
  await eventually(async () => (await clock.advance(1000), secret.content?.data['broker.json'] !== undefined))
  t.same((await store.read())?.certificate, first.certificate, 'the same identity')

  const bound = await broker.tokens((tokens) => tokens.create({ cluster: 'milano' }))
  await leaveToken(secret, bound.text)
  await secretIdentity(secret).dropIdentity()
  const advancing = setInterval(() => void clock.advance(1000), 20)
  t.teardown(() => clearInterval(advancing))
  await t.rejects(beside, { name: 'JoinedAgainError' })
  const second = await store.read()
  t.equal(second?.cluster, 'milano')
  t.notSame(second?.certificate, first.certificate)
  t.equal(secret.content?.data['token'], undefined)

  const again = rejoinWhenEnded(deps, init, stop.signal)
  await leaving(api)
  await secretIdentity(secret).dropIdentity()
  await again
  t.equal(await store.read(), undefined, 'who leaves takes it away for good')
})

t.test(
  'an identity that somebody took away is put back by the agent that acts next, from its own memory',
  async (t) => {
    const broker = await LoopbackBroker.start(t)
    const secret = new MemorySecret({ token: await broker.token() })
    const first = start(t, secret)
    await first.done
    const { certificate } = (await first.store.read())!
    const clock = new FakeClock({ now: Date.now() })
    const standby = [0, 1].map(() =>
      rememberIdentity({ clock, logger: first.logger, api: first.api }, secretIdentity(secret)),
    )
    const following = standby.map((store) => store.follow(first.stop.signal))
    await eventually(() => clock.pending('sleep').length === 2)
    // The acting agent stops, and the Secret is deleted.
    secret.content = undefined
    await clock.advance(60_000)
    t.equal(secret.content, undefined, 'who stands by writes nothing')
    secret.failure = new ClusterApiError('NotFound', 'nobody but an administrator makes the Secret')
    const { api, logger } = first
    const deps = {
      clock: new SystemClock(),
      logger,
      metrics: createMetrics('agent'),
      status: new StatusBoard(),
      api,
      changes: new MembershipChanges(api),
    }
    const [next, last] = standby as [(typeof standby)[0], (typeof standby)[0]]
    const acting = joinWithToken(
      deps,
      { cluster: parseClusterId('milano'), facts, identity: next, store: next },
      first.stop.signal,
    )
    await eventually(() =>
      logger.messages('warn').includes('the identity was removed and cannot be restored yet; retrying'),
    )
    secret.failure = undefined
    await acting
    t.same((await secretIdentity(secret).read())?.certificate, certificate, 'the same identity')

    await leaving(api)
    await secretIdentity(secret).dropIdentity()
    t.equal(await last.read(), undefined, 'a cluster that leaves gets none')
    first.stop.abort()
    await Promise.all(following)
  },
)

t.test('asked to, it joins only when somebody has agreed to what that changes for other members', async (t) => {
  const broker = await LoopbackBroker.start(t)
  await start(t, new MemorySecret({ token: await broker.token() }), 'paris').done
  const secret = new MemorySecret({ token: await broker.token() })
  await secret.change({ annotations: { [ASK_FIRST_ANNOTATION]: 'true' } })
  const { done, store } = start(t, secret)
  await eventually(() => problem(secret) !== undefined)
  t.match(problem(secret), /^other members get global addresses because .*: paris \(244\.\d+\.0\.0\/16\)\. /)
  t.equal(secret.content?.annotations[REASON_ANNOTATION], 'JoinAwaitsAgreement')
  t.equal(await store.isRefused(secret.content?.data['token'] ?? ''), false, 'it is not over')
  const members = async (): Promise<string[]> => (await broker.tokens((all) => all.members())).map(({ id }) => id)
  t.strictSame(await members(), ['paris'], 'nothing has changed for anybody')
  await secret.change({ annotations: { [ASK_FIRST_ANNOTATION]: null } })
  await done
  t.strictSame((await members()).sort(), ['milano', 'paris'])
  t.equal(problem(secret), undefined)

  const other = new MemorySecret({ token: await broker.token() })
  await other.change({ annotations: { [ASK_FIRST_ANNOTATION]: 'true' } })
  await start(t, other, 'tokyo').done
  t.equal((await members()).length, 3, 'where nobody gets other addresses it just joins')
})

t.test('what an installer noted beside a token goes with the token', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({})
  const noted = () => ASK_FIRST_ANNOTATION in (secret.content?.annotations ?? {})
  const bring = async (): Promise<void> => leaveToken(secret, await broker.token(), true)
  await bring()
  const { done, store } = start(t, secret)
  await done
  t.equal(noted(), false, 'it has joined')
  await bring()
  await store.dropToken()
  t.equal(noted(), false, 'the token is taken away')
  await bring()
  await store.remove()
  t.equal(noted(), false, 'it has left')
})

/** The Secret of another tool, which the agent does not write. */
const givenBy = (text: string | undefined) => (): Promise<string | undefined> => Promise.resolve(text)

t.test('the token of another tool: read, never removed, and used once', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const token = await broker.token()
  const secret = new MemorySecret()
  const { store, done } = start(t, secret, 'milano', givenBy(token))
  await done
  const identity = await store.read()
  t.equal(identity?.cluster, 'milano')
  t.notMatch(JSON.stringify(secret.content), token, 'the token is nowhere else')
  t.equal(await store.token(), undefined, 'it has been used')
  t.equal(await secretIdentity(secret, '', givenBy(`${token}\n`)).token(), undefined, 'by the next process, too')
  const next = await broker.token()
  t.equal(await secretIdentity(secret, '', givenBy(next)).token(), next, 'another one counts')
  await secretIdentity(secret).remove()
  t.equal(
    await secretIdentity(secret, '', givenBy(token)).token(),
    undefined,
    'a cluster that left does not join again',
  )
})

t.test('the token of another tool: the identity that somebody removed is put back', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret()
  const token = await broker.token()
  const { api, store, done } = start(t, secret, 'milano', givenBy(token))
  await done
  await api.cache('Membership').whenSynced(AbortSignal.timeout(1000))
  const first = await store.read()
  secret.content = undefined
  t.same((await store.read())?.certificate, first?.certificate)
  t.equal(await secretIdentity(secret, '', givenBy(token)).token(), undefined, 'the note is there again')
  t.equal(await store.token(), undefined, 'and its token is still a used one')
})

t.test(
  'the token of another tool: a refused one is told, and the next one works; that of sealane join is first',
  async (t) => {
    const broker = await LoopbackBroker.start(t)
    const bound = await broker.tokens((store) => store.create({ cluster: 'paris' }))
    let text: string | undefined = bound.text
    const secret = new MemorySecret()
    const { done } = start(t, secret, 'milano', () => Promise.resolve(text))
    await eventually(() => problem(secret) !== undefined)
    t.equal(problem(secret), `token: ${bound.id} is for cluster "paris", not "milano"`)
    text = await broker.token()
    await done
    t.equal(problem(secret), undefined)
    const own = await broker.token()
    t.equal(await secretIdentity(new MemorySecret({ token: own }), '', givenBy(text)).token(), own)
  },
)
