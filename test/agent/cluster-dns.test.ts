/**
 * An agent reports the state of its cluster's DNS: at once when the DNS answers, and after a delay when it does not.
 */
import t, { type Test } from 'tap'
import type { ClusterDnsAnswer } from '../../agent/cluster/ask-resolver.ts'
import { planDnsStatus } from '../../agent/cluster/plan-cluster-status.ts'
import { findCondition } from '../../model/conditions.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { eventually } from '../support/eventually.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'
import { Site } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until } from './until.ts'

const NO: ClusterDnsAnswer = { answers: false, said: 'SERVFAIL' }
const YES: ClusterDnsAnswer = { answers: true }

async function start(t: Test, first: ClusterDnsAnswer) {
  const clock = new FakeClock()
  const dns = { answer: (_n: number) => first, asked: 0 }
  const askClusterDns = (): Promise<ClusterDnsAnswer> => Promise.resolve(dns.answer((dns.asked += 1)))
  const site = new Site(new FakeClusterset(), { id: 'paris', podCIDR: '10.42.0.0/16', clock, askClusterDns })
  await site.join()
  site.start()
  t.teardown(() => site.stop())
  /**
   * Lets the agent query in this many further rounds. Returns how long they took by the agent's clock, rounded up to a
   * quarter of a second.
   */
  const ask = async (rounds: number): Promise<number> => {
    const began = clock.monotonic()
    for (let n = 0; n < rounds; n += 1) {
      const before = dns.asked
      await eventually(async () => (await clock.advance(250), dns.asked > before), { intervalMs: 1 })
    }
    return clock.monotonic() - began
  }
  const said = (): string => {
    const found = findCondition(site.api.get('Cluster', 'paris')?.status?.conditions, 'ClusterDNS')
    return found === undefined ? 'nothing' : `${found.status} ${found.message}`
  }
  await ask(1)
  return { site, dns, ask, said }
}

const REFUSES =
  "False the cluster's DNS does not forward clusterset.local to Sealane; asked for its SOA, it answered: SERVFAIL"
const ANSWERS = "True the cluster's DNS forwards clusterset.local to Sealane"

t.test('it does not answer yet, and then it does', async (t) => {
  const { site, dns, ask, said } = await start(t, NO)
  await until(t, said, REFUSES, 'why a join waits')
  t.match(await site.metrics(), /^sealane_agent_cluster_dns_answers\{zone="clusterset.local",component="agent"\} 0$/m)
  dns.answer = () => YES
  await ask(1)
  await until(t, said, ANSWERS, 'told with the first answer')
  t.match(await site.metrics(), /^sealane_agent_cluster_dns_answers\{zone="clusterset.local",component="agent"\} 1$/m)
})

t.test('a moment without an answer is no news; three questions are', async (t) => {
  const { dns, ask, said } = await start(t, YES)
  await until(t, said, ANSWERS, 'it answers')
  dns.answer = () => NO
  await ask(2)
  t.equal(said(), ANSWERS, 'not yet')
  dns.answer = () => YES
  await ask(1)
  dns.answer = () => NO
  await ask(2)
  t.equal(said(), ANSWERS, 'an answer between begins the count anew')
  await ask(1)
  await until(t, said, REFUSES, 'it has lasted')
})

t.test('one of two servers has not read its settings yet: that is no answer', async (t) => {
  const { dns, ask, said } = await start(t, NO)
  dns.answer = (n) => (n % 2 === 0 ? YES : NO)
  await ask(20)
  t.equal(said(), REFUSES)
  dns.answer = () => YES
  const before = dns.asked
  await ask(1)
  await until(t, said, ANSWERS, 'now both have')
  t.equal(dns.asked - before, 16, 'asked often enough to meet both')
})

t.test('asked each second while somebody may wait, later every ten seconds', async (t) => {
  const { dns, ask } = await start(t, NO)
  const near = (ms: number, wanted: number) => t.ok(Math.abs(ms / wanted - 1) < 0.1, `${ms} ms of ${wanted}`)
  near(await ask(10), 10_000)
  await ask(600)
  near(await ask(3), 30_000)
  dns.answer = () => YES
  await ask(1)
  near(await ask(3), 30_000)
})

t.test('other words for the same are told twice a minute at most', async (t) => {
  const { site, dns, ask } = await start(t, NO)
  let writes = 0
  const stop = site.api.cache('Cluster').onChange(() => void (writes += 1))
  t.teardown(stop)
  dns.answer = (n) => ({ answers: false, said: n % 2 === 0 ? 'NXDOMAIN' : 'nothing' })
  await ask(60)
  t.ok(writes >= 1 && writes <= 3, `${writes} in a minute`)
})

t.test('where nobody asks, there is no number', async (t) => {
  const site = new Site(new FakeClusterset(), { id: 'paris', podCIDR: '10.42.0.0/16' })
  await site.join()
  site.start()
  t.teardown(() => site.stop())
  await eventually(() => site.status.notReady().length === 0)
  t.notMatch(await site.metrics(), 'cluster_dns')
})

t.test('somebody edits our word: it is put right', async (t) => {
  const { site, ask, said } = await start(t, YES)
  await until(t, said, ANSWERS, 'it answers')
  const object = site.api.get('Cluster', 'paris')
  if (object === undefined) throw new Error('it is gone')
  await site.api.applyStatus({ ...object, status: { conditions: [] } })
  t.ok((await ask(1)) <= 1000, 'at once')
  await until(t, said, ANSWERS, 'said again')
})

t.test('what others say on the same object stays, and since when is said once', (t) => {
  const other = { type: 'Other', status: 'True', reason: 'Ready', message: 'm', lastTransitionTime: 'then' } as const
  const own = clusterObject({ id: 'paris' }, { status: { conditions: [other] } })
  const [now, later] = ['2026-11-22T03:00:00Z', '2026-11-22T04:00:00Z'].map((text) => Date.parse(text))
  const first = planDnsStatus(own, NO, now ?? 0)
  t.strictSame(first?.status?.conditions?.[0], other)
  t.match(first?.status?.conditions?.[1], {
    ...{ type: 'ClusterDNS', status: 'False', reason: 'DoesNotAnswer', lastTransitionTime: '2026-11-22T03:00:00Z' },
  })
  t.equal(first && planDnsStatus(first, NO, later ?? 0), undefined, 'nothing new')
  const refused = first && planDnsStatus(first, { answers: false, said: 'REFUSED' }, later ?? 0)
  t.match(refused?.status?.conditions?.[1], {
    message: /it answered: REFUSED$/,
    lastTransitionTime: '2026-11-22T03:00:00Z',
  })
  t.end()
})
