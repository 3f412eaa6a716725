/** How sampled calls end. What the kernel logs and forgets: test/lanes/flows.test.ts. */
import t from 'tap'
import type { EntryState } from '../../../kernel/nfnetlink/connection-table.ts'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import type { LoggedPacket } from '../../../kernel/nfnetlink/packet-log.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CallEnds, MOST_LOOKUPS } from '../../../routeagent/flows/call-ends.ts'
import { type CallBegun, keyOf } from '../../../routeagent/flows/call-samples.ts'
import { FOLLOW_HOURS, HEARD_SECONDS, MAX_FOLLOWED } from '../../../routeagent/flows/plan-flows-table.ts'

const [CLIENT, SERVER] = ['10.42.1.5', '244.1.0.5']

/** From the client to the server. */
const packet = (prefix: string, sourcePort: number, protocol = 'tcp'): LoggedPacket => ({
  ...{ prefix, source: CLIENT, destination: SERVER, protocol, sourcePort, port: 8080 },
})
const back = (prefix: string, sourcePort: number, protocol = 'tcp'): LoggedPacket => ({
  ...{ prefix, source: SERVER, destination: CLIENT, protocol, sourcePort: 8080, port: sourcePort },
})
const begun = (outcome: CallBegun['outcome'], sourcePort: number, protocol = 'tcp'): CallBegun => ({
  ...{ key: keyOf(packet('', sourcePort, protocol)) ?? '', outcome, protocol, port: 8080, sourcePort, atMs: 0 },
  call: { client: CLIENT, called: SERVER, server: SERVER },
  names: { parties: { way: 'out' } },
})

function setUp() {
  const [clock, table, ended] = [new FakeClock(), new FakeConnections(), [] as string[]]
  const ends = new CallEnds(clock, ({ sourcePort }, end, was) => {
    ended.push(`${sourcePort} ${end}${was ? '' : ' without an answer'}`)
  })
  const look = async (): Promise<readonly string[]> => {
    await clock.advance(30_000)
    await ends.look(table, new AbortController().signal)
    return ended.splice(0)
  }
  const open = (port: number, state: EntryState) =>
    table.openCall(`${CLIENT}:${port}`, '245.0.0.7:80', `${SERVER}:8080`, state)
  return { clock, table, ends, ended, look, open }
}

t.test('each way to end', async (t) => {
  const { table, ends, look, open, ended } = setUp()
  ends.begun(begun('refused', 1))
  ends.begun(begun('answered', 2, 'udp'))
  t.same(ended.splice(0), ['1 other', '2 other'])
  ends.begun(begun('answered', 3))
  t.equal(ends.size, 0, 'the kernel does not log its end')

  for (const port of [4, 5, 6, 7]) ends.begun(begun('followed', port))
  const closes = [4, 5, 6].map((port) => open(port, 'answered'))
  t.same(await look(), [], 'what never had an entry cannot be followed')
  t.equal(ends.size, 3)
  ends.take(packet('closed', 4))
  ends.take(back('closed', 5))
  ends.take(back('closed', 9))
  t.same(ended.splice(0), ['4 other', '5 other'], 'either end closes')
  for (const close of closes) close()
  t.same(await look(), ['6 timed-out'])

  const [silent, late, lateUdp, reset] = [10, 11, 12, 13]
  for (const port of [silent, late, reset]) ends.begun(begun('unanswered', port))
  ends.begun(begun('unanswered', lateUdp, 'udp'))
  const forgotten = [open(silent, 'unanswered'), open(late, 'unanswered'), open(reset, 'unanswered')]
  const lost = table.openFlow(`${CLIENT}:14`, `${SERVER}:8080`)
  ends.begun(begun('unanswered', 14, 'udp'))
  ends.take(back('followed', late))
  ends.take(back('answered', lateUdp, 'udp'))
  ends.take(back('refused', reset))
  t.same(await look(), ['12 other', '13 other'])
  ends.take(packet('closed', late))
  for (const end of [...forgotten, lost]) end()
  t.same(await look(), ['11 other', '14 timed-out without an answer', '10 timed-out without an answer'].sort(byPlace))
  t.equal(ends.size, 0)

  table.udpState = 'answered'
  ends.begun(begun('unanswered', 15, 'udp'))
  table.openFlow(`${CLIENT}:15`, `${SERVER}:8080`)
  t.same(await look(), [], 'the log of its answer was lost')
  t.equal(ends.size, 0)
})

t.test('a log of the end that is lost is no time-out', async (t) => {
  const { ends, look, open, ended } = setUp()
  const [lost, late] = [1, 2]
  for (const port of [lost, late]) ends.begun(begun('followed', port))
  const opened = [open(lost, 'answered'), open(late, 'answered')]
  t.same(await look(), [])
  for (const forget of opened) forget()
  const closing = [open(lost, 'closing'), open(late, 'closing')]
  t.same(await look(), [])
  ends.take(packet('closed', late))
  t.same(ended.splice(0), ['2 other'])
  for (const forget of closing) forget()
  t.same(await look(), [], 'how it ended is not known')
  t.equal(ends.size, 0)
})

t.test('a call without an answer, and without an entry', async (t) => {
  const { ends, look, clock } = setUp()
  const [silent, late] = [1, 2]
  for (const port of [silent, late]) ends.begun(begun('unanswered', port))
  t.same(await look(), [], 'its entry may have other addresses')
  ends.take(back('refused', late))
  t.same(await look(), ['2 other'], 'its answer is logged nonetheless')
  await clock.advance(HEARD_SECONDS * 1000 - 90_001)
  t.same(await look(), [])
  t.same(await look(), ['1 timed-out without an answer'], 'no answer would be logged any more')
  t.equal(ends.size, 0)
})

/** The order in which they were noticed: the log, and then what was looked up longest ago. */
const PLACES = ['11', '10', '14']
function byPlace(a: string, b: string): number {
  return PLACES.indexOf(a.slice(0, 2)) - PLACES.indexOf(b.slice(0, 2))
}

t.test('bounds', async (t) => {
  const { clock, table, ends, look, open, ended } = setUp()
  let asked = 0
  const states = table.states.bind(table)
  table.states = (calls, signal) => {
    asked += calls.length
    return states(calls, signal)
  }
  for (let port = 1; port <= MAX_FOLLOWED; port += 1) {
    ends.begun(begun('followed', port))
    if (port <= 100) open(port, 'answered')
  }
  ends.begun(begun('followed', 60_000))
  ends.begun(begun('refused', 60_001))
  t.equal(ends.size, MAX_FOLLOWED)
  t.same(ended, [], 'what has no room does not count, so that no way to end counts more often than others')
  await look()
  t.equal(asked, MOST_LOOKUPS)
  ends.begun(begun('followed', 1))
  t.ok(ends.size <= MAX_FOLLOWED, 'the same ports again')
  for (let i = 0; i < MAX_FOLLOWED / MOST_LOOKUPS + 5; i += 1) await look()
  t.equal(ends.size, 100, 'each had its turn')
  await clock.advance(FOLLOW_HOURS * 3_600_000)
  await ends.look(table, new AbortController().signal)
  t.equal(ends.size, 0)
  t.same(ended, [], 'what lasts longer does not count')
  ends.begun(begun('followed', 1))
  ends.clear()
  t.equal(ends.size, 0)
})
