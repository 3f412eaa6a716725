/** One of several brokers is killed while changes continue. */
import { setTimeout as sleep } from 'node:timers/promises'
import { round } from '../figures.ts'
import { type Bench, type Figures, PER_SECOND, PUBLISHERS, allOf } from './stages.ts'

/** How long the burst lasts before the kill. */
const BEFORE_MS = 3000
const AFTER_MS = 5000

/** Changes continue at a fixed rate; a third of all members lose their broker, and find another one. */
export async function failover({ options, broker, generators }: Bench): Promise<Figures> {
  const { clusters, burstSeconds } = options
  const [victim] = broker.replicas
  if (victim === undefined) return {}
  await generators.all('fleet', 'zero')
  await generators.all('fleet', 'live', { on: true })
  const ask = { perSecond: PER_SECOND / generators.count, seconds: burstSeconds, publishers: PUBLISHERS }
  const burst = generators.all('fleet', 'burst', ask)
  await sleep(BEFORE_MS)
  await victim.kill()
  await burst
  await sleep(AFTER_MS)
  await allOf(generators, clusters, 'inSync')
  const ages = await generators.ages('fleet')
  const { lost, outageMs, askedInAll } = await generators.state()
  victim.start()
  await victim.ready()
  return {
    failoverSeconds: round(outageMs / 1000, 1),
    failoverMembers: lost,
    failoverBurstP99Ms: ages.percentile(0.99),
    failoverRecordsAsked: askedInAll,
  }
}
