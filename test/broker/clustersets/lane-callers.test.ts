/** The callers that a broker's status page refuses when the broker runs in a pod of a member. */
import t from 'tap'
import { LaneCallers } from '../../../broker/served-clusterset.ts'
import { facts, join_, startBroker } from '../support/harness.ts'

t.test('pods of other members, as they come and are renumbered; nobody where no lane leads', async (t) => {
  const harness = await startBroker(t)
  const here = new LaneCallers(harness.log, () => ['10.42.0.9'])
  const elsewhere = new LaneCallers(harness.log, () => ['198.51.100.7'])
  t.teardown(() => {
    here.close()
    elsewhere.close()
  })
  const token = async (): Promise<string> => (await harness.tokens.create({})).text
  t.notOk(here.comeByLane('10.50.0.7'), 'nobody has joined')
  await join_(harness, 'west', { token: await token(), facts: facts(['10.42.0.0/16']) })
  await join_(harness, 'north', { token: await token(), facts: facts(['10.50.0.0/16']) })
  t.ok(here.comeByLane('10.50.0.7'), 'a pod of another member')
  t.notOk(here.comeByLane('10.42.0.7'), 'a pod of the same cluster')
  const east = await join_(harness, 'east', { token: await token(), facts: facts(['10.42.0.0/16']) })
  t.match(JSON.stringify(east), '244.', 'it overlaps west')
  t.ok(here.comeByLane('244.0.0.7') && here.comeByLane('244.1.0.7'), 'whose pods come under global addresses')
  t.notOk(here.comeByLane('10.42.0.7'))
  for (const source of ['10.50.0.7', '244.0.0.7', '246.0.1.0']) t.notOk(elsewhere.comeByLane(source), source)
})
