/**
 * Whom boxes of nft let in, whether they lead back inside, and whether they drop bursts, as two relays in the kernel show.
 *
 *   end 10.1.0.2 ── box 203.0.113.<n> ──┬── relay 203.0.113.9
 *                                       └── relay 203.0.113.10
 */
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import type { NatSights } from '../../gateway/reach/nat/sight-caller.ts'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import { RELAY_LAST_PORT, RELAY_PORT } from '../../model/kernel-ids.ts'
import type { RelayProgramInit } from '../gateway/support/relay-program.ts'
import type { SightEndProgramInit } from '../gateway/support/sight-end-program.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'

const skip = netnsMissing() ?? false
t.setTimeout(150_000 * SLOWNESS)

const CLUSTERSET = 'alps'
const SUPPORT = join(import.meta.dirname, '..', 'gateway', 'support')
const RELAYS = [
  { cluster: 'oslo', address: '203.0.113.9', keys: generateWireguardKey() },
  { cluster: 'roma', address: '203.0.113.10', keys: generateWireguardKey() },
]
const INSIDE = '10.1.0.2'

interface Box {
  readonly name: string
  readonly address: string
  /** Matches of what comes from outside to a port that has sent. Absent: only what the kernel knows gets in. */
  readonly letsIn?: string
  readonly hairpins?: true
  readonly limit?: string
  readonly want: NatSights
}

const BOXES: readonly Box[] = [
  {
    ...{ name: 'any sender', address: '203.0.113.21', letsIn: '', hairpins: true },
    want: { filter: 'anyone', hairpins: true, bursts: 'pass' },
  },
  {
    ...{ name: 'known addresses', address: '203.0.113.22', letsIn: 'ip saddr . udp dport @called' },
    want: { filter: 'address', hairpins: false, bursts: 'pass' },
  },
  {
    ...{ name: 'known ports', address: '203.0.113.23' },
    want: { filter: 'port', hairpins: false, bursts: 'pass' },
  },
  {
    ...{ name: 'few at once', address: '203.0.113.24', limit: 'limit rate over 2/second burst 4 packets' },
    want: { filter: 'port', hairpins: false, bursts: 'limited' },
  },
]

function rules({ address, letsIn, hairpins, limit }: Box): string {
  const back = `ip daddr ${address} ${letsIn ?? ''} udp dport 1024-65535 dnat to ${INSIDE}`
  return `table ip box {
    set called { type ipv4_addr . inet_service; flags dynamic,timeout; timeout 60s; }
    chain raw {
      type filter hook prerouting priority raw;
      ${hairpins === true ? '' : `iifname lan ip daddr ${address} drop`}
    }
    chain in {
      type nat hook prerouting priority dstnat;
      ${letsIn === undefined ? '' : back}
    }
    chain pass {
      type filter hook forward priority filter;
      ${limit === undefined ? '' : `oifname wan meta l4proto udp ${limit} drop`}
      oifname wan update @called { ip daddr . udp sport }
      ct status dnat accept
      iifname wan ct state new drop
    }
    chain self {
      type filter hook input priority filter;
      meta l4proto udp drop
    }
    chain out {
      type nat hook postrouting priority srcnat;
      ${hairpins === true ? '' : 'oifname wan '}ip saddr ${INSIDE} snat to ${address}
    }
  }`
}

const ip = (ns: Netns, ...lines: readonly string[]): Promise<string> =>
  ns.exec('ip', ['-batch', '-'], { input: `${lines.join('\n')}\n` })

/** A cable from `wan` of a machine to the bridge of the internet. */
async function join24(internet: Netns, ns: Netns, name: string, address: string): Promise<void> {
  await ip(internet, `link add ${name} type veth peer name wan netns ${ns.name}`, `link set ${name} up master net`)
  await ip(ns, `address add ${address}/24 dev wan`, 'link set wan up')
}

/** Starts a program that prints lines. */
function start(ns: Netns, file: string, init: unknown, onLine: (line: string) => void): void {
  const program = join(SUPPORT, file)
  const child = ns.spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, JSON.stringify(init)])
  for (const stream of [child.stdout, child.stderr]) if (stream !== null) createInterface(stream).on('line', onLine)
}

/** Makes so many namespaces, and removes them after the work. */
async function withMany(count: number, work: (all: readonly Netns[]) => Promise<void>, made: readonly Netns[] = []) {
  if (made.length === count) await work(made)
  else await withNetns((ns) => withMany(count, work, [...made, ns]))
}

t.test('what relays show of boxes', { skip }, async (t) => {
  await withMany(1 + RELAYS.length + 2 * BOXES.length, async ([internet, ...others]) => {
    if (internet === undefined) throw new Error('no namespace')
    const said: string[] = []
    await ip(internet, 'link add net type bridge', 'link set net up')
    const ends = BOXES.map((box) => ({ box, keys: generateWireguardKey(), sights: [] as NatSights[] }))
    for (const [i, { address, keys }] of RELAYS.entries()) {
      const ns = others[i]
      if (ns === undefined) throw new Error('no namespace')
      await join24(internet, ns, `relay${i}`, address)
      await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
      const init: RelayProgramInit = {
        ...{ clusterset: CLUSTERSET, privateKey: keys.privateKey, identity: keys.publicKey, address },
        ...{ controlPort: RELAY_PORT, ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } },
        ...{ bytesPerSecond: 125_000_000, memberBytesPerSecond: 250_000_000 },
        ends: ends.map((end) => ({ member: end.box.name, identity: end.keys.publicKey })),
      }
      start(ns, 'relay-program.ts', init, (line) => said.push(line))
      const isOpen = async () => (await ns.exec('ss', ['-Huln'])).includes(`:${RELAY_PORT} `)
      await eventually(isOpen, { deadlineMs: 30_000, say: 'a relay' })
    }
    for (const [i, { box, keys, sights }] of ends.entries()) {
      const [ns, end] = others.slice(RELAYS.length + 2 * i)
      if (ns === undefined || end === undefined) throw new Error('no namespace')
      await join24(internet, ns, `box${i}`, box.address)
      await ip(ns, `link add lan type veth peer name wan netns ${end.name}`)
      await ip(ns, 'address add 10.1.0.1/24 dev lan', 'link set lan up')
      await ip(end, `address add ${INSIDE}/24 dev wan`, 'link set wan up', 'route add default via 10.1.0.1')
      await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
      await ns.exec('nft', ['-f', '-'], { input: rules(box) })
      const init: SightEndProgramInit = {
        ...{ clusterset: CLUSTERSET, privateKey: keys.privateKey, identity: keys.publicKey },
        relays: RELAYS.map((relay) => ({
          ...{ cluster: relay.cluster, identity: relay.keys.publicKey, address: relay.address },
        })),
      }
      start(end, 'sight-end-program.ts', init, (line) => {
        if (line.startsWith('{')) sights.push(JSON.parse(line) as NatSights)
        else said.push(line)
      })
    }
    const isOver = () => ends.every(({ sights }) => sights.length > 0)
    await eventually(isOver, { deadlineMs: 60_000, say: 'all measurements are over' }).catch((error: unknown) => {
      t.comment(said.slice(-20).join(' '))
      throw error
    })
    for (const { box, sights } of ends) t.strictSame(sights.at(-1), box.want, box.name)
  })
})
