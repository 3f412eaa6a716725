/** What an end asks of relays, how many questions at once, and that relays of no use are remembered as such. */
import t from 'tap'
import type { TwoWays } from '../../../../gateway/reach/relay/suspects.ts'
import {
  IDLE_RELAY_MS,
  MOST_FORGIVEN,
  MOST_UNPROVEN,
  ONE_WAY_MS,
  RelayCalls,
  UNPROVEN_MS,
  USELESS_RELAY_MS,
} from '../../../../gateway/reach/relay/relay-calls.ts'
import { otherPortsOf, planSharedPorts } from '../../../../gateway/reach/relay/plan-shared-port.ts'
import type { RelayWant } from '../../../../gateway/reach/relay/plan-relay-use.ts'
import { PROBES_TO_ADDRESS } from '../../../../gateway/reach/punch/punch.ts'
import { bindKey, encodeAnswer, endId } from '../../../../gateway/reach/frames/bind-frame.ts'
import { KernelError } from '../../../../kernel/errors.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { type NftStatement, formatNft } from '../../../../kernel/nft/nft.ts'
import {
  type AddressPort,
  formatAddress,
  parseAddress,
  parseAddressPort,
  sameAddressPort,
} from '../../../../model/addresses/addresses.ts'
import { RELAY_CALL_PORT, RELAY_LAST_PORT, RELAY_PORT } from '../../../../model/kernel-ids.ts'
import { LONGEST_ANSWER_MS } from '../../../../kernel/probing/answer-wait.ts'
import type { ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CLUSTERSET, RELAY_AT, RelayStage } from '../../support/relay-stage.ts'

/** One of a kernel without a module for rules of this kind, or that refuses all for some time. */
class RefusingNft extends FakeNft {
  refuses = 'dup to'
  refused = 0

  override run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    if (!formatNft(statements, 'ip').includes(this.refuses)) return super.run(statements, signal)
    this.refused += 1
    return Promise.reject(new KernelError('ENOENT', 'nft -f -', 'No such file or directory'))
  }
}

/** From an end to the relay, or back. */
const WAY_MS = 20

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
  await apply([{ ...want, roundTripMs: 2400 }])
  calls.send()
  await clock.advance(IDLE_RELAY_MS)
  t.equal(calls.worth('roma', relay), 'good', 'one that is far away is given three times of an answer')
  await clock.advance(3 * LONGEST_ANSWER_MS - IDLE_RELAY_MS)
  t.equal(calls.worth('roma', relay), 'useless')
  calls.close()
})

t.test('a question that finds its socket not open yet is asked again as soon as that is open', async (t) => {
  const [clock, none] = [new FakeClock(), () => undefined]
  const sockets: ProbeSocketEvents[] = []
  let [isOpen, sent, due] = [false, 0, 0]
  const openSocket = (_address: string, _port: number, events: ProbeSocketEvents) => {
    sockets.push(events)
    return { send: () => void (sent += isOpen ? 1 : 0), probeTcp: () => none, close: none }
  }
  const onDue = () => void (due += 1)
  const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue })
  const address = parseAddress('203.0.113.1')
  const relay = { cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: 'oslo', address }
  const want: RelayWant = { key: 'roma', remoteLane: 0, identity: 'roma', relay }
  const own = { clusterset: 'alps', identity: 'paris', agree: () => Buffer.alloc(32) }
  await calls.apply([want], { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(10_000))
  calls.send()
  t.equal(sent, 0)
  isOpen = true
  sockets[0]?.onReady()
  t.equal(due, 1)
  calls.send()
  t.equal(sent, 1, 'it does not wait until the question would be repeated')
  calls.send()
  t.equal(sent, 1)
  calls.close()
})

