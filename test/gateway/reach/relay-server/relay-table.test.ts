/** The text of the tables, and a relay that keeps its table. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { agreementOf } from '../../../../gateway/cable/agreement.ts'
import { DEFAULT_LIMITS } from '../../../../gateway/reach/relay-server/bindings.ts'
import { planRelayTable } from '../../../../gateway/reach/relay-server/plan-relay-table.ts'
import { planSharedPorts } from '../../../../gateway/reach/relay/plan-shared-port.ts'
import { RelayServer } from '../../../../gateway/reach/relay-server/relay-server.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { KernelError } from '../../../../kernel/errors.ts'
import { type NftStatement, formatNft } from '../../../../kernel/nft/nft.ts'
import type { ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import { parseAddress, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../../reconcile/clock.ts'
import { eventually } from '../../../support/eventually.ts'
import { equalsGolden } from '../../../support/golden.ts'
import { BindCaller } from '../../../../gateway/reach/relay/bind-caller.ts'
import { CLUSTERSET, CONTROL, RELAY_AT, RelayStage, type TestEnd } from '../../support/relay-stage.ts'

const [A, B] = [parseAddressPort('198.51.100.1:40001'), parseAddressPort('192.0.2.1:50001')]

t.test('the table of a relay', async (t) => {
  const statements = planRelayTable({
    address: parseAddress('203.0.113.9'),
    ports: { first: 4600, last: 4699 },
    mostPairs: 50,
    openPorts: [4600, 4601, 4602],
    paths: [
      { from: A, port: 4601, to: B, leaves: 4602, member: 1, number: 3 },
      { from: B, port: 4602, to: A, leaves: 4601, member: 2, number: 4 },
    ],
    known: [
      { at: A, port: 4601 },
      { at: B, port: 4602 },
    ],
    bytesPerSecond: 125_000_000,
    memberBytesPerSecond: 250_000_000,
  })
  equalsGolden(t, formatNft(statements, 'ip'), 'gateway/relay-table.nft')
  await new FakeNft().run(statements)
})

t.test('the table of an end that shares the ports of its devices', async (t) => {
  const statements = planSharedPorts([
    { device: 4500, socket: 4590 },
    { device: 4501, socket: 4591 },
  ])
  equalsGolden(t, formatNft(statements, 'ip'), 'gateway/reach-table.nft')
  await new FakeNft().run(statements)
  const others = planSharedPorts(
    [{ device: 4500, socket: 4590 }],
    [{ device: 4500, to: parseAddressPort('198.51.100.1:41000'), port: 50_123 }],
  )
  equalsGolden(t, formatNft(others, 'ip'), 'gateway/reach-table-other-port.nft')
  await new FakeNft().run(others)
  const ways = (device: number, second: string) => {
    return { device, to: parseAddressPort('198.51.100.1:41000'), second: parseAddressPort(second) }
  }
  const doubted = [ways(4500, '203.0.113.9:4601'), ways(4501, '203.0.113.10:4602')]
  const both = planSharedPorts([{ device: 4500, socket: 4590 }], [], doubted)
  equalsGolden(t, formatNft(both, 'ip'), 'gateway/reach-table-two-ways.nft')
  await new FakeNft().run(both)
  t.same(
    planSharedPorts([]).map(({ verb }) => verb),
    ['add-table', 'delete-table'],
  )
})

/** Sockets in memory, by port. */
class FakeSockets {
  readonly open = new Map<number, ProbeSocketEvents>()
  readonly sent: { readonly bytes: Buffer; readonly port: number; readonly to: string }[] = []
  failing: number | undefined

  readonly openSocket = (_address: string, port: number, events: ProbeSocketEvents) => {
    this.open.set(port, events)
    queueMicrotask(() => {
      if (port === this.failing) events.onError(new Error(`port ${port} is taken`))
      else events.onReady()
    })
    return {
      send: (bytes: Buffer, address: string, toPort: number) => {
        this.sent.push({ bytes, port, to: `${address}:${toPort}` })
      },
      probeTcp: () => () => undefined,
      close: () => {
        this.open.delete(port)
      },
    }
  }
}

/** An nft that the process may not use, or may. */
class DenyingNft extends FakeNft {
  isDenied = true

  override run(statements: readonly NftStatement[], signal?: AbortSignal): Promise<void> {
    if (!this.isDenied) return super.run(statements, signal)
    return Promise.reject(new KernelError('EPERM', 'nft -f -', 'Operation not permitted'))
  }
}

