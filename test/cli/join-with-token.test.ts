/** The agent joins by itself with the token it finds in its Secret, and says there what stands in the way. */
import t, { type Test } from 'tap'
import { leaveToken } from '../../cli/kube/apply-join.ts'
import { joinWithToken } from '../../agent/join-with-token.ts'
import { PROBLEM_ANNOTATION, secretIdentity } from '../../cli/secret-identity.ts'
import { ClusterApiError } from '../../cluster/cluster-api.ts'
import { MemoryCluster } from '../../cluster/memory/memory-cluster.ts'
import { parseClusterId } from '../../model/ids.ts'
import { askToLeave } from '../../protocol/leave.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/capturing-logger.ts'
import { createMetrics } from '../../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { eventually } from '../support/eventually.ts'
import { MemorySecret } from '../support/memory-secret.ts'
import { LoopbackBroker } from './loopback-broker.ts'

const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: 'test' }

function start(t: Test, secret: MemorySecret, id = 'milano') {
  const cluster = new MemoryCluster()
  const status = new StatusBoard()
  const deps = { clock: new SystemClock(), logger: new CapturingLogger(), metrics: createMetrics('agent'), status }
  const store = secretIdentity(secret)
  const stop = new AbortController()
  t.teardown(() => stop.abort())
  const init = { cluster: parseClusterId(id), facts, identity: store, desk: store }
  const done = joinWithToken({ ...deps, cluster }, init, stop.signal)
  done.catch(() => undefined)
  return { cluster, status, store, stop, done }
}

const problem = (secret: MemorySecret): string | undefined => secret.content?.annotations[PROBLEM_ANNOTATION]

t.test('a token becomes an identity, and goes', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  const { cluster, store, done } = start(t, secret)
  await done
  t.strictSame(Object.keys(secret.content?.data ?? {}).sort(), ['broker.json', 'ca.crt', 'cluster.crt', 'cluster.key'])
  t.equal((await store.read())?.cluster, 'milano')
  const memberships = cluster.cache('Membership')
  await memberships.whenSynced(AbortSignal.timeout(1000))
  t.equal(memberships.get('self')?.spec.phase, 'joined')
  t.equal(memberships.get('self')?.spec.observedAddress, '127.0.0.1')
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

t.test('without a token it waits and says for what; a stop ends it', async (t) => {
  const { status, stop, done } = start(t, new MemorySecret())
  await eventually(() => status.notReady().length > 0 && JSON.stringify(status.notReady()).includes('waits for'))
  t.strictSame(status.notReady(), ['join: waits for a join token in Secret sealane-system/sealane-identity'])
  stop.abort(new Error('stopped'))
  await t.rejects(done, { message: 'stopped' })
})

t.test('the answer is lost: the same token goes on with the same key', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const secret = new MemorySecret({ token: await broker.token() })
  const first = start(t, secret)
  first.cluster.failure = new ClusterApiError('Unavailable', 'away')
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
  t.match(
    problem(secret),
    /^cluster: "milano" is a member already \(joined .*\): choose another cluster id; or, if this is/,
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
