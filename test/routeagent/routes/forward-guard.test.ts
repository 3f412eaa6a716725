/** The policies that keep other clusters out while nft tables are missing: planned, kept, reported and removed. */
import t, { type Test } from 'tap'
import { Round } from '../../../kernel/apply/round.ts'
import { Drift } from '../../../kernel/drift.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import { FakeForwardPolicies } from '../../../kernel/fake/fake-forward-policies.ts'
import { formatPolicy } from '../../../kernel/xfrm/forward-policies.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { describeRoutes } from '../../../routeagent/main.ts'
import { ForwardGuard, removeForwardPolicies } from '../../../routeagent/routes/forward-guard.ts'
import { NO_FORWARD_POLICIES, planForwardPolicies } from '../../../routeagent/routes/plan-forward-policies.ts'
import { planNodeRoutes } from '../../../routeagent/routes/plan-node-routes.ts'
import type { NodeRouteWorld } from '../../../routeagent/world/node-world.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { cluster, dualStack, routeWorld } from '../support/site.ts'

function lines(change: Partial<NodeRouteWorld>): string[] {
  const text = describeRoutes(planNodeRoutes(routeWorld(change)))
  return text.split('\n').filter((line) => line.includes('xfrm'))
}

t.test('the plan, by exposure and family', async (t) => {
  t.strictSame(lines({}), [], 'all pods may be called')
  t.strictSame(lines({ exposure: 'pods' }), [])
  t.strictSame(lines({ exposure: 'exports', failClosed: true }), [], 'routing rules drop the same')
  t.strictSame(lines({ exposure: 'exports', failClosed: false }), [], 'an operator has stated that it stays open')
  const admitted = 'dir fwd mark 0x2000 mask 0x2000 action allow priority 4294007310 limit time-hard 360'
  const refused = 'dir fwd action block priority 4294007311 limit time-hard 300'
  const closed = [
    `ip xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 ${admitted}`,
    `ip xfrm policy add src 244.2.0.0/16 dst 10.42.0.0/16 ${admitted}`,
    `ip xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 ${refused}`,
    `ip xfrm policy add src 244.2.0.0/16 dst 10.42.0.0/16 ${refused}`,
  ]
  t.strictSame(lines({ exposure: 'exports' }), closed)
  t.strictSame(lines({ exposure: 'nothing' }), closed)
  const clusters = [
    dualStack(cluster('milano', 1), 'fd42:1::/48'),
    dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd42:2::/48'),
  ]
  const six = lines({ exposure: 'exports', clusters }).filter((line) => line.includes('fd42'))
  t.strictSame(six, [
    `ip xfrm policy add src fd42:2::/48 dst fd42:1::/48 ${admitted}`,
    `ip xfrm policy add src fd42:2::/48 dst fd42:1::/48 ${refused}`,
  ])
})

const prefixes = (...texts: string[]) => texts.map((text) => parsePrefix(text))
const PODS = prefixes('10.42.0.0/16', 'fd42:1::/48')
const planned = (remote: readonly string[], overlayIndex?: number) =>
  planForwardPolicies({ remote: prefixes(...remote), pods: PODS, overlayIndex })
const many = (count: number, length: number): string[] =>
  Array.from({ length: count }, (_, i) => `${100 + (i >> 8)}.${i & 255}.0.0/${length}`)

t.test('a gateway passes on what leaves by the overlay; contained prefixes and too many', async (t) => {
  t.strictSame(planned(['244.1.0.0/16', '244.1.7.0/24'], 17).policies.map(formatPolicy), [
    'ip xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 dir fwd mark 0x2000 mask 0x2000 action allow priority 4294007310 limit time-hard 360',
    'ip xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 dev if17 dir fwd action allow priority 4294007310 limit time-hard 360',
    'ip xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 dir fwd action block priority 4294007311 limit time-hard 300',
  ])
  t.strictSame(planned(many(4097, 16)), {
    policies: [],
    leftOut: ["the members' prefixes give more than 8192 XFRM policies"],
  })
})

