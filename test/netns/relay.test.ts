/**
 * A link between two ends, each behind a NAT that gives every destination another port, by a relay in the kernel.
 *
 *   a 10.1.0.2 ─ NAT 198.51.100.1 ─┐                 ┌─ relay 203.0.113.9
 *                                  ├──── internet ───┤
 *   b 10.2.0.2 ─ NAT 198.51.101.1 ─┘                 └─ stranger 198.51.102.2
 */
import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { agreementOf } from '../../gateway/cable/agreement.ts'
import { bindKey, endId } from '../../gateway/reach/frames/bind-frame.ts'
import { planSharedPorts } from '../../gateway/reach/relay/plan-shared-port.ts'
import { formatNft } from '../../kernel/nft/nft.ts'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import type { RelayEndProgramInit } from '../gateway/support/relay-end-program.ts'
import type { RelayProgramInit } from '../gateway/support/relay-program.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'

const skip = netnsMissing() ?? false
t.setTimeout(180_000 * SLOWNESS)

const CLUSTERSET = 'alps'
const RELAY = '203.0.113.9'
const CONTROL = 4600
const SUPPORT = join(import.meta.dirname, '..', 'gateway', 'support')

interface World {
  readonly a: Netns
  readonly b: Netns
  readonly natA: Netns
  readonly natB: Netns
  readonly internet: Netns
  readonly relay: Netns
  readonly stranger: Netns
}

/** A program that prints JSON lines. */
class Printing {
  readonly lines: Record<string, unknown>[] = []
  readonly child: ChildProcess

  constructor(ns: Netns, file: string, init: unknown) {
    this.child = ns.spawn(process.execPath, [
      '--disable-warning=ExperimentalWarning',
      join(SUPPORT, file),
      JSON.stringify(init),
    ])
    if (this.child.stdout !== null)
      createInterface(this.child.stdout).on('line', (line) =>
        this.lines.push(JSON.parse(line) as Record<string, unknown>),
      )
    if (this.child.stderr !== null)
      createInterface(this.child.stderr).on('line', (line) => this.lines.push({ stderr: line }))
  }

  get last(): Record<string, unknown> | undefined {
    return this.lines.at(-1)
  }
}

const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))

async function withWorld(story: (world: World) => Promise<void>): Promise<void> {
  const names = ['a', 'b', 'natA', 'natB', 'internet', 'relay', 'stranger'] as const
  const made: Partial<Record<(typeof names)[number], Netns>> = {}
  const next = async (i: number): Promise<void> => {
    const name = names[i]
    if (name === undefined) {
      const world = made as World
      await connect(world)
      await story(world)
    } else {
      await withNetns(async (ns) => {
        made[name] = ns
        await next(i + 1)
      })
    }
  }
  await next(0)
}

async function wire(
  one: Netns,
  other: Netns,
  names: readonly [string, string],
  at: readonly [string, string],
): Promise<void> {
  await ip(one, `link add ${names[0]} type veth peer name ${names[1]} netns ${other.name}`)
  for (const [i, ns] of [one, other].entries()) {
    await ip(ns, `address add ${at[i] ?? ''} dev ${names[i] ?? ''}`)
    await ip(ns, `link set ${names[i] ?? ''} up`)
  }
}

async function connect({ a, b, natA, natB, internet, relay, stranger }: World): Promise<void> {
  await wire(a, natA, ['wan', 'lan'], ['10.1.0.2/24', '10.1.0.1/24'])
  await wire(b, natB, ['wan', 'lan'], ['10.2.0.2/24', '10.2.0.1/24'])
  await wire(natA, internet, ['wan', 'to-a'], ['198.51.100.1/24', '198.51.100.254/24'])
  await wire(natB, internet, ['wan', 'to-b'], ['198.51.101.1/24', '198.51.101.254/24'])
  await wire(relay, internet, ['wan', 'to-relay'], [`${RELAY}/24`, '203.0.113.254/24'])
  await wire(stranger, internet, ['wan', 'to-stranger'], ['198.51.102.2/24', '198.51.102.254/24'])
  for (const [ns, gateway] of [
    [a, '10.1.0.1'],
    [b, '10.2.0.1'],
    [natA, '198.51.100.254'],
    [natB, '198.51.101.254'],
    [relay, '203.0.113.254'],
    [stranger, '198.51.102.254'],
  ] as const)
    await ip(ns, `route add default via ${gateway}`)
  for (const ns of [natA, natB, internet, relay]) await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
  for (const ns of [natA, natB]) {
    await ns.exec('nft', ['-f', '-'], {
      input: `table ip nat {
        chain out {
          type nat hook postrouting priority srcnat;
          oifname wan masquerade fully-random
        }
        chain in {
          type filter hook forward priority filter;
          iifname wan ct state new drop
        }
        chain self {
          type filter hook input priority filter;
          iifname wan ct state new drop
        }
      }`,
    })
  }
  await relay.exec('nft', ['-f', '-'], {
    input: `table ip wire {
      counter known { }
      counter strange { }
      counter readable { }
      chain in {
        type filter hook prerouting priority -310;
        @th,192,32 { 0x45000054, 0x450005a0 } counter name readable
        ip saddr 198.51.102.0/24 return
        udp dport 4600-4650 @th,64,32 { 0x01000000, 0x02000000, 0x03000000, 0x04000000, 0x534c5231 } counter name known return
        counter name strange
      }
    }`,
  })
  await stranger.exec('nft', ['-f', '-'], {
    input: `table ip wire {
      counter heard { }
      chain in {
        type filter hook prerouting priority -310;
        ip saddr ${RELAY} counter name heard
      }
    }`,
  })
}

