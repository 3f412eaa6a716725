/**
 * The report of an acting agent on /status, about its connection to the broker and the services that it does not
 * import. The report contains no names.
 */
import t from 'tap'
import { LinkLife, timeText } from '../../agent/link/protocol-link.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { Site, service, slice } from './site.ts'
import { until } from './until.ts'

t.test('an agent that acts reports, and one that has ended does not', async (t) => {
  const set = new FakeClusterset()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', globalCIDR: '244.1.0.0/16' })
  const paris = new Site(set, { id: 'paris', podCIDR: '10.42.0.0/16', globalCIDR: '244.2.0.0/16' })
  for (const site of [milano, paris]) await site.join()
  milano.api.put(namespaceObject('secret-project'))
  for (const name of ['web', 'db', 'cache']) {
    milano.api.put(service('secret-project', name))
    milano.api.put(slice('secret-project', name, '10.42.0.5'))
    milano.export('secret-project', name)
  }
  const { status } = paris
  t.same(status.reports(), { ready: true }, 'nothing runs yet')
  for (const site of [milano, paris]) site.start()
  const board = paris.status
  await until(t, () => board.reports()['notImported'], { NamespaceMissing: 1 }, 'all of a namespace count once')
  t.match(board.reports(), { broker: { publish: 'live', watch: 'live', addresses: 1 } })
  t.notMatch(JSON.stringify(board.reports()), /secret-project|milano|paris/, 'it names nobody')
  for (const site of [milano, paris]) await site.stop()
  const { broker, notImported } = board.reports()
  t.same([broker, notImported], [undefined, undefined])
})

t.test('since when, and heard last', async (t) => {
  const clock = new FakeClock()
  const began = timeText(clock.now())
  const life = new LinkLife(clock)
  t.same(life.times(), { since: began })
  await clock.advance(60_000)
  life.onState(false)
  t.same(life.times(), { since: began }, 'nothing has changed')
  life.onState(true)
  life.heard()
  const live = timeText(clock.now())
  t.same(life.times(), { since: live, heardAt: live })
  await clock.advance(60_000)
  life.onState(true)
  t.same(life.times(), { since: live, heardAt: live }, 'the same again')
  life.onState(false)
  t.same(life.times(), { since: timeText(clock.now()), heardAt: live })
  t.equal(timeText(Number.NaN), '1970-01-01T00:00:00Z')
  t.equal(timeText(9e15), '1970-01-01T00:00:00Z', 'beyond what a date can say')
})