t.test('a port of an earlier run of the process stays as long as a link uses it, also without relays', async (t) => {
  const [nft, clock, none] = [new FakeNft(), new FakeClock(), () => undefined]
  const other = { device: 4500, to: parseAddressPort('198.51.100.1:41000'), port: 50_123 }
  await nft.run(planSharedPorts([{ device: 4500, socket: 4580 }], [other]))
  const open = new Set<number>()
  const openSocket = (_: string, port: number) => {
    open.add(port)
    return { send: none, probeTcp: () => none, close: () => void open.delete(port) }
  }
  const random = (): number => 0
  const calls = new RelayCalls({ nft, clock, openSocket, onError: none, onChange: none, onDue: none, random })
  t.ok(calls.hasOtherPorts, 'there may be one')
  const round = async (used: readonly { readonly remoteLane: number; readonly at: AddressPort }[]) => {
    await calls.apply([], { own: undefined, ports: new Map([[0, 4500]]), used }, AbortSignal.timeout(10_000))
    calls.send()
  }
  await round([{ remoteLane: 0, at: other.to }])
  const elements = await nft.elements('sealane_reach', 'outside')
  t.strictSame(elements, [{ key: '198.51.100.1 . 41000 . 4500', value: '50123' }])
  t.ok(open.has(50_123), 'nothing else gets the port')
  await round([{ remoteLane: 0, at: parseAddressPort('203.0.113.1:4601') }])
  await round([])
  t.strictSame(nft.tableNames(), [], 'the link has moved')
  t.notOk(calls.hasOtherPorts)
  t.equal(open.size, 0)
})

t.test('elements that are not of the form of another port are left out', (t) => {
  const good = { key: '198.51.100.1 . 41000 . 4500', value: '50123' }
  const others = [
    { key: 'here . 41000 . 4500', value: '50123' },
    { key: '198.51.100.1 . 70000 . 4500', value: '50123' },
    { key: '198.51.100.1 . 41000', value: '50123' },
    { key: '198.51.100.1 . 41000 . 4500' },
    { key: '', value: '' },
  ]
  t.equal(otherPortsOf([...others, good]).length, 1)
  t.end()
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

t.test('many links ask a relay in turn, and all are bound soon', async (t) => {
  for (const [count, mostMs] of [
    [60, 1500],
    [199, 3500],
  ] as const) {
    const stage = new RelayStage({ ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } })
    const { clock } = stage
    const [paris, others] = [stage.end('paris'), Array.from({ length: count }, (_, i) => stage.end(`site-${i}`))]
    let [isDue, isAlive, open, mostOpen] = [false, false, 0, 0]
    const outcomes = new Map<string, number>()
    const openSocket = (_address: string, _port: number, events: ProbeSocketEvents) => ({
      send: (bytes: Buffer, _to: string, port: number) => {
        open += 1
        mostOpen = Math.max(mostOpen, open)
        clock.setTimer(WAY_MS, () => {
          const effect = isAlive ? stage.send(bytes, '198.51.100.1:40001', port) : undefined
          const [answer, outcome] = [effect?.answer, effect?.outcome ?? '']
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
          clock.setTimer(WAY_MS, () => {
            open -= 1
            if (answer !== undefined) events.onMessage(answer, { address: formatAddress(RELAY_AT.address), port })
          })
        })
      },
      ...{ probeTcp: () => () => undefined, close: () => undefined },
    })
    const none = () => undefined
    const onDue = () => void (isDue = true)
    const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue })
    const relay = {
      ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: stage.keys.publicKey },
      address: RELAY_AT.address,
    }
    const wants = others.map(({ identity }, i): RelayWant => ({ key: `${i}`, remoteLane: 0, identity, relay }))
    const own = { clusterset: CLUSTERSET, identity: paris.identity, agree: () => paris.secret }
    await calls.apply(wants, { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(60_000))
    const run = async (ms: number, isOver: () => boolean): Promise<number> => {
      let dueMs = calls.send()
      let leftMs = ms
      for (; leftMs > 0 && !isOver(); leftMs -= 5) {
        await clock.advance(5)
        if (!isDue && clock.monotonic() < dueMs) continue
        isDue = false
        dueMs = calls.send()
      }
      return ms - leftMs
    }
    const bound = (): number => [...calls.trips().values()].flat().filter(({ is }) => is === 'bound').length
    await run(600, () => false)
    t.ok(mostOpen <= MOST_UNPROVEN, `${mostOpen} questions at once to a relay that is away`)
    isAlive = true
    const tookMs = await run(10_000, () => bound() === count)
    t.equal(bound(), count)
    t.ok(tookMs <= mostMs, `${tookMs} ms for ${count} pairs`)
    t.equal(outcomes.get('tooMany'), undefined, 'none is dropped')
    calls.close()
  }
})

