/** Prefixes of other clusters in public space: which these are, and which nodes check their routes. */
import fc from 'fast-check'
import t from 'tap'
import { planGateway } from '../gateway/support/wireguard-plans.ts'
import { checkRule } from '../../kernel/route/check-route.ts'
import { formatRule } from '../../kernel/route/format-ip.ts'
import { FakeRouteTable } from '../../kernel/fake/fake-route-table.ts'
import type { Rule } from '../../kernel/route/route-table.ts'
import { formatAddress, parsePrefix, prefixOf } from '../../model/values/ip.ts'
import { isPublicSpace } from '../../model/addresses/required-ranges.ts'
import { planNodeRoutes } from '../../routeagent/routes/plan-node-routes.ts'
import { world as gatewayWorld } from '../gateway/support/worlds.ts'
import { NODES, WORKER_FACTS, cluster, routeWorld } from './support/site.ts'

t.test('what is public', async (t) => {
  const rows: readonly (readonly [prefix: string, isPublic: boolean])[] = [
    ['203.0.113.0/28', true],
    ['10.42.0.0/16', false],
    ['10.0.0.0/7', true],
    ['100.64.0.0/10', false],
    ['100.128.0.0/16', true],
    ['172.31.0.0/16', false],
    ['172.32.0.0/16', true],
    ['192.168.0.0/15', true],
    ['244.1.0.0/16', false],
    ['198.18.4.0/24', false],
    ['198.16.0.0/14', true],
    ['fd42:1::/48', false],
    ['2001:db8::/32', true],
    ['fe00::/16', true],
  ]
  for (const [prefix, want] of rows) t.equal(isPublicSpace(parsePrefix(prefix), undefined), want, prefix)
  t.equal(
    isPublicSpace(parsePrefix('203.0.113.0/28'), '203.0.112.0/20'),
    false,
    'the global range is ours wherever it is',
  )
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 0xffff_ffffn }), fc.integer({ min: 8, max: 31 }), (value, length) => {
      const prefix = prefixOf({ family: 4, value }, length)
      const half = prefixOf({ family: 4, value }, length + 1)
      t.notOk(isPublicSpace(half, undefined) && !isPublicSpace(prefix, undefined), formatAddress({ family: 4, value }))
    }),
  )
})

const RULES = [
  'not iif lo priority 75 lookup 7314 protocol 173',
  'priority 76 from 10.42.1.1 iif lo lookup 7314 protocol 173',
]

function nodePlan(podCIDR: string, change = {}): { rules: string[]; tables: string[] } {
  const clusters = [cluster('milano', 1), cluster('paris', 2, undefined, podCIDR)]
  const plan = planNodeRoutes(routeWorld({ clusters, ...change }))
  if (!plan.ok) throw new Error(plan.message)
  const tables = plan.routes.filter(({ destination }) => destination === podCIDR).map(({ table }) => String(table))
  return { rules: plan.rules.map((rule) => formatRule(rule).replace('ip rule add ', '')), tables }
}

t.test('a node', async (t) => {
  const flat = nodePlan('10.60.0.0/16')
  t.strictSame(new Set(flat.tables), new Set(['7312']), 'private space is as ever')
  t.notOk(
    flat.rules.some((rule) => rule.includes('7314')),
    'and has no rules more',
  )
  const open = nodePlan('203.0.113.0/28')
  t.strictSame(new Set(open.tables), new Set(['7314']), 'the way there and the refusal where there is none')
  t.strictSame(
    open.rules.filter((rule) => rule.includes('7314')),
    RULES,
  )
  const facts = { ...WORKER_FACTS, addresses: [{ device: 'eth0', address: '10.42.1.1/24' }] }
  const nodes = [
    ...NODES.slice(0, 2),
    { ...NODES[2], status: { addresses: [{ type: 'InternalIP', address: '10.42.1.1' }] } },
  ]
  const shared = nodePlan('203.0.113.0/28', { facts, nodes })
  t.strictSame(
    shared.rules.filter((rule) => rule.includes('7314')),
    RULES.slice(0, 1),
    'its only address is no sign of a pod',
  )
})

t.test('a gateway without lanes up has no rules for it', async (t) => {
  const { rules } = planGateway(gatewayWorld({ globalRange: '244.0.0.0/8' })).routes
  t.strictSame(rules.map(formatRule), ['ip rule add not fwmark 0x1073 priority 74 lookup 7311 protocol 173'])
})

t.test('rules as the kernel takes them', async (t) => {
  const table = new FakeRouteTable({
    links: [{ name: 'eth0' }],
    addresses: [{ device: 'eth0', address: '192.0.2.1/24' }],
    defaultDevice: 'eth0',
  })
  await table.addLink({ kind: 'dummy', name: 'lane', mtu: 1400 })
  await table.setLink('lane', { up: true })
  await table.replaceRoute({
    table: 7314,
    destination: '203.0.113.0/28',
    type: 'unicast',
    nextHops: [{ device: 'lane' }],
  })
  await table.addRule({ priority: 75, table: 7314, exceptInputDevice: 'lo' })
  await table.addRule({ priority: 76, table: 7314, inputDevice: 'lo', source: '10.42.1.1' })
  t.equal((await table.lookup('203.0.113.2')).device, 'eth0', 'what starts on the node goes by its own way')
  const wrong: readonly Rule[] = [
    { priority: 1, table: 1, exceptInputDevice: 'lo', source: '10.0.0.1' },
    { priority: 1, table: 1, exceptInputDevice: 'lo', exceptMark: 1 },
    { priority: 1, table: 1, source: 'fd00::1' },
    { priority: 1, table: 1, family: 6, source: '10.0.0.1' },
    { priority: 1, table: 1, exceptInputDevice: 'a b' },
  ]
  for (const rule of wrong) t.throws(() => checkRule(rule, 'ip rule add'), { code: 'EINVAL' }, JSON.stringify(rule))
})
