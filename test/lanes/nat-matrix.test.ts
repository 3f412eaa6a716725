/**
 * Which rung links between all kinds of NAT get. Boxes made of nft stand between the ends and the internet; two relays
 * see all ends, so that each end knows of what kind its NAT is. A third relay is on port 443, with a proxy beside it.
 * All pairs begin at once.
 *
 *   public ───────────────────────────┐              ┌─ relay 203.0.113.9
 *   end ─ box ────────────────────────┼── internet ──┼─ relay 203.0.114.9
 *   end ─ home box ─┬─ carrier's box ─┘              └─ relay on port 443, proxy 203.0.115.9
 *   end ─ home box ─┘
 *
 * Two sites have two gateways each. Some ends also have IPv6, without a box.
 */
import type { ChildProcess } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import { RELAY_PORT } from '../../model/kernel-ids.ts'
import { encodeRelayNotice } from '../../model/lanes/relay-address.ts'
import { certificateToPem } from '../../protocol/identity/certificates.ts'
import type { ReachEndLine, ReachEndProgramInit } from '../gateway/support/reach-end-program.ts'
import type { RelayProgramInit } from '../gateway/support/relay-program.ts'
import { authority, gateway } from '../relay/relay-site.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { equalsDocument } from '../support/golden.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import {
  ENDS,
  type NatEnd,
  PROXY_PORT,
  SITES,
  WEB_ADDRESS,
  expectedRung,
  natDocument,
  passesUdp,
} from './support/nat-boxes.ts'
import { Wires } from './support/nat-wires.ts'

const skip = netnsMissing() ?? false
t.setTimeout(240_000 * SLOWNESS)

const CLUSTERSET = 'alps'
const RELAYS = ['203.0.113.9', '203.0.114.9']
const SUPPORT = join(import.meta.dirname, '..', 'gateway', 'support')
const SEALANE = join(import.meta.dirname, '../../bin/sealane')
const PROXY = join(import.meta.dirname, 'support/connect-proxy-program.ts')
const LOGIN = 'ana:secret'
const ALL = [...ENDS, ...SITES.flat()]
/** Counts what no link should send: packets over IPv6. */
const COUNT_IPV6 = `table ip6 count {
  counter outside { }
  chain pass { type filter hook forward priority filter; meta l4proto udp counter name outside; }
}`
/** A relay has ports for fewer pairs than these ends ask for. */
const PORTS = { first: RELAY_PORT + 1, last: RELAY_PORT + 600 }
const REBOUND_PORT = 42_000
const SETTLED_MS = 10_000

interface StartInit {
  readonly onLine: (line: string) => void
  readonly env?: NodeJS.ProcessEnv
}

function run(ns: Netns, words: readonly string[], { onLine, env = process.env }: StartInit): ChildProcess {
  const [command = '', ...args] = words
  const child = ns.spawn(command, args, { env })
  for (const stream of [child.stdout, child.stderr]) if (stream !== null) createInterface(stream).on('line', onLine)
  return child
}

function start(ns: Netns, file: string, init: unknown, how: StartInit): ChildProcess {
  const program = join(SUPPORT, file)
  return run(ns, [process.execPath, '--disable-warning=ExperimentalWarning', program, JSON.stringify(init)], how)
}

/** The relay on port 443, and the proxy beside it. Returns the relay's address with its pin. */
async function startWebRelay(ns: Netns, folder: string, certificate: Uint8Array, said: string[]): Promise<string> {
  const ca = join(folder, 'ca.crt')
  writeFileSync(ca, certificateToPem(certificate))
  const lines: string[] = []
  const onLine = (line: string): void => void lines.push(line)
  const own = ['--listen', '0.0.0.0:443', '--status-listen', '127.0.0.1:0', '--state', join(folder, 'relay')]
  run(ns, [SEALANE, 'relay', 'serve', '--ca', ca, ...own], { onLine })
  run(ns, [process.execPath, PROXY, WEB_ADDRESS, LOGIN], { onLine })
  const pin = (): string | undefined => /#([0-9a-f]{64})/.exec(lines.join(' '))?.[1]
  await eventually(() => pin() !== undefined && lines.includes('proxy listens'), {
    deadlineMs: 60_000,
    say: 'the relay on port 443, and the proxy',
  }).catch((error: unknown) => {
    said.push(...lines)
    throw error
  })
  return `wss://${WEB_ADDRESS}/#${pin() ?? ''}`
}

const siteOf = (end: Pick<NatEnd, 'name'>): number =>
  SITES.findIndex((site) => site.some(({ name }) => name === end.name))