t.test('where nothing has answered yet, few questions go, for all links together', async (t) => {
  const stage = new RelayStage({ ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } })
  const { clock } = stage
  const [paris, others] = [stage.end('paris'), Array.from({ length: 20 }, (_, i) => stage.end(`site-${i}`))]
  let [sent, isThere] = [0, false]
  const openSocket = (_address: string, _port: number, events: ProbeSocketEvents) => ({
    send: (bytes: Buffer, _to: string, port: number) => {
      sent += 1
      const { answer } = isThere ? stage.send(bytes, '198.51.100.1:40001', port) : {}
      if (answer !== undefined) events.onMessage(answer, { address: formatAddress(RELAY_AT.address), port })
    },
    ...{ probeTcp: () => () => undefined, close: () => undefined },
  })
  const none = () => undefined
  const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue: none })
  const relay = {
    ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: stage.keys.publicKey, isSilent: true as const },
    address: RELAY_AT.address,
  }
  const wants = others.map(({ identity }, i): RelayWant => ({ key: `${i}`, remoteLane: 0, identity, relay }))
  const own = { clusterset: CLUSTERSET, identity: paris.identity, agree: () => paris.secret }
  await calls.apply(wants, { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(60_000))
  const run = async (forMs: number): Promise<void> => {
    for (let ms = 0; ms < forMs; ms += 50) {
      calls.send()
      await clock.advance(50)
    }
  }
  await run(50_000)
  t.equal(sent, PROBES_TO_ADDRESS)
  t.notOk(calls.hasAnswered(relay))
  isThere = true
  await run(20_000)
  t.ok(calls.hasAnswered(relay))
  const bound = [...calls.trips().values()].flat().filter(({ is }) => is === 'bound').length
  t.equal(bound, others.length, 'one that answers binds all')
  calls.close()
})

t.test('where the kernel sends no copies, packets go one way, and the table is there all the same', async (t) => {
  const [nft, clock, none] = [new RefusingNft(), new FakeClock(), () => undefined]
  const refusals: unknown[] = []
  const openSocket = () => ({ send: none, probeTcp: () => none, close: none })
  const onOneWay = (error: unknown) => void refusals.push(error)
  const calls = new RelayCalls({ nft, clock, openSocket, onError: none, onChange: none, onDue: none, onOneWay })
  const relay = { cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: 'oslo', address: RELAY_AT.address }
  const want: RelayWant = { key: 'roma', remoteLane: 0, identity: 'roma', relay }
  const own = { clusterset: 'alps', identity: 'paris', agree: () => Buffer.alloc(32) }
  const [to, second] = [parseAddressPort('198.51.100.1:41000'), parseAddressPort('203.0.113.1:4601')]
  const round = (twoWays: readonly TwoWays[]) =>
    calls.apply([want], { own, ports: new Map([[0, 4500]]), twoWays }, AbortSignal.timeout(10_000))
  const both = [{ device: 4500, to, second }]
  const chains = async () => /chain both-ways/.test((await nft.listTable('sealane_reach')) ?? '')
  await round([])
  t.notOk(calls.isOneWay)
  await round(both)
  t.ok(calls.isOneWay)
  t.strictSame(await nft.elements('sealane_reach', 'lanes'), [{ key: String(RELAY_CALL_PORT), value: '4500' }])
  nft.refuses = 'no rule'
  await clock.advance(ONE_WAY_MS - 1)
  await round(both)
  t.notOk(await chains(), 'it is not asked again soon')
  await clock.advance(1)
  await round(both)
  t.ok(await chains())
  await round([])
  nft.refuses = 'dup to'
  await round(both)
  t.equal(nft.refused, 2)
  t.equal(refusals.length, 1, 'said once')
  await clock.advance(ONE_WAY_MS)
  nft.refuses = 'table'
  await t.rejects(round(both), { code: 'ENOENT' })
  t.notOk(calls.isOneWay, 'a refusal of everything says nothing about copies')
  nft.refuses = 'no rule'
  await round(both)
  t.ok(await chains())
  calls.close()
})