async function packets(ns: Netns, table: string, counter: string): Promise<number> {
  const text = await ns.exec('nft', ['list', 'counter', 'ip', table, counter])
  return Number(/packets (\d+)/.exec(text)?.[1])
}

interface LinkEnd {
  readonly ns: Netns
  readonly device: string
  readonly keys: ReturnType<typeof generateWireguardKey>
  readonly address: string
  readonly far: string
  readonly farKey: string
}

async function makeDevice(t: Test, { ns, device, keys, address, far, farKey }: LinkEnd): Promise<void> {
  const file = join(t.testdir({}), device)
  writeFileSync(file, `${keys.privateKey}\n`, { mode: 0o600 })
  const isKernel = (await ns.tryExec('ip', ['link', 'add', device, 'type', 'wireguard'])).code === 0
  if (!isKernel) await ns.exec('wireguard-go', [device])
  const peer = ['peer', farKey, 'allowed-ips', `${far}/32`, 'persistent-keepalive', '10']
  await ns.exec('wg', ['set', device, 'private-key', file, 'listen-port', '4500', ...peer])
  await ip(ns, `address add ${address}/32 dev ${device}`)
  await ip(ns, `link set ${device} up mtu 1440`)
  await ip(ns, `route add ${far}/32 dev ${device}`)
}

/** A pod of the relay's node calls from a port that the node has taken from those of the relay. */
async function answered(t: Test, { pod, relay, stranger }: Pick<World, 'relay' | 'stranger'> & { pod: Netns }) {
  await wire(pod, relay, ['eth0', 'pod'], ['10.9.0.2/24', '10.9.0.1/24'])
  await ip(pod, 'route add default via 10.9.0.1')
  await relay.exec('nft', ['-f', '-'], {
    input: `table ip pods {
      chain out {
        type nat hook postrouting priority srcnat;
        ip saddr 10.9.0.0/24 meta l4proto udp masquerade to :4640-4645
      }
    }`,
  })
  const echo = stranger.spawn(process.execPath, [
    '-e',
    `const socket = require('node:dgram').createSocket('udp4')
    socket.on('message', (bytes, { port, address }) => socket.send(bytes, port, address)).bind(7777)`,
  ])
  const call = `
    const socket = require('node:dgram').createSocket('udp4')
    socket.on('message', () => process.exit(0))
    setInterval(() => socket.send('hello', 7777, '198.51.102.2'), 100)
    setTimeout(() => process.exit(1), 10_000)`
  const { code } = await pod.tryExec(process.execPath, ['-e', call])
  t.equal(code, 0, 'answers to pods that the node translates arrive')
  echo.kill()
}