/** The gateways of a site are those of one member. */
function memberOf(end: Pick<NatEnd, 'name'>): string {
  const site = siteOf(end)
  return site < 0 ? end.name : `site ${site}`
}

function areLinked(one: Pick<NatEnd, 'name'>, other: Pick<NatEnd, 'name'>): boolean {
  const [a, b] = [siteOf(one), siteOf(other)]
  return a < 0 || b < 0 ? a === b && one.name !== other.name : a !== b
}

/** Where the end would be called without NAT. */
const ownPlace = ({ address }: NatEnd, { lane = 0 }: NatEnd): string => `${address}:${4500 + lane}`

/** Calls the story with a maker of namespaces, and removes all of them after it. */
async function withMany(count: number, story: (make: () => Promise<Netns>) => Promise<void>): Promise<void> {
  const made: Netns[] = []
  const next = async (left: number): Promise<void> => {
    if (left === 0) {
      await story(async () => made.shift() ?? Promise.reject(new Error('too few namespaces')))
      return
    }
    await withNetns(async (ns) => {
      made.push(ns)
      await next(left - 1)
    })
  }
  await next(count)
}

t.test('the rung of each pair of NATs', { skip }, async (t) => {
  const boxes = new Set(ALL.flatMap((end) => end.boxes.map(({ address }) => address)))
  const folder = temporaryFolder(t)
  const ca = await authority(CLUSTERSET)
  await withMany(2 + RELAYS.length + ALL.length + boxes.size, async (make) => {
    const internet = await make()
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1'])
    await internet.exec('nft', ['-f', '-'], { input: COUNT_IPV6 })
    const wires = new Wires(internet, make)
    const ends = ALL.map((end) => ({ ...end, keys: generateWireguardKey() }))
    const relays = RELAYS.map((address) => ({ address, keys: generateWireguardKey() }))
    const said: string[] = []
    // Programs start while the others are wired.
    const startRelay = async ({ address, keys }: (typeof relays)[number]): Promise<Netns> => {
      const ns = await wires.outside(address)
      await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
      const init: RelayProgramInit = {
        ...{ clusterset: CLUSTERSET, privateKey: keys.privateKey, identity: keys.publicKey, address },
        ...{ controlPort: RELAY_PORT, ports: PORTS },
        ...{ bytesPerSecond: 125_000_000, memberBytesPerSecond: 250_000_000 },
        ends: ends.map((end) => ({ member: memberOf(end), identity: end.keys.publicKey })),
      }
      start(ns, 'relay-program.ts', init, {
        onLine: (line) => {
          if (!line.includes('outcome')) said.push(line)
        },
      })
      await eventually(async () => (await ns.exec('ss', ['-Huln'])).includes(`:${RELAY_PORT} `), {
        deadlineMs: 60_000,
        say: 'a relay',
      })
      return ns
    }
    const [webRelay, relayNamespaces, namespaces] = await Promise.all([
      wires.outside(WEB_ADDRESS).then((ns) => startWebRelay(ns, folder, ca.certificate, said)),
      Promise.all(relays.map(startRelay)),
      Promise.all(ends.map((end) => wires.end(end))),
    ]).catch((error: unknown) => {
      t.comment(said.join(' '))
      throw error
    })
    const known = new Map<string, ReachEndLine>()
    const tickets: string[] = []
    for (const [i, { keys }] of ends.entries()) {
      const { ticket } = await gateway(ca, `end-${i}`, { identities: [keys.publicKey] })
      tickets.push(ticket.toString('base64'))
    }
    const startedAt = performance.now()
    for (const [i, end] of ends.entries()) {
      const init: ReachEndProgramInit = {
        ...{ clusterset: CLUSTERSET, privateKey: end.keys.privateKey, identity: end.keys.publicKey },
        lane: end.lane ?? 0,
        relays: relays.map(({ address, keys }) => ({ identity: keys.publicKey, address })),
        far: ends.flatMap((far) => {
          const { name, keys, lane = 0 } = far
          return areLinked(end, far) ? [{ name, identity: keys.publicKey, lane, places: [ownPlace(far, end)] }] : []
        }),
        notice: encodeRelayNotice({ addresses: [webRelay], ticket: tickets[i] ?? '' }),
      }
      const isProxied = end.boxes.some(({ only }) => only === 'proxy')
      const proxy = isProxied ? { HTTPS_PROXY: `http://${LOGIN}@${WEB_ADDRESS}:${PROXY_PORT}` } : {}
      start(namespaces[i]!, 'reach-end-program.ts', init, {
        env: { ...process.env, ...proxy },
        onLine: (line) => {
          if (line.startsWith('{')) known.set(end.name, JSON.parse(line) as ReachEndLine)
          else said.push(`${end.name}: ${line}`)
        },
      })
    }
    const pairs = ALL.flatMap((a, i) => ALL.slice(i + 1).flatMap((b) => (areLinked(a, b) ? [{ a, b }] : [])))
    const link = (from: NatEnd, to: NatEnd) => known.get(from.name)?.links[to.name]
    const isBound = (from: NatEnd, to: NatEnd): boolean => {
      const { relays = 0, web = 0 } = link(from, to) ?? {}
      return passesUdp(from) && passesUdp(to) ? relays > 0 : web > 0
    }
    const unbound = () => pairs.filter(({ a, b }) => !isBound(a, b) || !isBound(b, a))
    const knowsNat = (end: NatEnd): boolean => {
      return !passesUdp(end) || (known.get(end.name)?.mapping ?? 'unknown') !== 'unknown'
    }
    try {
      await eventually(() => unbound().length === 0 && ALL.every(knowsNat), {
        deadlineMs: 120_000,
        say: 'all ends are bound, at both relays',
      })
    } catch (error) {
      t.comment(
        unbound()
          .map(({ a, b }) => `${a.name} ${b.name}`)
          .join(', '),
      )
      t.comment([...known].map(([name, { mapping }]) => `${name} ${mapping}`).join(', '), said)
      throw error
    }
    const boundAt = performance.now()
    t.comment(`all ends are bound after ${Math.round(boundAt - startedAt)} ms`)
    const rung = (a: NatEnd, b: NatEnd): string => {
      const found = [
        { place: link(a, b)?.place, own: ownPlace(b, a) },
        { place: link(b, a)?.place, own: ownPlace(a, b) },
      ].filter(({ place }) => place !== undefined)
      if (found.length > 0) return found.some(({ place, own }) => place === own) ? 'direct' : 'punched'
      const both = [link(a, b), link(b, a)]
      if (both.every((one) => one?.relays === 0 && one.web > 0)) return 'tcp-443'
      return both.some((one) => one?.why === 'searching') ? 'searching' : 'relayed'
    }
    try {
      await eventually(() => pairs.every(({ a, b }) => rung(a, b) !== 'searching'), {
        deadlineMs: SETTLED_MS,
        say: 'each pair has a rung',
      })
    } catch (error) {
      t.comment(pairs.flatMap(({ a, b }) => (rung(a, b) === 'searching' ? [`${a.name} ${b.name}`] : [])).join(', '))
      throw error
    }
    t.comment(`all pairs are settled ${Math.round(performance.now() - boundAt)} ms later`)
    for (const { a, b } of pairs) t.equal(rung(a, b), expectedRung(a, b), `${a.name} and ${b.name}`)
    equalsDocument(t, natDocument(rung), 'docs/nat.md')
    for (const end of ALL) t.equal(known.get(end.name)?.mapping, end.mapping, `the NAT of ${end.name}`)
    const [one, other] = ALL.flatMap(({ ipv6 }, i) => (ipv6 === undefined || ipv6 === 'none' ? [] : [{ ipv6, i }]))
    if (one === undefined || other === undefined) throw new Error('two ends with IPv6')
    await namespaces[one.i]!.exec('ping', ['-6', '-c', '1', '-W', '5', other.ipv6])
    const counted = await internet.exec('nft', ['list', 'counter', 'ip6', 'count', 'outside'])
    t.match(counted, /packets 0 /, 'two ends reach each other over IPv6, and no link does')
    for (const end of ENDS.filter(({ boxes }) => boxes.some(({ forgets }) => forgets))) {
      const [box] = end.boxes
      if (box === undefined) continue
      const carried = async (ns: Netns): Promise<number> => {
        const text = await ns.exec('nft', ['list', 'map', 'ip', 'sealane_relay', 'addresses'])
        return text.split(`${box.address} . ${REBOUND_PORT} . `).length - 1
      }
      const far = ENDS.filter((one) => one !== end && passesUdp(one)).length
      await wires.rebind(box, REBOUND_PORT)
      const reboundAt = performance.now()
      await eventually(
        async () => {
          const counts = await Promise.all(relayNamespaces.map(carried))
          return counts.every((count) => count === far)
        },
        { deadlineMs: SETTLED_MS, say: `${end.name}: both relays carry its ${far} pairs at the new place` },
      )
      t.comment(`relays carry what was rebound after ${Math.round(performance.now() - reboundAt)} ms`)
    }
    t.strictSame(said, [])
  })
})
