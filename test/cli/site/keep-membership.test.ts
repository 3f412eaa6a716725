/** The agent of a real cluster restores its Membership after a user has deleted it. */
import t, { type Test } from 'tap'
import { keepMembership } from '../../../agent/membership/keep-membership.ts'
import { secretIdentity } from '../../../protocol/membership/secret-identity.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { Membership } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { identityParts } from '../../support/identity-parts.ts'
import { MemorySecret } from '../../support/memory-secret.ts'

const spec = (phase: 'joined' | 'leaving'): Membership['spec'] => ({
  clusterId: 'paris',
  phase,
  clusterset: 'demo',
  globalRange: '244.0.0.0/8',
  clustersetIpRange: '245.0.0.0/16',
  observedAddress: '192.0.2.2',
})
const membership = (phase: 'joined' | 'leaving'): Membership => ({
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Membership',
  metadata: { name: 'self' },
  spec: spec(phase),
})

async function start(t: Test, data: Readonly<Record<string, string>>, known?: Membership) {
  const api = new MemoryApi()
  if (known !== undefined) await api.apply(known)
  await api.cache('Membership').whenSynced(AbortSignal.timeout(1000))
  const world = { isThere: known !== undefined, isServed: true, made: [] as Membership['spec'][] }
  const kube = {
    hasMembership: () =>
      world.isServed ? Promise.resolve(world.isThere) : Promise.reject(new ClusterApiError('NotFound', 'no such kind')),
    createMembership: (made: Membership) => {
      world.made.push(made.spec)
      world.isThere = true
      return Promise.resolve()
    },
  }
  const clock = new FakeClock()
  const stop = new AbortController()
  const identity = secretIdentity(new MemorySecret(data))
  const done = keepMembership({ clock, logger: new CapturingLogger() }, { api, kube, identity }, stop.signal)
  t.teardown(() => {
    stop.abort()
    return done
  })
  return { world, clock }
}

t.test('one that was known, also after its kind is served again', async (t) => {
  const { world, clock } = await start(t, {}, membership('joined'))
  await clock.advance(10_000)
  world.isServed = false
  world.isThere = false
  await clock.advance(20_000)
  t.strictSame(world.made, [])
  world.isServed = true
  await clock.advance(5000)
  t.strictSame(world.made, [spec('joined')])
  await clock.advance(60_000)
  t.equal(world.made.length, 1, 'one that is there is left alone')
})

t.test('one that nobody knows any more, from what the identity keeps', async (t) => {
  const parts = await identityParts('demo', 'paris')
  const { world, clock } = await start(t, parts)
  await clock.advance(5000)
  t.strictSame(world.made, [], 'an identity of an earlier release keeps too little')
  const broker = JSON.parse(parts['broker.json'] ?? '') as object
  const ranges = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }
  const kept = await start(t, { ...parts, 'broker.json': JSON.stringify({ ...broker, ...ranges }) })
  await kept.clock.advance(5000)
  t.strictSame(
    kept.world.made,
    [{ ...spec('joined'), exposure: 'exports', accessDefault: 'deny' }],
    'it exposes no more than a new one',
  )
  const rows = [
    ['what it said', { clusterset: 'demo', exposure: 'pods', accessDefault: 'deny' }, ['pods', 'deny']],
    ['one of before there was a choice', { clusterset: 'demo' }, [undefined, undefined]],
    ['another clusterset', { clusterset: 'other', exposure: 'pods', accessDefault: 'allow' }, ['exports', 'deny']],
    ['an unknown word', { clusterset: 'demo', exposure: 'all' }, ['exports', 'deny']],
  ] as const
  for (const [title, access, want] of rows) {
    const whole = { ...parts, 'broker.json': JSON.stringify({ ...broker, ...ranges }) }
    const again = await start(t, { ...whole, 'access.json': JSON.stringify(access) })
    await again.clock.advance(5000)
    t.strictSame(
      again.world.made.map(({ exposure, accessDefault }) => [exposure, accessDefault]),
      [want],
      title,
    )
  }
})

t.test('who leaves, and who never joined, has none', async (t) => {
  for (const [data, known] of [
    [await identityParts('demo', 'paris'), membership('leaving')],
    [{}, undefined],
  ] as const) {
    const { world, clock } = await start(t, data, known)
    world.isThere = false
    await clock.advance(20_000)
    t.strictSame(world.made, [])
  }
})
