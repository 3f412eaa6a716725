/**
 * Which rung links between all kinds of NAT get. Boxes made of nft stand between the ends and the internet; two relays
 * see all ends, so that each end knows of what kind its NAT is. All pairs begin at once.
 *
 *   public ───────────────────────────┐              ┌─ relay 203.0.113.9
 *   end ─ box ────────────────────────┼── internet ──┤
 *   end ─ home box ─┬─ carrier's box ─┘              └─ relay 203.0.114.9
 *   end ─ home box ─┘
 */
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { generateWireguardKey } from '../../kernel/wireguard/wireguard-device.ts'
import { RELAY_LAST_PORT, RELAY_PORT } from '../../model/kernel-ids.ts'
import type { ReachEndLine, ReachEndProgramInit } from '../gateway/support/reach-end-program.ts'
import type { RelayProgramInit } from '../gateway/support/relay-program.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { equalsDocument } from '../support/golden.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { type BoxKind, ENDS, type NatEnd, boxRules, expectedRung, natDocument } from './support/nat-boxes.ts'

const skip = netnsMissing() ?? false
t.setTimeout(240_000 * SLOWNESS)

const CLUSTERSET = 'alps'
const RELAYS = ['203.0.113.9', '203.0.114.9']
const SUPPORT = join(import.meta.dirname, '..', 'gateway', 'support')
const SETTLED_MS = 10_000

const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))

/** Two addresses of one /30 or larger network, on a cable between two namespaces. */
async function wire(one: Netns, other: Netns, names: readonly [string, string], at: readonly [string, string]) {
  await ip(one, `link add ${names[0]} type veth peer name ${names[1]} netns ${other.name}`)
  for (const [i, ns] of [one, other].entries()) {
    if (at[i] !== '') await ip(ns, `address add ${at[i] ?? ''}/24 dev ${names[i] ?? ''}`)
    await ip(ns, `link set ${names[i] ?? ''} up`)
  }
}

class Wires {
  readonly internet: Netns
  readonly #make: () => Promise<Netns>
  readonly #boxes = new Map<string, Netns>()
  #count = 0

  constructor(internet: Netns, make: () => Promise<Netns>) {
    this.internet = internet
    this.#make = make
  }

  /** A machine with this address on a cable of its own to the internet. */
  async outside(address: string, ns?: Netns): Promise<Netns> {
    const made = ns ?? (await this.#make())
    const router = address.replace(/\d+$/, '254')
    await wire(made, this.internet, ['wan', `i${this.#count++}`], [address, router])
    await ip(made, `route add default via ${router}`)
    return made
  }

  /** The end behind its boxes. */
  async end({ boxes, address }: NatEnd): Promise<Netns> {
    const end = await this.#make()
    const [first, ...rest] = boxes
    if (first === undefined) return this.outside(address, end)
    const inner = await this.#box(first, rest)
    const port = `e${this.#count++}`
    await wire(end, inner, ['wan', port], [address, ''])
    await ip(inner, `link set ${port} master lan`)
    await ip(end, `route add default via ${address.replace(/\d+$/, '254')}`)
    return end
  }

  async #box(box: BoxKind, rest: readonly BoxKind[]): Promise<Netns> {
    const known = this.#boxes.get(box.address)
    if (known !== undefined) return known
    const ns = await this.#make()
    this.#boxes.set(box.address, ns)
    await ip(ns, 'link add lan type bridge')
    for (const address of new Set(box.inside.map((one) => one.replace(/\d+$/, '254'))))
      await ip(ns, `address add ${address}/24 dev lan`)
    await ip(ns, 'link set lan up')
    await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    await ns.exec('nft', ['-f', '-'], { input: boxRules(box) })
    const [next, ...others] = rest
    if (next === undefined) await this.outside(box.address, ns)
    else {
      const outer = await this.#box(next, others)
      const port = `b${this.#count++}`
      await wire(ns, outer, ['wan', port], [box.address, ''])
      await ip(outer, `link set ${port} master lan`)
      await ip(ns, `route add default via ${box.address.replace(/\d+$/, '254')}`)
    }
    return ns
  }
}

