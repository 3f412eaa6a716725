/** One member that publishes beyond its quota, beside two others with few records. */
import { openBrokerStore } from '../support/broker-store.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { attack } from './support/attack.ts'
import { floodedBroker, underFlood } from './support/flooded-broker.ts'
import { openChannel } from './support/raw-channel.ts'
import { RawPublish } from './support/raw-publish.ts'
import { sayingRecord } from './support/raw-records.ts'
import { recordsOf } from './support/raw-watch.ts'

const KEPT = 20
const QUOTA = 500

await attack('flood-member-quota', async (t) => {
  const broker = await floodedBroker(t)
  const store = await openBrokerStore(broker.state, new SystemClock())
  t.teardown(() => store.close())
  await store.changeQuota({ cluster: 'attacker', change: { records: QUOTA, changes: 200 } })
  const channel = openChannel(broker, broker.members.paris)
  t.teardown(() => channel.close())
  const paris = await new RawPublish(channel).open()
  for (let i = 0; i < KEPT; i += 1) t.equal(await paris.put(sayingRecord(`kept-${i}`)), 'ok')

  await underFlood('greedy', broker)(t)

  t.equal(paris.status, undefined, 'its stream goes on')
  const records = await recordsOf(channel)
  const named = (cluster: string, name: RegExp): number =>
    records.filter((one) => one.cluster === cluster && name.test(one.name)).length
  t.equal(named('paris', /^kept-/), KEPT)
  t.equal(named('milano', /^honest$/), 1)
  t.equal(named('attacker', /^web-/), QUOTA)
})