t.test('short prefixes, which the kernel compares one after the other: few, or none of the family', async (t) => {
  // 14 bits: every fourth number of the second octet.
  const short = (count: number): string[] =>
    Array.from({ length: count }, (_, i) => `${100 + (i >> 6)}.${(i & 63) * 4}.0.0/14`)
  const six = 'fd42:2::/48'
  t.match(planned([...short(64), six]), { policies: { length: 2 * 65 }, leftOut: [] })
  const { policies, leftOut } = planned([...short(65), '244.1.0.0/16', six])
  t.strictSame(
    policies.map(({ source }) => source),
    [six, six],
  )
  t.strictSame(leftOut, [
    'IPv4: each packet would be compared with 65 pairs of a member and pod CIDRs, because of prefixes shorter than /16: expected at most 64',
  ])
  const wide = (remote: readonly string[], ...pods: string[]) =>
    planForwardPolicies({ remote: prefixes(...remote), pods: prefixes(...pods), overlayIndex: undefined })
  const PODS_OF_14 = '10.128.0.0/14'
  t.match(wide(many(500, 16), PODS_OF_14), { policies: { length: 1000 }, leftOut: [] }, 'found by the other prefix')
  t.equal(wide(short(64), PODS_OF_14).policies.length, 128, 'both are short')
  t.match(wide(short(65), PODS_OF_14).leftOut, [/compared with 65 pairs/])
  t.match(wide(short(64), PODS_OF_14, '10.42.0.0/16').leftOut, [/compared with 128 pairs/], 'two lists for one packet')
  t.match(wide([...short(64), '244.1.0.0/16'], PODS_OF_14).leftOut, [/compared with 65 pairs/], 'and of the source')
})

const NO_XFRM = new KernelError('EOPNOTSUPP', 'open a netlink socket', 'protocol not supported')

const DISABLED = 'net.ipv4.conf.all.disable_policy'

function stage() {
  const policies = new FakeForwardPolicies()
  const logger = new CapturingLogger()
  const clock = new FakeClock()
  const sysctl = new FakeSysctl({ [DISABLED]: '0' })
  const guarded = new Set<4 | 6>()
  const repairs = createMetrics('test').counter({ name: 'sealane_test_total', help: 'x', labels: ['what', 'reason'] })
  const drift = new Drift({ clock, logger, repairs })
  const guard = new ForwardGuard({
    policies,
    clock,
    logger,
    drift,
    sysctl,
    isGuarding: (family) => guarded.has(family),
  })
  const { signal } = new AbortController()
  return {
    ...{ policies, sysctl, clock, logger, guarded, guard, signal },
    there: async () => (await policies.list()).ours.map(formatPolicy),
    condition: () => guard.conditions([], 0).map(({ reason, message }) => `${reason}: ${message}`),
  }
}

t.test('after the table of the family, and as long as they are planned', async (t) => {
  const { policies, guarded, guard, signal, there, condition } = stage()
  const both = planned(['244.1.0.0/16', 'fd42:2::/48'])
  const [four, six] = [/10\.42/, /fd42/].map((pods) =>
    both.policies.map(formatPolicy).filter((text) => pods.test(text)),
  )
  await guard.apply(both, signal)
  t.strictSame(await there(), [], 'without tables')
  guarded.add(4)
  await guard.apply(both, signal)
  t.strictSame(await there(), four)
  guarded.add(6)
  await guard.apply(both, signal)
  t.strictSame([...(await there())].sort(), [...(four ?? []), ...(six ?? [])].sort())
  guarded.clear()
  await guard.apply(both, signal)
  t.equal((await there()).length, 4, 'they stay without tables')
  const [lost] = (await policies.list()).ours
  if (lost !== undefined) await policies.remove(lost)
  guarded.add(4).add(6)
  await guard.apply(both, signal)
  t.equal((await there()).length, 4, 'restored')
  await guard.apply(planned(['244.2.0.0/16']), signal)
  t.match(await there(), [/244\.2.*allow/, /244\.2.*block/], 'what is no longer planned goes')
  t.strictSame(condition(), [])
  await guard.apply(NO_FORWARD_POLICIES, signal)
  t.strictSame(await there(), [])
})

t.test(
  'a kernel without XFRM, a policy of other software, too many: reported, and nothing else fails',
  async (t: Test) => {
    const { policies, logger, guarded, guard, signal, condition } = stage()
    guarded.add(4)
    policies.failure = NO_XFRM
    await guard.apply(planned(['244.1.0.0/16']), signal)
    await guard.apply(planned(['244.1.0.0/16']), signal)
    t.match(condition(), [/^ForwardPoliciesMissing: open a netlink socket: protocol not supported/])
    t.equal(logger.lines.filter(({ fields }) => fields['reason'] === 'ForwardPoliciesMissing').length, 1, 'logged once')
    policies.failure = undefined
    await policies.add({ source: '244.1.0.0/16', destination: '10.42.0.0/16', action: 'allow', mark: 0x2000 })
    const theirs = policies.list.bind(policies)
    policies.list = () => Promise.resolve({ ours: [], earlier: [] })
    await guard.apply(planned(['244.1.0.0/16']), signal)
    t.match(condition(), [/another program has the policy: ip xfrm policy add src 244\.1/])
    policies.list = theirs
    await guard.apply(planned(many(4097, 16)), signal)
    t.match(condition(), [/more than 8192 XFRM policies/])
    await guard.apply(planned(['244.1.0.0/16']), signal)
    t.strictSame(condition(), [])
  },
)