t.test('a link by a relay', { skip }, async (t) => {
  await withWorld(async ({ a, b, natA, natB, relay, stranger }) => {
    const [keys, keysA, keysB] = [generateWireguardKey(), generateWireguardKey(), generateWireguardKey()]
    const ends = [
      { member: 'paris', identity: keysA.publicKey },
      { member: 'oslo', identity: keysB.publicKey },
    ]
    const init: RelayProgramInit = {
      clusterset: CLUSTERSET,
      privateKey: keys.privateKey,
      identity: keys.publicKey,
      address: RELAY,
      controlPort: CONTROL,
      ports: { first: 4601, last: 4650 },
      bytesPerSecond: 125_000_000,
      memberBytesPerSecond: 250_000_000,
      ends,
    }
    const server = new Printing(relay, 'relay-program.ts', init)
    await eventually(async () => (await relay.exec('ss', ['-Huln'])).includes(`:${CONTROL} `), { say: 'the relay' })

    const random = randomBytes(4).toString('hex')
    const links: readonly LinkEnd[] = [
      { ns: a, device: `sla${random}`, keys: keysA, address: '246.0.0.1', far: '246.0.0.2', farKey: keysB.publicKey },
      { ns: b, device: `slb${random}`, keys: keysB, address: '246.0.0.2', far: '246.0.0.1', farKey: keysA.publicKey },
    ]
    const callers = []
    for (const link of links) {
      await makeDevice(t, link)
      await link.ns.exec('nft', ['-f', '-'], {
        input: formatNft(planSharedPorts([{ device: 4500, socket: 4590 }]), 'ip'),
      })
      const secret = agreementOf(link.keys.privateKey)(keys.publicKey) ?? Buffer.alloc(0)
      const key = bindKey({ secret, clusterset: CLUSTERSET, relay: keys.publicKey, end: link.keys.publicKey })
      const caller: RelayEndProgramInit = {
        from: endId(CLUSTERSET, link.keys.publicKey),
        to: endId(CLUSTERSET, link.farKey),
        key: key.toString('hex'),
        relay: `${RELAY}:${CONTROL}`,
        port: 4590,
      }
      callers.push(new Printing(link.ns, 'relay-end-program.ts', caller))
    }
    for (const caller of callers)
      await eventually(() => caller.last?.['is'] === 'bound' && caller.last['far'] !== undefined, {
        say: 'an end is bound',
      })
    t.match(callers[0]?.last?.['seen'], /^198\.51\.100\.1:/, 'where its NAT has it')
    t.match(callers[1]?.last?.['seen'], /^198\.51\.101\.1:/)
    for (const [i, caller] of callers.entries())
      t.equal(caller.last?.['far'], callers[1 - i]?.last?.['seen'], 'and where the other one has it')

    for (const [i, link] of links.entries())
      await link.ns.exec('wg', ['set', link.device, 'peer', link.farKey, 'endpoint', String(callers[i]?.last?.['at'])])
    await eventually(async () => (await a.tryExec('ping', ['-n', '-c', '1', '-W', '1', '246.0.0.2'])).code === 0, {
      say: 'a handshake by the relay',
    })
    const ping = await a.tryExec('ping', ['-n', '-c', '20', '-i', '0.05', '-W', '5', '246.0.0.2'])
    t.match(ping.stdout, / 20 received/)
    // 1412 octets and their headers are 1440 inside and 1500 outside, so a header of the relay would have no room.
    const large = await a.tryExec('ping', [
      '-n',
      '-c',
      '3',
      '-i',
      '0.1',
      '-W',
      '5',
      '-M',
      'do',
      '-s',
      '1412',
      '246.0.0.2',
    ])
    t.match(large.stdout, / 3 received/, 'packets of the full size')
    for (const nat of [natA, natB]) {
      const tracked = await nat.exec('cat', ['/proc/net/nf_conntrack']).catch(() => '')
      t.comment(
        tracked
          .split('\n')
          .filter((line) => line.includes('udp'))
          .join(' | '),
      )
    }

    t.ok((await packets(relay, 'wire', 'known')) > 40)
    t.equal(await packets(relay, 'wire', 'strange'), 0, 'nothing else passes the relay')
    t.equal(await packets(relay, 'wire', 'readable'), 0, 'no packet of the link can be read')
    const carried = await relay.exec('nft', ['list', 'set', 'ip', 'sealane_relay', 'carried'])
    t.equal([...carried.matchAll(/counter packets \d+ bytes \d+/g)].length, 2, carried)

    const program = `
      const { createSocket } = require('node:dgram'), socket = createSocket('udp4')
      const words = [Buffer.alloc(88), Buffer.alloc(148), Buffer.alloc(3)]
      words[0].write('SLR1'); words[0][4] = 1; words[1][0] = 1
      let left = 51 * words.length
      for (let port = 4600; port <= 4650; port++)
        for (const word of words) socket.send(word, port, '${RELAY}', () => { left -= 1; if (left === 0) socket.close() })`
    await stranger.exec(process.execPath, ['-e', program])
    const unbound = () => packets(relay, 'sealane_relay', 'unbound')
    await eventually(async () => (await unbound()) >= 102, { say: 'packets of the stranger are dropped' })
    t.ok((await packets(relay, 'sealane_relay', 'closed')) >= 48)
    await eventually(() => server.lines.some(({ outcome }) => outcome === 'unknownEnd'), {
      say: 'and questions refused',
    })
    t.equal(await packets(stranger, 'wire', 'heard'), 0, 'a stranger gets nothing')

    const again = await b.tryExec('ping', ['-n', '-c', '5', '-i', '0.05', '-W', '5', '246.0.0.1'])
    t.match(again.stdout, / 5 received/, 'the link goes on')
    t.same(
      server.lines.filter((line) => 'error' in line || 'stderr' in line),
      [],
    )

    server.child.kill('SIGUSR2')
    await eventually(async () => (await b.tryExec('ping', ['-n', '-c', '1', '-W', '1', '246.0.0.1'])).code !== 0, {
      say: 'an end that is withdrawn is cut off',
    })
    server.child.kill('SIGTERM')
    await eventually(() => server.child.exitCode !== null, { say: 'the relay ends' })
    t.match(await relay.exec('nft', ['list', 'tables']), /sealane_relay/, 'packets go on until it is started again')
    await withNetns((pod) => answered(t, { pod, relay, stranger }))
  })
})
