/**
 * Two WireGuard devices exchange packets by the table of a relay, and messages share the ports of the devices.
 * test/guest runs this on a kernel with its own WireGuard, so it starts few processes.
 *
 *   left 10.1.0.2 ───┐
 *   right 10.2.0.2 ──┼── relay 203.0.113.9: this process
 *   stranger 10.3.0.2 ┘
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { agreementOf } from '../../gateway/cable/agreement.ts'
import { BindCaller } from '../../gateway/reach/relay/bind-caller.ts'
import { BIND_MAGIC, bindKey, endId } from '../../gateway/reach/frames/bind-frame.ts'
import { DEFAULT_LIMITS } from '../../gateway/reach/relay-server/bindings.ts'
import { planSharedPorts } from '../../gateway/reach/relay/plan-shared-port.ts'
import { encodeProbe, probeKey } from '../../gateway/reach/frames/punch-frame.ts'
import { type RelayConfig, RelayServer } from '../../gateway/reach/relay-server/relay-server.ts'
import { NftSession, formatNft } from '../../kernel/nft/nft.ts'
import { parseCounts } from '../../kernel/nft/nft-text.ts'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import { formatAddressPort, parseAddress, parseAddressPort } from '../../model/addresses/addresses.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

const CLUSTERSET = 'alps'
const RELAY = '203.0.113.9'
const [CONTROL, DEVICE, SOCKET, OTHER] = [4600, 4500, 4590, 50_123]
const NO_LIMIT = 4_000_000_000
/** What a relay lets through at once, and a rate that is nothing beside it. */
const [BURST, SLOW] = [524_288, 4000]
/** Octets of a packet of the flood, as the relay sees it, and more of them than it lets through at once. */
const [FLOOD_BYTES, FLOOD] = [1388, 440]
const QUOTA = 100_000
const MAGIC = BIND_MAGIC.toString(16)
const clock = new SystemClock()

/** Sends lines `address port hex to-address to-port` from that address and port, and prints what comes there. */
const DATAGRAMS = `
  const sockets = new Map()
  const open = (address, port) => new Promise((resolve) => {
    const socket = require('node:dgram').createSocket('udp4')
    socket.on('message', (bytes, from) => console.log(bytes.toString('hex') + ' ' + from.address + ':' + from.port))
    socket.bind(Number(port), address, () => resolve(socket))
  })
  require('node:readline').createInterface(process.stdin).on('line', async (line) => {
    const [address, port, hex, to, toPort] = line.split(' '), key = address + ' ' + port
    if (!sockets.has(key)) sockets.set(key, open(address, port))
    const socket = await sockets.get(key)
    socket.send(Buffer.from(hex, 'hex'), Number(toPort), to)
  })`

interface NodeAtRelay {
  readonly ns: Netns
  readonly address: string
  readonly datagrams: ChildProcess
  readonly heard: { readonly bytes: Buffer; readonly from: string }[]
  onHeard: (bytes: Buffer, from: string) => void
}

interface End extends NodeAtRelay {
  readonly device: string
  readonly keys: ReturnType<typeof generateWireguardKey>
  readonly inside: string
}

function ip(text: string): void {
  execFileSync('ip', text.split(' '))
}

/** Counts what its node takes in: messages at the device, other packets at the socket, and forged ones. */
const COUNTERS = `table ip seen {
  counter at-device { }
  counter at-socket { }
  counter not-split { }
  counter forged { }
  counter of-relay { }
  chain in {
    type filter hook input priority 0;
    ip saddr ${RELAY} counter name of-relay
    @th,96,32 0xdeadbeef counter name forged
    udp dport ${DEVICE} @th,64,32 0x${MAGIC} counter name not-split
    udp dport ${SOCKET} @th,64,32 != 0x${MAGIC} counter name not-split
    udp dport ${DEVICE} counter name at-device
    udp dport ${SOCKET} counter name at-socket
  }
}`