t.test('policies that have no effect are reported', async (t) => {
  const { policies, sysctl, guarded, guard, signal, condition } = stage()
  const plan = planned(['244.1.0.0/16', 'fd42:2::/48'])
  guarded.add(4)
  await guard.apply(plan, signal)
  t.strictSame(condition(), ['ForwardPoliciesMissing: IPv6: table sealane_node, which admits packets, is missing'])
  guarded.add(6)
  await guard.apply(plan, signal)
  guarded.clear()
  await guard.apply(plan, signal)
  t.strictSame(condition(), [], 'policies that exist work without tables')
  const ipsec = { source: '0.0.0.0/0', destination: '10.42.7.0/24', priority: 2975 }
  policies.earlier = [
    { ...ipsec, destination: '10.9.0.0/16' },
    { ...ipsec, source: 'fd42:2::/64', destination: 'fd99::/16' },
  ]
  await guard.apply(plan, signal)
  t.strictSame(condition(), [], 'of other packets')
  policies.earlier = [...policies.earlier, ipsec]
  sysctl.provide(DISABLED, '1')
  await guard.apply(plan, signal)
  const earlier = 'an XFRM policy of another program counts first: src 0.0.0.0/0 dst 10.42.7.0/24 priority 2975'
  t.strictSame(condition(), [`ForwardPoliciesMissing: ${earlier}; ${DISABLED} is 1: the kernel looks at no policy`])
  await guard.apply(NO_FORWARD_POLICIES, signal)
  t.strictSame(condition(), [], 'none are wanted')
})

t.test('policies end five minutes after the last process that knows them, what blocks first', async (t) => {
  const { policies, clock, guarded, guard, signal } = stage()
  guarded.add(4)
  const plan = planned(['244.1.0.0/16'])
  // An earlier process has added them.
  for (const policy of plan.policies) await policies.add(policy)
  await guard.apply(plan, signal)
  const once = [/update .* allow .* time-hard 360$/, /update .* block .* time-hard 300$/]
  t.match(policies.refreshed, once)
  t.equal(policies.refreshed.length, 2)
  await clock.advance(100_000 - 1)
  await guard.apply(plan, signal)
  t.equal(policies.refreshed.length, 2)
  await clock.advance(1)
  policies.failure = new KernelError('EBUSY', 'ip xfrm', 'not now')
  await guard.apply(plan, signal)
  policies.failure = undefined
  await guard.apply(plan, signal)
  t.match(policies.refreshed, [...once, ...once], 'after a failure too')
  guarded.clear()
  await clock.advance(100_000)
  await guard.apply(plan, signal)
  t.equal(policies.refreshed.length, 6, 'also without tables')
})

t.test('leaving: all of ours, and no failure where there is no XFRM', async (t) => {
  const { policies, logger, guarded, guard, signal, there } = stage()
  guarded.add(4)
  await guard.apply(planned(['244.1.0.0/16']), signal)
  const round = new Round({ logger })
  await removeForwardPolicies(policies, round, signal)
  t.strictSame(await there(), [])
  policies.failure = NO_XFRM
  t.equal(await removeForwardPolicies(policies, round, signal), false)
  t.equal(round.failures, 0)
  policies.failure = new KernelError('EINTR', 'ip xfrm policy list dir fwd', 'the list changed')
  t.equal(await removeForwardPolicies(policies, round, signal), true, 'some may be left')
  t.equal(round.failures, 1)
})

t.test('a policy that cannot be added: nothing more is added, and what blocks too much still goes', async (t) => {
  const { policies, guarded, guard, signal, there, condition } = stage()
  guarded.add(4)
  await guard.apply(planned(['244.1.0.0/16']), signal)
  const add = policies.add.bind(policies)
  policies.add = () => Promise.reject(new KernelError('UNKNOWN', 'ip xfrm policy add', 'no memory'))
  await guard.apply(planned(['244.2.0.0/16']), signal)
  t.match(await there(), [/244\.1.* allow/], 'only what admits')
  t.match(condition(), [/no memory/])
  policies.add = add
  await guard.apply(planned(['244.2.0.0/16']), signal)
  t.match(await there(), [/244\.2.* allow/, /244\.2.* block/])
})
