/** Relays that are of no use are remembered as such. */
import t from 'tap'
import { IDLE_RELAY_MS, RelayCalls, USELESS_RELAY_MS } from '../../../../gateway/reach/relay/relay-calls.ts'
import type { RelayWant } from '../../../../gateway/reach/relay/plan-relay-use.ts'
import { bindKey, encodeAnswer, endId } from '../../../../gateway/reach/relay/bind-frame.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { parseAddress } from '../../../../model/addresses/addresses.ts'
import type { ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'

t.test('a relay that is silent counts as useless, also when it is asked no longer', async (t) => {
  const clock = new FakeClock()
  const openSocket = () => ({ send: () => undefined, probeTcp: () => () => undefined, close: () => undefined })
  const none = () => undefined
  const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue: none })
  const relay = {
    ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: 'oslo' },
    address: parseAddress('203.0.113.1'),
  }
  const want: RelayWant = { key: 'roma', remoteLane: 0, identity: 'roma', relay }
  const own = { clusterset: 'alps', identity: 'paris', agree: () => Buffer.alloc(32) }
  const apply = (wants: readonly RelayWant[]) =>
    calls.apply(wants, { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(10_000))
  await apply([want])
  calls.send()
  t.equal(calls.worth('roma', relay), 'good')
  t.strictSame(calls.asked(), new Map([['roma', [relay.address]]]), 'it may answer')
  await clock.advance(IDLE_RELAY_MS)
  calls.send()
  t.equal(calls.asked().size, 0)
  t.equal(calls.worth('roma', relay), 'useless')
  t.equal(calls.worth('bern', relay), 'good', 'for another link')
  await apply([])
  t.equal(calls.worth('roma', relay), 'useless')
  await clock.advance(USELESS_RELAY_MS)
  t.equal(calls.worth('roma', relay), 'good', 'it is tried again')
  calls.close()
})

t.test('octets that only look like an answer wake nothing', async (t) => {
  const clock = new FakeClock()
  const events: ProbeSocketEvents[] = []
  const sent: Buffer[] = []
  const openSocket = (_address: string, _port: number, one: ProbeSocketEvents) => {
    events.push(one)
    const send = (bytes: Buffer) => void sent.push(bytes)
    return { send, probeTcp: () => () => undefined, close: () => undefined }
  }
  let due = 0
  const none = () => undefined
  const onDue = () => (due += 1)
  const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue })
  const [clusterset, secret] = ['alps', Buffer.alloc(32)]
  const relay = {
    ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: 'oslo' },
    address: parseAddress('203.0.113.1'),
  }
  const want: RelayWant = { key: 'roma', remoteLane: 0, identity: 'roma', relay }
  const own = { clusterset, identity: 'paris', agree: () => secret }
  await calls.apply([want], { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(10_000))
  calls.send()
  const [socket, question] = [events[0], sent[0]]
  if (socket === undefined || question === undefined) throw new Error('nothing was asked')
  const counter = Number(question.readBigUInt64BE(24))
  const key = bindKey({ secret, clusterset, relay: 'oslo', end: 'paris' })
  const ends = { from: endId(clusterset, 'paris'), to: endId(clusterset, 'roma') }
  const answer = (change: { readonly from?: string; readonly counter?: number }, by = key) =>
    encodeAnswer({ ...ends, counter, type: 'assigned', port: 4601, ...change }, by)
  const from = { address: '203.0.113.1', port: 4600 }
  for (const bytes of [Buffer.alloc(0), answer({ from: endId(clusterset, 'bern') }), answer({ counter: 7 })])
    socket.onMessage(bytes, from)
  socket.onMessage(answer({}, Buffer.alloc(32)), from)
  socket.onMessage(answer({}), { ...from, address: '203.0.113.2' })
  t.equal(due, 0)
  socket.onMessage(answer({}), from)
  t.equal(due, 1, 'the answer')
  t.strictSame(calls.refusals(), [])
  calls.send()
  const refused = { ...ends, counter: Number(sent[1]?.readBigUInt64BE(24)), port: 0, newest: 0 }
  socket.onMessage(encodeAnswer({ ...refused, type: 'refused', why: 'full' }, key), { ...from, port: 4601 })
  t.strictSame(calls.refusals(), ['oslo: full'])
  t.equal(calls.asked().size, 0, 'it has answered')
  t.strictSame([...calls.refusalsOfLinks().values()], [['oslo: full']])
  calls.close()
})