function start(ns: Netns, file: string, init: unknown, onLine: (line: string) => void): ChildProcess {
  const program = join(SUPPORT, file)
  const child = ns.spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, JSON.stringify(init)])
  for (const stream of [child.stdout, child.stderr]) if (stream !== null) createInterface(stream).on('line', onLine)
  return child
}

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
  const boxes = new Set(ENDS.flatMap((end) => end.boxes.map(({ address }) => address)))
  await withMany(1 + RELAYS.length + ENDS.length + boxes.size, async (make) => {
    const internet = await make()
    await internet.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    const wires = new Wires(internet, make)
    const ends = ENDS.map((end) => ({ ...end, keys: generateWireguardKey() }))
    const relays = RELAYS.map((address) => ({ address, keys: generateWireguardKey() }))
    const said: string[] = []
    for (const { address, keys } of relays) {
      const ns = await wires.outside(address)
      await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
      const init: RelayProgramInit = {
        ...{ clusterset: CLUSTERSET, privateKey: keys.privateKey, identity: keys.publicKey, address },
        ...{ controlPort: RELAY_PORT, ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } },
        ...{ bytesPerSecond: 125_000_000, memberBytesPerSecond: 250_000_000 },
        ends: ends.map((end) => ({ member: end.name, identity: end.keys.publicKey })),
      }
      start(ns, 'relay-program.ts', init, (line) => {
        if (!line.includes('outcome')) said.push(line)
      })
      await eventually(async () => (await ns.exec('ss', ['-Huln'])).includes(`:${RELAY_PORT} `), {
        deadlineMs: 60_000,
        say: 'a relay',
      }).catch((error: unknown) => {
        t.comment(said.join(' '))
        throw error
      })
    }
    const known = new Map<string, ReachEndLine>()
    const namespaces: Netns[] = []
    for (const end of ends) namespaces.push(await wires.end(end))
    const startedAt = performance.now()
    for (const [i, end] of ends.entries()) {
      const init: ReachEndProgramInit = {
        ...{ clusterset: CLUSTERSET, privateKey: end.keys.privateKey, identity: end.keys.publicKey },
        relays: relays.map(({ address, keys }) => ({ identity: keys.publicKey, address })),
        far: ends.flatMap((far) =>
          far === end ? [] : [{ name: far.name, identity: far.keys.publicKey, places: [`${far.address}:4500`] }],
        ),
      }
      start(namespaces[i]!, 'reach-end-program.ts', init, (line) => {
        if (line.startsWith('{')) known.set(end.name, JSON.parse(line) as ReachEndLine)
        else said.push(`${end.name}: ${line}`)
      })
    }
    const pairs = ENDS.flatMap((a, i) => ENDS.slice(i + 1).map((b) => ({ a, b })))
    const link = (from: NatEnd, to: NatEnd) => known.get(from.name)?.links[to.name]
    const isBound = (from: NatEnd, to: NatEnd): boolean => (link(from, to)?.relays ?? 0) > 0
    const unbound = () => pairs.filter(({ a, b }) => !isBound(a, b) || !isBound(b, a))
    const knowsNat = ({ name }: NatEnd): boolean => (known.get(name)?.mapping ?? 'unknown') !== 'unknown'
    try {
      await eventually(() => unbound().length === 0 && ENDS.every(knowsNat), {
        deadlineMs: 60_000,
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
        { place: link(a, b)?.place, own: b.address },
        { place: link(b, a)?.place, own: a.address },
      ].filter(({ place }) => place !== undefined)
      if (found.length > 0) return found.some(({ place, own }) => place === `${own}:4500`) ? 'direct' : 'punched'
      const whys = [link(a, b)?.why, link(b, a)?.why]
      return whys.includes('searching') ? 'searching' : 'relayed'
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
    for (const end of ENDS) t.equal(known.get(end.name)?.mapping, end.mapping, `the NAT of ${end.name}`)
    t.strictSame(said, [])
    equalsDocument(t, natDocument(rung), 'docs/nat.md')
  })
})
