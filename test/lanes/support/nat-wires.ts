/** Namespaces and cables between ends, their boxes and the internet. */
import type { Netns } from '../../support/netns.ts'
import { type BoxKind, type NatEnd, boxRules } from './nat-boxes.ts'

/** Runs the lines as one batch: each program that starts takes time. */
const ip = (ns: Netns, ...lines: readonly string[]): Promise<string> =>
  ns.exec('ip', ['-batch', '-'], { input: `${lines.join('\n')}\n` })

interface CableEnd {
  readonly ns: Netns
  readonly name: string
  /** In a /24. Absent: it has none. */
  readonly address?: string
  /** Further lines for ip. Absent: none. */
  readonly more?: readonly string[]
}

/** A cable between two namespaces. */
async function wire(one: CableEnd, other: CableEnd): Promise<void> {
  const lines = ({ name, address, more = [] }: CableEnd): readonly string[] => [
    ...(address === undefined ? [] : [`address add ${address}/24 dev ${name}`]),
    `link set ${name} up`,
    ...more,
  ]
  await ip(one.ns, `link add ${one.name} type veth peer name ${other.name} netns ${other.ns.name}`)
  // A route needs the address of its own side alone.
  await Promise.all([one, other].map((end) => ip(end.ns, ...lines(end))))
}

const routerOf = (address: string): string => address.replace(/\d+$/, '254')
const defaultRoute = (address: string): string => `route add default via ${routerOf(address)}`

/** The internet is one router. Each machine has a cable to it, or to the bridge of a box. */
export class Wires {
  readonly internet: Netns
  readonly #make: () => Promise<Netns>
  /** By their addresses outside. */
  readonly #boxes = new Map<string, Promise<Netns>>()
  #count = 0

  constructor(internet: Netns, make: () => Promise<Netns>) {
    this.internet = internet
    this.#make = make
  }

  /** A machine with this address on a cable of its own to the internet. */
  async outside(address: string, ns?: Netns): Promise<Netns> {
    const made = ns ?? (await this.#make())
    await wire(
      { ns: made, name: 'wan', address, more: [defaultRoute(address)] },
      { ns: this.internet, name: `i${this.#count++}`, address: routerOf(address) },
    )
    return made
  }

  /** The end behind its boxes. */
  async end({ boxes, address, ipv6 }: NatEnd): Promise<Netns> {
    const end = await this.#make()
    if (ipv6 === 'none') {
      const off = ['all', 'default'].map((where) => `net.ipv6.conf.${where}.disable_ipv6=1`)
      await end.exec('sysctl', ['-qw', ...off])
    }
    const [first, ...rest] = boxes
    if (first === undefined) return this.outside(address, end)
    await this.#inside(end, address, await this.#box(first, rest))
    if (ipv6 !== undefined && ipv6 !== 'none') await this.#ipv6(end, ipv6)
    return end
  }

  /** The box forgets its mappings, and makes others. */
  async rebind(box: BoxKind, firstPort: number): Promise<void> {
    const ns = await this.#boxes.get(box.address)
    if (ns === undefined || box.forgets !== true) throw new Error(`${box.address} cannot be rebound`)
    await ns.exec('nft', ['-f', '-'], { input: `delete table ip box\n${boxRules(box, firstPort)}` })
    const at = `${box.address}/24 dev wan`
    await ip(ns, `address del ${at}`, `address add ${at}`, defaultRoute(box.address))
  }

  /** Puts a box between machines and the internet, to which they are connected by these ports with these addresses. */
  async interpose(box: BoxKind, ports: readonly { readonly name: string; readonly address: string }[]): Promise<void> {
    const ns = await this.#make()
    await ip(this.internet, ...ports.map(({ name }) => `link set ${name} netns ${ns.name}`))
    await this.#route(
      ns,
      box,
      ports.map(({ address }) => address),
    )
    await ip(ns, ...ports.map(({ name }) => `link set ${name} master lan up`))
    await this.outside(box.address, ns)
    this.#boxes.set(box.address, Promise.resolve(ns))
  }

  /** A cable that no box translates. */
  async #ipv6(ns: Netns, address: string): Promise<void> {
    const router = address.replace(/\w+$/, 'ffff')
    const lines = (own: string, name: string): string => `address add ${own}/64 dev ${name} nodad`
    const port = `i${this.#count++}`
    await wire(
      { ns, name: 'six', more: [lines(address, 'six'), `route add 2001:db8::/32 via ${router}`] },
      { ns: this.internet, name: port, more: [lines(router, port)] },
    )
  }

  /** A cable to the bridge of a box. */
  #inside(ns: Netns, address: string, box: Netns): Promise<void> {
    const port = `p${this.#count++}`
    return wire(
      { ns, name: 'wan', address, more: [defaultRoute(address)] },
      { ns: box, name: port, more: [`link set ${port} master lan`] },
    )
  }

  #box(box: BoxKind, rest: readonly BoxKind[]): Promise<Netns> {
    const made = this.#boxes.get(box.address) ?? this.#newBox(box, rest)
    this.#boxes.set(box.address, made)
    return made
  }

  async #newBox(box: BoxKind, rest: readonly BoxKind[]): Promise<Netns> {
    const ns = await this.#make()
    await this.#route(ns, box, [...new Set(box.inside.map(routerOf))])
    const [next, ...others] = rest
    if (next === undefined) await this.outside(box.address, ns)
    else await this.#inside(ns, box.address, await this.#box(next, others))
    return ns
  }

  /** Makes the namespace forward and translate, with these addresses inside. */
  async #route(ns: Netns, box: BoxKind, addresses: readonly string[]): Promise<void> {
    const own = addresses.map((address) => `address add ${address}/24 dev lan`)
    await ip(ns, 'link add lan type bridge', ...own, 'link set lan up')
    await ns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
    await ns.exec('nft', ['-f', '-'], { input: boxRules(box) })
  }
}