t.test('a relay without rights assigns nothing, says why, and serves once it has them', async (t) => {
  const stage = new RelayStage()
  const [nft, sockets, clock] = [new DenyingNft(), new FakeSockets(), new SystemClock()]
  const errors: unknown[] = []
  const { publicKey: identity, privateKey } = stage.keys
  const server = new RelayServer(
    { nft, clock, openSocket: sockets.openSocket, onError: (error) => errors.push(error) },
    {
      ...{ clusterset: CLUSTERSET, identity, address: RELAY_AT.address, controlPort: CONTROL, randomBytes },
      ...{ ports: { first: 4601, last: 4620 }, limits: DEFAULT_LIMITS, agree: agreementOf(privateKey) },
      ...{ bytesPerSecond: 1_000_000, memberBytesPerSecond: 1_000_000 },
    },
  )
  const [a, b] = [stage.end('paris'), stage.end('oslo')]
  server.setEnds([a, b], () => true)
  const stop = new AbortController()
  const running = server.run(stop.signal)
  t.teardown(() => {
    stop.abort()
    return running
  })
  await eventually(() => sockets.open.has(CONTROL) && errors.length > 0, { say: 'the control port, and a failure' })
  t.match(errors[0], { message: /nft -f -: Operation not permitted/ })
  const caller = new BindCaller({ from: a.id, to: b.id, key: a.key, relay: RELAY_AT })
  const ask = (): void => {
    const question = caller.next(clock.monotonic(), clock.now())
    const from = { address: '198.51.100.1', port: 40_001 }
    if (question !== undefined) sockets.open.get(question.to.port)?.onMessage(question.bytes, from)
    for (const { bytes, port } of sockets.sent.splice(0))
      caller.take(bytes, { address: RELAY_AT.address, port }, clock.monotonic())
  }
  // The challenge needs nothing of the kernel, and the question after it would get a port.
  ask()
  ask()
  const failures = errors.length
  await eventually(() => errors.length > failures, { say: 'another round fails' })
  ask()
  t.equal(caller.state.is, 'asking', 'no port is promised that the kernel does not serve')
  nft.isDenied = false
  await eventually(
    () => {
      ask()
      return caller.state.is === 'bound'
    },
    { say: 'bound' },
  )
})

t.test('a relay answers "bound" when the kernel has the path', async (t) => {
  const stage = new RelayStage()
  const [nft, sockets, clock] = [new FakeNft(), new FakeSockets(), new SystemClock()]
  const errors: unknown[] = []
  const server = new RelayServer(
    { nft, clock, openSocket: sockets.openSocket, onError: (error) => errors.push(error) },
    {
      clusterset: CLUSTERSET,
      identity: stage.keys.publicKey,
      address: RELAY_AT.address,
      controlPort: CONTROL,
      ports: { first: 4601, last: 4620 },
      limits: DEFAULT_LIMITS,
      agree: agreementOf(stage.keys.privateKey),
      randomBytes,
      bytesPerSecond: 1_000_000,
      memberBytesPerSecond: 1_000_000,
    },
  )
  const [a, b] = [stage.end('paris'), stage.end('oslo')]
  server.setEnds([a, b], () => true)
  const stop = new AbortController()
  const running = server.run(stop.signal)
  t.teardown(() => {
    stop.abort()
    return running
  })
  await eventually(() => sockets.open.has(CONTROL), { say: 'the control port' })

  const elements = async (map: string) =>
    (await nft.elements('sealane_relay', map)).map(({ key, value }) => `${key} > ${value}`)
  const bind = async (from: TestEnd, to: TestEnd, address: string, port: number): Promise<BindCaller> => {
    const caller = new BindCaller({ from: from.id, to: to.id, key: from.key, relay: RELAY_AT })
    await eventually(
      () => {
        const question = caller.next(clock.monotonic(), clock.now())
        if (question !== undefined) sockets.open.get(question.to.port)?.onMessage(question.bytes, { address, port })
        for (const one of sockets.sent.splice(0))
          caller.take(one.bytes, { address: RELAY_AT.address, port: one.port }, clock.monotonic())
        return caller.state.is === 'bound'
      },
      { say: `${from.member} is bound` },
    )
    return caller
  }
  await bind(a, b, '198.51.100.1', 40_001)
  t.same(await elements('addresses'), [])
  await bind(b, a, '192.0.2.1', 50_001)
  t.same((await elements('addresses')).length, 2)
  t.same((await elements('leaves')).length, 2)
  // Port 0: any port, from which it answers ends that measure whom their NAT lets in.
  t.same([...sockets.open.keys()].sort(), [0, 4600, 4601, 4602])
  t.same((await nft.elements('sealane_relay', 'open')).map(({ key }) => key).sort(), ['4600', '4601', '4602'])
  const full = nft.accepted.filter((one) => one.some(({ verb }) => verb === 'delete-table'))
  t.equal(full.length, 1, 'a new path changes elements alone')

  server.setEnds([a], () => true)
  await eventually(async () => (await elements('addresses')).length === 0, { say: 'the withdrawn end has no path' })
  await eventually(() => sockets.open.size === 2, { say: 'its ports are closed' })
  t.same(errors, [])
  stop.abort()
  await running
  t.equal(sockets.open.size, 0, 'no port stays open')
  t.same(await nft.tables('sealane'), ['sealane_relay'], 'packets go on while the process is started again')
})