t.test('links that wait for their first question are of no use only if the relay answers none', async (t) => {
  const count = MOST_UNPROVEN * 16
  for (const isAlive of [true, false]) {
    const stage = new RelayStage({ ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } })
    const { clock } = stage
    const [paris, others] = [stage.end('paris'), Array.from({ length: count }, (_, i) => stage.end(`site-${i}`))]
    const asked = new Set<string>()
    const openSocket = (_address: string, _port: number, events: ProbeSocketEvents) => ({
      send: (bytes: Buffer, _to: string, port: number) => {
        const far = bytes.subarray(16, 24).toString('hex')
        asked.add(far)
        // Only the first link's questions arrive.
        if (!isAlive || far !== [...asked][0]) return
        const { answer } = stage.send(bytes, '198.51.100.1:40001', port)
        if (answer !== undefined) events.onMessage(answer, { address: formatAddress(RELAY_AT.address), port })
      },
      ...{ probeTcp: () => () => undefined, close: () => undefined },
    })
    const none = () => undefined
    const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue: none })
    const relay = {
      ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: stage.keys.publicKey },
      address: RELAY_AT.address,
    }
    const wants = others.map(({ identity }, i): RelayWant => ({ key: `${i}`, remoteLane: 0, identity, relay }))
    const own = { clusterset: CLUSTERSET, identity: paris.identity, agree: () => paris.secret }
    await calls.apply(wants, { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(60_000))
    const worth = () => wants.map(({ key }) => calls.worth(key, relay))
    const run = async (untilMs: number): Promise<void> => {
      for (let ms = 0; ms < untilMs; ms += 100) {
        calls.send()
        await clock.advance(100)
      }
    }
    // Without room for more questions the rest is not asked.
    await run(UNPROVEN_MS)
    t.ok(asked.size > MOST_UNPROVEN - 2 && asked.size < count, `${asked.size} of ${count} are asked`)
    t.ok(
      worth().every((one) => one === 'good'),
      'none is given up yet',
    )
    await run(IDLE_RELAY_MS)
    t.equal(
      worth().at(-1),
      isAlive ? 'good' : 'useless',
      `the last one, of a relay that ${isAlive ? 'lives' : 'is away'}`,
    )
    calls.close()
  }
})

t.test('a NAT gives this end another place: its relays are asked at once, and are of use again', async (t) => {
  for (const says of ['suspected', 'failed'] as const) {
    const stage = new RelayStage()
    const { clock } = stage
    const [paris, roma] = [stage.end('paris'), stage.end('roma')]
    let outside = '198.51.100.1:40001'
    const openSocket = (_address: string, _port: number, events: ProbeSocketEvents) => ({
      send: (bytes: Buffer, _to: string, port: number) => {
        const { answer } = stage.send(bytes, outside, port)
        if (answer !== undefined) events.onMessage(answer, { address: formatAddress(RELAY_AT.address), port })
      },
      ...{ probeTcp: () => () => undefined, close: () => undefined },
    })
    const none = () => undefined
    const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue: none })
    const relay = {
      ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: stage.keys.publicKey },
      address: RELAY_AT.address,
    }
    const want: RelayWant = { key: 'roma', remoteLane: 0, identity: roma.identity, relay }
    const own = { clusterset: CLUSTERSET, identity: paris.identity, agree: () => paris.secret }
    await calls.apply([want], { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(60_000))
    const settle = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += 100) {
        calls.send()
        await clock.advance(100)
      }
    }
    await settle(500)
    const port = stage.bind(roma, paris, '192.0.2.1:40001')
    await settle(3000)
    const [place] = calls.places().get('roma') ?? []
    if (place === undefined) throw new Error('not bound')
    const knows = () => stage.bindings.paths().some(({ from }) => sameAddressPort(from, parseAddressPort(outside)))
    outside = '198.51.100.1:40002'
    await settle(100)
    t.notOk(knows(), `${says}: nothing is due`)
    if (says === 'suspected') calls.suspected(new Set(['roma']))
    else calls.failed('roma', place.at)
    t.equal(calls.worth('roma', relay), says === 'failed' ? 'useless' : 'good')
    await settle(300)
    t.ok(knows(), `${says}: the relay knows the new place`)
    t.equal(calls.worth('roma', relay), 'good', says)
    t.match(stage.prove(roma, paris, { at: '192.0.2.1:40001', port }), { far: { at: parseAddressPort(outside) } })
    if (says === 'failed') {
      const worth: string[] = []
      for (let i = 3; i < 8; i++) {
        outside = `198.51.100.1:4000${i}`
        calls.failed('roma', place.at)
        stage.prove(roma, paris, { at: '192.0.2.1:40001', port })
        await settle(10_000)
        worth.push(calls.worth('roma', relay))
      }
      const left = MOST_FORGIVEN - 1
      t.strictSame(
        worth,
        worth.map((_, i) => (i < left ? 'good' : 'useless')),
        'one that always says so is of no use',
      )
    }
    calls.close()
  }
})
