import t from 'tap'
import { DEFAULT_BROKER_CONFIG, checkBrokerConfig } from '../../../broker/config/broker-config.ts'
import { brokerMetrics } from '../../../broker/config/broker-metrics.ts'
import { RangeWarnings, rangeUses } from '../../../broker/records/quota.ts'
import { RefusedError } from '../../../protocol/broker-api.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { Publisher, anExport, facts, join_, startBroker } from '../support/harness.ts'

const LIMITS = { members: 5, tokens: 10, clustersetIpRange: '245.0.0.0/29' }

t.test('what all share: counted, reported once before it is full, and again when it was not', async (t) => {
  const harness = await startBroker(t, {
    config: {
      clustersetIpRange: LIMITS.clustersetIpRange,
      limits: { ...DEFAULT_BROKER_CONFIG.limits, membersPerClusterset: LIMITS.members },
    },
  })
  const logger = new CapturingLogger()
  const registry = createMetrics('broker')
  const ranges = new RangeWarnings({ log: harness.log, logger, metrics: brokerMetrics(registry) }, LIMITS)
  const logged = (): unknown[] =>
    logger.lines.splice(0).map(({ fields }) => [fields['reason'], fields['range'], fields['used']])

  const ids = ['milano', 'paris', 'tokyo', 'lima', 'oslo']
  const members = []
  for (const [i, id] of ids.slice(0, 3).entries())
    members.push(await join_(harness, id, { facts: facts([`10.${i + 1}.0.0/16`]) }))
  ranges.report()
  t.same(logged(), [], 'three of five')
  members.push(await join_(harness, 'lima', { facts: facts(['10.4.0.0/16']) }))
  for (let again = 0; again < 3; again += 1) ranges.report()
  t.same(logged(), [['RangeNearlyFull', 'members', 4]], 'once, however often it is looked at')
  t.match(await registry.text(), /sealane_broker_range_used_ratio\{range="members",[^}]*\} 0\.8\n/)

  await join_(harness, 'oslo', { facts: facts(['10.5.0.0/16']) })
  const refusal: unknown = await join_(harness, 'rome').catch((error: unknown) => error)
  t.ok(refusal instanceof RefusedError)
  t.match(String(refusal), /limit of 5 members: evict .* higher --max-members/)
  for (const { peer } of members) await harness.broker.leave(peer)
  ranges.report()
  t.same(logged(), [])
  for (const [i, id] of ids.entries())
    if (id !== 'oslo') await join_(harness, id, { facts: facts([`10.${i + 1}.0.0/16`]) })
  ranges.report()
  t.same(
    logged().filter((row) => (row as string[])[1] === 'members'),
    [['RangeNearlyFull', 'members', 5]],
    'anew',
  )
})

t.test('clusterset IPs are those in use, of those that can be', async (t) => {
  const harness = await startBroker(t, { config: { clustersetIpRange: LIMITS.clustersetIpRange } })
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  for (let i = 1; i <= 3; i += 1) {
    await publisher.publish(Array.from({ length: i }, (_, n) => anExport(`web-${n}`)))
    t.same(rangeUses(harness.log, LIMITS).clustersetIPs, { used: i, limit: 6 })
  }
  t.same(rangeUses(harness.log, LIMITS).members, { used: 1, limit: 5 })
})

t.test('an address that its service gave back is not in use, and the warning ends', async (t) => {
  const harness = await startBroker(t, { config: { clustersetIpRange: LIMITS.clustersetIpRange } })
  const { log } = harness
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  const logger = new CapturingLogger()
  const ranges = new RangeWarnings({ log, logger, metrics: brokerMetrics(createMetrics('broker')) }, LIMITS)
  const warned = (): number => {
    ranges.report()
    return logger.lines.splice(0).length
  }
  const five = (name: string) => Array.from({ length: 5 }, (_, n) => anExport(`${name}-${n}`))
  await publisher.publish(five('web'))
  t.equal(warned(), 1)
  await publisher.publish([anExport('web-0')])
  t.same(rangeUses(log, LIMITS).clustersetIPs, { used: 1, limit: 6 })
  t.equal(warned(), 0)
  await publisher.publish(five('api'))
  t.same(rangeUses(log, LIMITS).clustersetIPs, { used: 5, limit: 6 }, 'some of them are used again')
  t.equal(warned(), 1, 'anew')
})

t.test('how many members there may be is a number whose lists fit into a message', async (t) => {
  const config = (membersPerClusterset: number) => ({
    ...DEFAULT_BROKER_CONFIG,
    stateDir: '/nowhere',
    advertise: ['127.0.0.1:7443'],
    limits: { ...DEFAULT_BROKER_CONFIG.limits, membersPerClusterset },
  })
  for (const good of [1, 1000, 10_000]) t.equal(checkBrokerConfig(config(good)).limits.membersPerClusterset, good)
  for (const bad of [0, -1, 1.5, 10_001, Number.NaN, Number.POSITIVE_INFINITY])
    t.throws(() => checkBrokerConfig(config(bad)), {
      message: `limits.membersPerClusterset "${bad}": expected 1 to 10000`,
    })
})