async function nodeAt(t: Test, ns: Netns, number: number): Promise<NodeAtRelay> {
  const [device, address] = [`to-${number}`, `10.${number}.0.2`]
  ip(`link add ${device} type veth peer name wan netns ${ns.name}`)
  ip(`address add 10.${number}.0.1/24 dev ${device}`)
  ip(`link set ${device} up`)
  const commands = [`address add ${address}/24 dev wan`, 'link set wan up', `route add default via 10.${number}.0.1`]
  await ns.exec('ip', ['-batch', '-'], { input: `${commands.join('\n')}\n` })
  const shared = formatNft(planSharedPorts([{ device: DEVICE, socket: SOCKET }]), 'ip')
  await ns.exec('nft', ['-f', '-'], { input: `${COUNTERS}\n${shared}` })
  const words = ['netns', 'exec', ns.name, process.execPath, '-e', DATAGRAMS]
  const datagrams = spawn('ip', words, { stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => datagrams.kill())
  const made: NodeAtRelay = { ns, address, datagrams, heard: [], onHeard: () => undefined }
  createInterface(datagrams.stdout).on('line', (line) => {
    const [hex = '', from = ''] = line.split(' ')
    made.heard.push({ bytes: Buffer.from(hex, 'hex'), from })
    made.onHeard(Buffer.from(hex, 'hex'), from)
  })
  return made
}

async function end(t: Test, ns: Netns, number: number): Promise<End> {
  const device = `sl${number}${randomBytes(4).toString('hex')}`
  const more = { device, keys: generateWireguardKey(), inside: `246.0.0.${number}` }
  return Object.assign(await nodeAt(t, ns, number), more)
}

function send({ datagrams }: NodeAtRelay, from: string, bytes: Buffer, to: string): void {
  datagrams.stdin?.write(`${from.replace(':', ' ')} ${bytes.toString('hex')} ${to.replace(':', ' ')}\n`)
}

async function makeDevice(t: Test, { ns, device, keys, inside }: End, far: End): Promise<void> {
  const file = join(t.testdir({}), device)
  writeFileSync(file, `${keys.privateKey}\n`, { mode: 0o600 })
  const isKernel = (await ns.tryExec('ip', ['link', 'add', device, 'type', 'wireguard'])).code === 0
  if (!isKernel) await ns.exec('wireguard-go', [device])
  const peer = ['peer', far.keys.publicKey, 'allowed-ips', `${far.inside}/32`]
  await ns.exec('wg', ['set', device, 'private-key', file, 'listen-port', String(DEVICE), ...peer])
  const commands = [
    `address add ${inside}/32 dev ${device}`,
    `link set ${device} up mtu 1440`,
    `route add ${far.inside}/32 dev ${device}`,
  ]
  await ns.exec('ip', ['-batch', '-'], { input: `${commands.join('\n')}\n` })
  t.comment(`${device}: ${isKernel ? 'of the kernel' : 'wireguard-go'}`)
}

interface Bound {
  readonly callers: readonly BindCaller[]
  /** The ports at which the relay takes the packets of each end. */
  readonly ports: readonly number[]
  readonly errors: readonly unknown[]
  stop(): Promise<void>
}

/** Runs a relay, and asks it for both ends until they are bound. Their devices call each other there. */
async function relayed(ends: readonly [End, End], keys: End['keys'], limits: Partial<RelayConfig>): Promise<Bound> {
  const errors: unknown[] = []
  const nft = new NftSession({ family: 'ip' })
  const server = new RelayServer(
    { nft, clock, onError: (error) => errors.push(error) },
    {
      clusterset: CLUSTERSET,
      identity: keys.publicKey,
      address: parseAddress(RELAY),
      controlPort: CONTROL,
      ports: { first: 4601, last: 4650 },
      limits: DEFAULT_LIMITS,
      bytesPerSecond: NO_LIMIT,
      memberBytesPerSecond: NO_LIMIT,
      agree: agreementOf(keys.privateKey),
      randomBytes,
      ...limits,
    },
  )
  const members = ends.map((one) => ({ member: one.device, identity: one.keys.publicKey }))
  server.setEnds(members, () => true)
  const signal = new AbortController()
  const served = server.run(signal.signal)
  const callers = [callerOf(ends[0], ends[1], keys), callerOf(ends[1], ends[0], keys)]
  const ask = (i: number): void => {
    const [caller, one] = [callers[i], ends[i]]
    const question = caller?.next(clock.monotonic(), clock.now())
    if (question === undefined || one === undefined) return
    send(one, `${one.address}:${SOCKET}`, question.bytes, formatAddressPort(question.to))
  }
  for (const [i, one] of ends.entries())
    one.onHeard = (bytes, from) => {
      callers[i]?.take(bytes, parseAddressPort(from), clock.monotonic())
      ask(i)
    }
  const timer = setInterval(() => [0, 1].forEach(ask), 50)
  const stop = async (): Promise<void> => {
    clearInterval(timer)
    signal.abort()
    await served
    nft.close()
  }
  const states = () => callers.map(({ state }) => state)
  const bound = await eventually(
    () => {
      const found = states().flatMap((state) => (state.is === 'bound' && state.far !== undefined ? [state] : []))
      return found.length === 2 && found
    },
    { say: 'both ends are bound' },
  ).catch(async (error: unknown) => {
    await stop()
    throw error
  })
  for (const [i, { at }] of bound.entries()) {
    const [one, far] = [ends[i], ends[1 - i]]
    if (one === undefined || far === undefined) continue
    await one.ns.exec('wg', ['set', one.device, 'peer', far.keys.publicKey, 'endpoint', formatAddressPort(at)])
  }
  return { callers, ports: bound.map(({ port }) => port), errors, stop }
}

function callerOf(one: End, far: End, keys: End['keys']): BindCaller {
  const secret = agreementOf(one.keys.privateKey)(keys.publicKey) ?? Buffer.alloc(0)
  return new BindCaller({
    from: endId(CLUSTERSET, one.keys.publicKey),
    to: endId(CLUSTERSET, far.keys.publicKey),
    key: bindKey({ secret, clusterset: CLUSTERSET, relay: keys.publicKey, end: one.keys.publicKey }),
    relay: parseAddressPort(`${RELAY}:${CONTROL}`),
  })
}

async function received(from: End, to: End, words: string): Promise<number> {
  const { stdout } = await from.ns.tryExec('ping', ['-n', '-q', ...words.split(' '), to.inside], { timeoutMs: 120_000 })
  return Number(/ (\d+) received/.exec(stdout)?.[1] ?? 0)
}

async function talks(from: End, to: End): Promise<boolean> {
  return (await received(from, to, '-c 1 -W 1')) === 1
}

/** Packets of the named counters. */
function counters(listing: string): Readonly<Record<string, number>> {
  const found = listing.matchAll(/counter (\S+) \{\s+packets (\d+)/g)
  return Object.fromEntries([...found].map(([, name = '', packets]) => [name, Number(packets)]))
}

async function seenBy({ ns }: NodeAtRelay): Promise<Readonly<Record<string, number>>> {
  return counters(await ns.exec('nft', ['list', 'counters', 'table', 'ip', 'seen']))
}

function relayTable(): string {
  return execFileSync('nft', ['list', 'table', 'ip', 'sealane_relay'], { encoding: 'utf8' })
}

interface World {
  readonly left: End
  readonly right: End
  readonly stranger: NodeAtRelay
}

/** A packet that has the form of WireGuard's, but was made by no device. */
const FORGED = Buffer.concat([Buffer.from('04000000deadbeef', 'hex'), Buffer.alloc(56)])

async function onlyTheirOwn(t: Test, { left, right, stranger }: World, [ofLeft = 0, ofRight = 0]: readonly number[]) {
  await stranger.ns.exec('ip', ['address', 'add', `${left.address}/32`, 'dev', 'lo'])
  const device = `${left.address}:${DEVICE}`
  const dropped = [
    [`${stranger.address}:${DEVICE}`, ofLeft],
    [`${stranger.address}:${DEVICE}`, ofRight],
    [`${stranger.address}:${DEVICE}`, CONTROL],
    // The address of the left end, but not its port; and both, but not at its port of the relay.
    [`${left.address}:${DEVICE + 1}`, ofLeft],
    [device, ofRight],
    [device, CONTROL],
  ] as const
  const before = counters(relayTable())
  for (const [from, port] of dropped) send(stranger, from, FORGED, `${RELAY}:${port}`)
  const question = Buffer.alloc(88)
  question.write('SLR1')
  send(stranger, `${stranger.address}:${DEVICE}`, question, `${RELAY}:4650`)
  const rise = (name: string): number => (counters(relayTable())[name] ?? 0) - (before[name] ?? 0)
  await eventually(() => rise('unbound') >= dropped.length && rise('closed') >= 1, { say: 'all are dropped' })
  t.equal(rise('unbound'), dropped.length)
  t.same([(await seenBy(left))['forged'], (await seenBy(right))['forged']], [0, 0], 'and none is forwarded')
  t.equal((await seenBy(stranger))['of-relay'], 0, 'a stranger gets nothing')

  send(stranger, device, FORGED, `${RELAY}:${ofLeft}`)
  await eventually(async () => (await seenBy(right))['forged'] === 1, { say: 'a relay cannot tell what is forged' })
  t.ok(await talks(right, left), 'but WireGuard does')
  const endpoints = await right.ns.exec('wg', ['show', right.device, 'endpoints'])
  t.match(endpoints, `\t${RELAY}:${ofRight}`, 'and calls where it called before')
}

async function portsAreSplit(t: Test, { left, right }: World): Promise<void> {
  const identities = [left.keys.publicKey, right.keys.publicKey] as const
  const secret = agreementOf(left.keys.privateKey)(right.keys.publicKey) ?? Buffer.alloc(0)
  const key = probeKey({ secret, clusterset: CLUSTERSET, identities })
  const [from, to] = [endId(CLUSTERSET, identities[0]), endId(CLUSTERSET, identities[1])]
  const at = `${right.address}:${DEVICE}`
  const probe = encodeProbe({ type: 'probe', from, to, counter: 1, place: parseAddressPort(at) }, key)
  send(left, `${left.address}:${SOCKET}`, probe, at)
  const heard = await eventually(() => right.heard.find(({ bytes }) => bytes.equals(probe)), { say: 'the probe' })
  t.equal(heard.from, `${left.address}:${DEVICE}`, 'a probe comes from the port of the device, to the socket')
  for (const one of [left, right]) {
    const seen = await seenBy(one)
    t.equal(seen['not-split'], 0, `${one.address}: no message at the device, and nothing else at the socket`)
    t.ok((seen['at-device'] ?? 0) >= 10 && (seen['at-socket'] ?? 0) >= 3, JSON.stringify(seen))
    t.ok(one.heard.every(({ bytes }) => bytes.readUInt32BE(0) === BIND_MAGIC))
  }
}

/** Sends more than a relay lets through at once. Returns the octets that it has forwarded of each end. */
async function flood({ left, right }: World): Promise<readonly number[]> {
  await received(left, right, `-f -c ${FLOOD} -s 1300 -W 1`)
  const counted = parseCounts(relayTable()).sets.get('carried') ?? []
  return counted.map(({ bytes }) => bytes)
}

/** The relay limits either what an end sends, or what its member sends. */
async function rateHolds(t: Test, world: World, drop: 'over-rate' | 'over-member-rate'): Promise<void> {
  const octets = Math.max(0, ...(await flood(world)))
  const { [drop]: dropped = 0, ...others } = counters(relayTable())
  t.ok(dropped > 0, `${drop}: ${dropped} packets`)
  t.notOk(others[drop === 'over-rate' ? 'over-member-rate' : 'over-rate'], 'and by the other rate none')
  t.ok(octets > BURST - FLOOD_BYTES && octets < FLOOD * FLOOD_BYTES, `${octets} octets of ${FLOOD * FLOOD_BYTES}`)
  await eventually(() => talks(world.left, world.right), { say: 'the link goes on below its rate' })
}

async function quotaHolds(t: Test, world: World, { callers }: Bound): Promise<void> {
  const octets = (await flood(world)).reduce((sum, ofEnd) => sum + ofEnd, 0)
  t.ok(octets > QUOTA, `${octets} octets`)
  const paths = /map addresses \{[^}]*elements/
  await eventually(() => !paths.test(relayTable()), { say: 'a pair whose quota is spent has no path' })
  t.notOk(await talks(world.left, world.right))
  await eventually(
    () => {
      // Otherwise they would ask again after some seconds.
      for (const caller of callers) caller.renew(clock.monotonic())
      return callers.some(({ state }) => state.is === 'refused' && state.why === 'quotaSpent')
    },
    { say: 'its ends hear why' },
  )
}

async function story(t: Test, world: World): Promise<void> {
  const { left, right } = world
  const ends = [left, right] as const
  const keys = generateWireguardKey()
  await makeDevice(t, left, right)
  await makeDevice(t, right, left)
  await withRelay(t, ends, keys, { bytesPerSecond: SLOW }, async ({ callers, ports }) => {
    const seen = callers.map(({ state }) => (state.is === 'bound' ? formatAddressPort(state.seen) : state.is))
    t.same(seen, [`${left.address}:${DEVICE}`, `${right.address}:${DEVICE}`], 'questions come from the devices’ ports')
    await carriesOnlyCiphertext(t, world)
    await portsAreSplit(t, world)
    await onlyTheirOwn(t, world, ports)
    await rateHolds(t, world, 'over-rate')
  })
  await withRelay(t, ends, keys, { memberBytesPerSecond: SLOW }, () => rateHolds(t, world, 'over-member-rate'))
  const limits = { ...DEFAULT_LIMITS, pairQuota: QUOTA }
  await withRelay(t, ends, keys, { limits }, (relay) => quotaHolds(t, world, relay))
  await otherPortHolds(t, world)
}

/** Without a relay, and with a far end that takes in nothing but what comes from another port than the device's. */
async function otherPortHolds(t: Test, { left, right }: World): Promise<void> {
  const sinceMs = clock.monotonic()
  const to = parseAddressPort(`${right.address}:${DEVICE}`)
  const other = { device: DEVICE, to, port: OTHER }
  const table = formatNft(planSharedPorts([{ device: DEVICE, socket: SOCKET }], [other]), 'ip')
  await left.ns.exec('nft', ['-f', '-'], { input: table })
  await right.ns.exec('nft', ['-f', '-'], { input: ONLY_OTHER(left.address) })
  await left.ns.exec('wg', ['set', left.device, 'peer', right.keys.publicKey, 'endpoint', formatAddressPort(to)])
  await eventually(() => talks(left, right), { say: 'a handshake from the other port' })
  t.equal(await received(right, left, '-c 5 -i 0.05 -W 5 -M do -s 1412'), 5, 'and back, in packets of the full size')
  const endpoints = await right.ns.exec('wg', ['show', right.device, 'endpoints'])
  t.match(endpoints, `\t${left.address}:${OTHER}`, 'the far device calls the other port')
  t.match(await left.ns.exec('wg', ['show', left.device, 'listen-port']), `${DEVICE}`, 'the device keeps its own')

  // Messages go by the other port, too, and come back to the socket.
  const [there, back] = [FORGED, FORGED].map((bytes, i) =>
    Buffer.concat([Buffer.from('SLR1'), bytes.subarray(4), Buffer.from([i])]),
  )
  if (there === undefined || back === undefined) throw new Error('messages')
  send(left, `${left.address}:${SOCKET}`, there, formatAddressPort(to))
  const heard = await eventually(() => right.heard.find(({ bytes }) => bytes.equals(there)), { say: 'a message' })
  t.equal(heard.from, `${left.address}:${OTHER}`)
  send(right, `${right.address}:${SOCKET}`, back, heard.from)
  const answer = await eventually(() => left.heard.find(({ bytes }) => bytes.equals(back)), { say: 'its answer' })
  t.equal(answer.from, formatAddressPort(to))

  // Everything else leaves from the device's own port.
  const elsewhere = Buffer.concat([there, Buffer.from([2])])
  send(left, `${left.address}:${SOCKET}`, elsewhere, `${right.address}:${DEVICE + 1}`)
  const dropped = await eventually(async () => (await seenFrom(right))['own'], { say: 'a packet for another port' })
  t.equal(dropped, 1)
  t.comment(`figures: by another port after ${Math.round(clock.monotonic() - sinceMs)} ms`)
}

/** Drops, as a NAT that takes known places would, what does not come from the other port of the left end. */
const ONLY_OTHER = (from: string): string => `table ip only {
  counter other { }
  counter own { }
  chain in {
    type filter hook prerouting priority -310;
    ip saddr ${from} udp sport ${OTHER} counter name other accept
    ip saddr ${from} udp sport ${DEVICE} counter name own drop
  }
}`

async function seenFrom({ ns }: NodeAtRelay): Promise<Readonly<Record<string, number>>> {
  return counters(await ns.exec('nft', ['list', 'counters', 'table', 'ip', 'only']))
}

async function carriesOnlyCiphertext(t: Test, { left, right }: World): Promise<void> {
  t.equal(await received(left, right, '-c 10 -i 0.05 -W 5'), 10)
  t.equal(await received(right, left, '-c 3 -i 0.05 -W 5 -M do -s 1412'), 3, 'packets of the full size')
  const plain = counters(execFileSync('nft', ['list', 'counters', 'table', 'ip', 'wire'], { encoding: 'utf8' }))
  t.equal(plain['strange'], 0, 'all that the relay gets from ends is WireGuard’s, or a message')
  t.equal(plain['readable'], 0, 'and no packet of the link can be read')
  t.ok((plain['known'] ?? 0) > 26)
}

/** The next run of a relay replaces the table of the one before. */
async function withRelay(
  t: Test,
  ends: readonly [End, End],
  keys: End['keys'],
  limits: Partial<RelayConfig>,
  act: (relay: Bound) => Promise<void>,
): Promise<void> {
  const sinceMs = clock.monotonic()
  const relay = await relayed(ends, keys, limits)
  try {
    await eventually(() => talks(...ends), { say: 'a handshake by the relay' })
    t.comment(`figures: linked after ${Math.round(clock.monotonic() - sinceMs)} ms`)
    await act(relay)
    t.comment(`figures: done after ${Math.round(clock.monotonic() - sinceMs)} ms`)
    t.same(relay.errors, [])
  } finally {
    await relay.stop()
  }
}

/** What comes to the relay from its ends. The header of a packet inside would be at the place of `readable`. */
const WIRE = `table ip wire {
  counter known { }
  counter strange { }
  counter readable { }
  chain in {
    type filter hook prerouting priority -310;
    ip saddr 10.3.0.0/24 return
    ip daddr != ${RELAY} return
    @th,192,32 { 0x45000054, 0x450005a0 } counter name readable
    @th,64,32 { 0x01000000, 0x02000000, 0x03000000, 0x04000000, 0x${MAGIC} } counter name known return
    counter name strange
  }
}`

inPrivateNetns(t, import.meta.url, () => {
  t.test('two WireGuard devices by a relay', (t) =>
    withNetns((left) =>
      withNetns((right) =>
        withNetns(async (stranger) => {
          execFileSync('sysctl', ['-qw', 'net.ipv4.ip_forward=1', 'net.ipv4.conf.all.rp_filter=0'])
          execFileSync('sysctl', ['-qw', 'net.ipv4.conf.default.rp_filter=0'])
          ip(`address add ${RELAY}/32 dev lo`)
          execFileSync('nft', ['-f', '-'], { input: WIRE })
          const ends = [await end(t, left, 1), await end(t, right, 2)] as const
          await story(t, { left: ends[0], right: ends[1], stranger: await nodeAt(t, stranger, 3) })
        }),
      ),
    ),
  )
})
