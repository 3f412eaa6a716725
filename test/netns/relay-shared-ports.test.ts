/**
 * The kernel of a relay whose ports are shared: two pairs have the same two ports, and each end gets only what its own
 * far end sends. A table of the most pairs is taken as a whole.
 *
 *   left 10.1.0.2 :5001 :5002 ── relay 203.0.113.9 :4601 :4602 ── right 10.2.0.2 :6001 :6002
 */
import { createInterface } from 'node:readline'
import t from 'tap'
import type { RelayPath } from '../../gateway/reach/relay-server/bindings.ts'
import { planRelayTable } from '../../gateway/reach/relay-server/plan-relay-table.ts'
import { formatNft, parseCounts } from '../../kernel/nft/nft-text.ts'
import { formatAddressPort, parseAddress, parseAddressPort } from '../../model/addresses/addresses.ts'
import { PAIRS_OF_RELAY, RELAY_LAST_PORT, RELAY_PORT } from '../../model/kernel-ids.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'

const RELAY = '203.0.113.9'
const [LEFT, RIGHT] = ['10.1.0.2', '10.2.0.2']
const NO_LIMIT = 4_000_000_000

/** Pairs from one port of the left end to one of the right end. All have the ports 4601 and 4602. */
function pathsOf(pairs: readonly (readonly [left: string, right: string])[]): RelayPath[] {
  return pairs.flatMap(([left, right], i) => {
    const [a, b] = [parseAddressPort(left), parseAddressPort(right)]
    return [
      { from: a, port: 4601, to: b, leaves: 4602, member: 1, number: 2 * i + 1 },
      { from: b, port: 4602, to: a, leaves: 4601, member: 2, number: 2 * i + 2 },
    ]
  })
}

function tableOf(paths: readonly RelayPath[]): string {
  const statements = planRelayTable({
    address: parseAddress(RELAY),
    ports: { first: RELAY_PORT, last: RELAY_LAST_PORT },
    mostPairs: PAIRS_OF_RELAY,
    paths,
    openPorts: [4601, 4602],
    known: paths.map(({ from, port }) => ({ at: from, port })),
    bytesPerSecond: NO_LIMIT,
    memberBytesPerSecond: NO_LIMIT,
  })
  return formatNft(statements, 'ip')
}

/** Answers each datagram with the port at which it came in, and prints who has sent what. */
const ECHO = `
  for (const port of [6001, 6002]) {
    const socket = require('node:dgram').createSocket('udp4')
    socket.on('message', (bytes, { address, port: from }) => {
      console.log(port + ' ' + bytes + ' from ' + address + ':' + from)
      socket.send(bytes + ' at ' + port, from, address)
    }).bind(port, () => console.log('ready'))
  }`

/** Sends from three ports, of which the relay knows two, until both answers are there. Prints the answers. */
const CALLS = `
  const { createSocket } = require('node:dgram'), answers = new Set()
  for (const port of [5001, 5002, 5003]) {
    const socket = createSocket('udp4')
    socket.on('message', (bytes, { address, port: from }) => {
      answers.add(port + ' ' + bytes + ' from ' + address + ':' + from)
    }).bind(port)
    setInterval(() => socket.send('hello of ' + port, 4601, '${RELAY}'), 50)
  }
  const over = () => { console.log([...answers].sort().join('\\n')); process.exit(0) }
  setInterval(() => { if (answers.size >= 2) setTimeout(over, 300) }, 50)
  setTimeout(over, 20_000)`

async function wire(end: Netns, address: string, relay: Netns, device: string): Promise<void> {
  const router = address.replace(/\d+$/, '1')
  await end.exec('ip', `link add wan type veth peer name ${device} netns ${relay.name}`.split(' '))
  for (const [ns, name, own] of [
    [end, 'wan', address],
    [relay, device, router],
  ] as const) {
    await ns.exec('ip', ['address', 'add', `${own}/24`, 'dev', name])
    await ns.exec('ip', ['link', 'set', name, 'up'])
  }
  await end.exec('ip', ['route', 'add', 'default', 'via', router])
}

t.test('pairs that share the ports of a relay', { skip: netnsMissing() ?? false }, (t) =>
  withNetns((left) =>
    withNetns((right) =>
      withNetns(async (relay) => {
        await wire(left, LEFT, relay, 'near')
        await wire(right, RIGHT, relay, 'far')
        await relay.exec('ip', ['address', 'add', `${RELAY}/32`, 'dev', 'lo'])
        await relay.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
        const two = pathsOf([
          [`${LEFT}:5001`, `${RIGHT}:6001`],
          [`${LEFT}:5002`, `${RIGHT}:6002`],
        ])
        await relay.exec('nft', ['-f', '-'], { input: tableOf(two) })
        const heard: string[] = []
        const echo = right.spawn(process.execPath, ['-e', ECHO])
        if (echo.stdout !== null) createInterface(echo.stdout).on('line', (line) => heard.push(line))
        await eventually(() => heard.length === 2, { say: 'the right end' })
        const answers = await left.exec(process.execPath, ['-e', CALLS])
        t.same(answers.trim().split('\n'), [
          `5001 hello of 5001 at 6001 from ${RELAY}:4601`,
          `5002 hello of 5002 at 6002 from ${RELAY}:4601`,
        ])
        t.same([...new Set(heard)].sort(), [
          `6001 hello of 5001 from ${RELAY}:4602`,
          `6002 hello of 5002 from ${RELAY}:4602`,
          'ready',
        ])
        const { sets } = parseCounts(await relay.exec('nft', ['list', 'set', 'ip', 'sealane_relay', 'carried']))
        const counted = sets.get('carried') ?? []
        t.same(
          counted.map(({ key }) => Number(key)).sort((a, b) => a - b),
          [1, 2, 3, 4],
          'each direction is counted for itself',
        )
        const rates = await relay.exec('nft', ['list', 'set', 'ip', 'sealane_relay', 'member-rates'])
        t.equal([...rates.matchAll(/0x[0-9a-f]{8} limit/g)].length, 2, 'and limited with others of its member')

        const pairs = Array.from({ length: PAIRS_OF_RELAY }, (_, i) => i)
        const most = pathsOf(pairs.map((i) => [`${LEFT}:${10_000 + i}`, `${RIGHT}:${20_000 + i}`]))
        await relay.exec('nft', ['-f', '-'], { input: tableOf(most) })
        const listed = await relay.exec('nft', ['list', 'map', 'ip', 'sealane_relay', 'senders'])
        const senders = [...listed.matchAll(/([\d.]+) \. (\d+) \. 460[12] : 0x[0-9a-f]{8}/g)]
        t.same(
          senders.map(([, address = '', port = '']) => `${address}:${port}`).sort(),
          most.map(({ from }) => formatAddressPort(from)).sort(),
        )
      }),
    ),
  ),
)
