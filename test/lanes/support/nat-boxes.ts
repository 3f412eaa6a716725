/** Kinds of NAT, made of nft, and the rung that a link between ends behind two of them gets. */
import type { NatMapping } from '../../../gateway/reach/frames/bind-frame.ts'
import type { LinkRung } from '../../../model/lanes/lanes.ts'

/** Whom a box that maps endpoint-independently lets in (RFC 4787 section 5); `each`: a mapping for each destination. */
type Lets = 'anyone' | 'address' | 'port' | 'each'

export interface BoxKind {
  readonly lets: Lets
  /** Its address outside. */
  readonly address: string
  /**
   * Those behind it whose packets from the ports `inner` get a port of the box for good, unless it maps each destination.
   * Packets of others get one for each destination.
   */
  readonly inside: readonly string[]
  readonly inner: readonly number[]
  /** It leads packets from inside to its own outside address back inside (RFC 4787 section 6). */
  readonly hairpins?: true
  /** A port keeps its number outside (RFC 4787 section 4.2.1). */
  readonly keepsPort?: true
  /** It can be made to forget its mappings: see boxRules(). */
  readonly forgets?: true
  /** What gets out, if not everything. `tcp`: all but UDP. `proxy`: TCP to the HTTP proxy alone. */
  readonly only?: 'tcp' | 'port 443' | 'proxy'
}

/** Where the relay on port 443 is, and an HTTP proxy. */
export const WEB_ADDRESS = '203.0.115.9'
export const PROXY_PORT = 3128

export interface NatEnd {
  readonly name: string
  readonly address: string
  /** From the end to the internet. */
  readonly boxes: readonly BoxKind[]
  readonly mapping: NatMapping
  /** Its address without NAT beside that of IPv4. None: its kernel has no IPv6. Absent: nothing outside has IPv6. */
  readonly ipv6?: string
  /** The number of a gateway of a site that has several. Absent: 0. */
  readonly lane?: number
}

/** The port outside of what is behind a box, by its place in the list. */
const FIRST_MAPPED = 41_000

/** What such a box drops of what would leave. */
const DROPPED = {
  tcp: ['meta l4proto udp'],
  'port 443': ['meta l4proto != tcp', 'tcp dport != 443'],
  proxy: ['meta l4proto != tcp', `ip daddr != ${WEB_ADDRESS}`, `tcp dport != ${PROXY_PORT}`],
}

/**
 * The rules of one box. Its cables are `wan` and, a bridge, `lan`. With another `firstPort` mapped ports are other ones.
 * Flows that the kernel knows keep theirs: it forgets those of a box that `forgets` when `wan` loses its address.
 */
export function boxRules(box: BoxKind, firstPort = FIRST_MAPPED): string {
  const { lets, address, inside, inner, hairpins, only } = box
  const mapped = inside.flatMap((one, i) =>
    inner.map((from, j) => ({ one, from, port: firstPort + i * inner.length + j })),
  )
  // A kernel may show packets between two ports of the bridge to these rules, too.
  const leaves = hairpins === true ? '' : 'oifname wan '
  const mapsTo = (port: number): string => {
    if (box.forgets === true) return `masquerade to :${port}`
    return box.keepsPort === true ? 'masquerade' : `snat to ${address}:${port}`
  }
  const lasting = lets === 'each' ? [] : mapped
  const out = [
    ...lasting.map(({ one, port, from }) => `${leaves}ip saddr ${one} udp sport ${from} ${mapsTo(port)}`),
    // Towards a gateway a symmetric box has another port than towards a relay. Drawn from one range, two of the many
    // pairs had the same port once in some hundred runs, and passed without a relay.
    'oifname wan ip daddr 198.51.0.0/16 meta l4proto udp masquerade to :1024-39999 fully-random',
    'oifname wan ip daddr { 203.0.113.0/24, 203.0.114.0/24 } meta l4proto udp masquerade to :40000-65535 fully-random',
    'oifname wan meta l4proto udp masquerade fully-random',
  ]
  const dropped = only === undefined ? [] : DROPPED[only]
  const isKnown = lets === 'address' ? 'ip saddr @called ' : ''
  const back =
    lets === 'anyone' || lets === 'address'
      ? mapped.map(({ one, port, from }) => `ip daddr ${address} ${isKnown}udp dport ${port} dnat to ${one}:${from}`)
      : []
  return `table ip box {
    set called { type ipv4_addr; flags dynamic,timeout; timeout 60s; }
    chain raw {
      type filter hook prerouting priority raw;
      ${hairpins === true ? '' : `iifname lan ip daddr ${address} drop`}
    }
    chain in {
      type nat hook prerouting priority dstnat;
      ${back.join('\n      ')}
    }
    chain pass {
      type filter hook forward priority filter;
      ${dropped.map((what) => `oifname wan ${what} drop`).join('\n      ')}
      oifname wan update @called { ip daddr }
      ct status dnat accept
      iifname wan ct state new drop
    }
    chain self {
      type filter hook input priority filter;
      meta l4proto udp drop
    }
    chain out {
      type nat hook postrouting priority srcnat;
      ${out.join('\n      ')}
      oifname wan meta l4proto tcp masquerade
    }
  }`
}

function one(
  name: string,
  lets: Lets,
  net: number,
  more: Pick<BoxKind, 'keepsPort' | 'forgets' | 'only'> = {},
): NatEnd {
  const address = `10.${net}.0.2`
  const box: BoxKind = { lets, address: `198.51.${net}.1`, inside: [address], inner: [4500], ...more }
  const passing: NatMapping = lets === 'each' ? 'addressDependent' : 'endpointIndependent'
  // Without UDP no relay of a member can be called, which would show the mapping.
  return { name, address, boxes: [box], mapping: more.only === undefined ? passing : 'unknown' }
}

/** Two homes behind one carrier. */
function carrier(name: string, lets: Lets, net: number, hairpins: boolean): NatEnd[] {
  const homes = [`100.64.${net}.2`, `100.64.${net}.3`]
  const box: BoxKind = {
    ...{ lets, address: `198.51.${net}.1`, inside: homes, inner: [FIRST_MAPPED] },
    ...(hairpins ? { hairpins: true } : {}),
  }
  return homes.map((home, i) => {
    const address = `10.${net + i}.0.2`
    const own: BoxKind = { lets: 'port', address: home, inside: [address], inner: [4500] }
    return { name: `${name} ${i + 1}`, address, boxes: [own, box], mapping: 'endpointIndependent' }
  })
}

/** A home behind carriers, each of which translates; `lets` is of the home's box, then of those of the carriers. */
function carriers(name: string, net: number, lets: readonly Lets[]): NatEnd {
  const address = `10.${net}.0.2`
  const boxes = lets.map((one, i): BoxKind => {
    const at = i === lets.length - 1 ? `198.51.${net}.1` : `100.${64 + i}.${net}.2`
    const inside = i === 0 ? address : `100.${63 + i}.${net}.2`
    return { lets: one, address: at, inside: [inside], inner: [i === 0 ? 4500 : FIRST_MAPPED] }
  })
  return { name, address, boxes, mapping: lets.includes('each') ? 'addressDependent' : 'endpointIndependent' }
}

/** The gateways of a site behind one box, which keeps one port for some of them. */
function site(name: string, net: number, lasting: readonly boolean[]): NatEnd[] {
  const ends = lasting.map((keeps, lane) => ({ keeps, lane, address: `10.${net}.0.${2 + lane}` }))
  const box: BoxKind = {
    ...{ lets: 'port', address: `198.51.${net}.1`, inner: [4500, 4501] },
    inside: ends.flatMap(({ keeps, address }) => (keeps ? [address] : [])),
  }
  return ends.map(({ keeps, lane, address }): NatEnd => {
    const mapping = keeps ? 'endpointIndependent' : 'addressDependent'
    return { name: `${name}${lane + 1}`, address, boxes: [box], mapping, lane }
  })
}

const LAN: BoxKind = { lets: 'port', address: '198.51.90.1', inside: ['10.90.0.2', '10.90.0.3'], inner: [4500] }

export const ENDS: readonly NatEnd[] = [
  { name: 'public', address: '198.51.10.2', boxes: [], mapping: 'endpointIndependent' },
  one('any sender', 'anyone', 20),
  one('known addresses', 'address', 30),
  one('known ports', 'port', 40),
  one('port kept', 'port', 45, { keepsPort: true }),
  one('rebinding', 'port', 47, { forgets: true }),
  one('symmetric 1', 'each', 50),
  one('symmetric 2', 'each', 55),
  ...carrier('carrier', 'anyone', 60, true),
  ...carrier('carrier without hairpin', 'port', 70, false),
  ...LAN.inside.map((address, i): NatEnd => {
    return { name: `one LAN ${i + 1}`, address, boxes: [LAN], mapping: 'endpointIndependent' }
  }),
  carriers('two carriers 1', 75, ['port', 'port', 'port']),
  carriers('two carriers 2', 76, ['port', 'address', 'anyone']),
  carriers('symmetric carrier', 77, ['anyone', 'each']),
  { ...one('dual stack 1', 'each', 92), ipv6: '2001:db8:92::2' },
  { ...one('dual stack 2', 'each', 93), ipv6: '2001:db8:93::2' },
  { ...one('no IPv6', 'port', 94), ipv6: 'none' },
  one('no UDP', 'port', 80, { only: 'tcp' }),
  one('port 443 only', 'port', 82, { only: 'port 443' }),
  one('HTTP proxy only', 'port', 84, { only: 'proxy' }),
]

/** Two sites with two gateways each. The gateways of a site have links to those of the other one alone. */
export const SITES: readonly (readonly NatEnd[])[] = [site('a', 96, [true, true]), site('b', 97, [true, false])]

/** Whether UDP gets out. */
export function passesUdp({ boxes }: NatEnd): boolean {
  return boxes.every(({ only }) => only === undefined)
}

/** By what RFC 5128 section 3.3 expects, whatever the program does. */
export function expectedRung(a: NatEnd, b: NatEnd): LinkRung {
  if (!passesUdp(a) || !passesUdp(b)) return 'tcp-443'
  if (a.boxes.length === 0 || b.boxes.length === 0) return 'direct'
  const [outerA, outerB] = [a.boxes.at(-1), b.boxes.at(-1)]
  if (a.boxes[0] === b.boxes[0]) return 'direct'
  if (outerA === outerB && outerA?.hairpins !== true) return 'relayed'
  const isOf = (end: NatEnd, ...kinds: readonly Lets[]): boolean => letsOf(end).some((lets) => kinds.includes(lets))
  // The port of a symmetric NAT towards the other end is known to that end only if it lets the probe in.
  const fails = (one: NatEnd, other: NatEnd): boolean => isOf(one, 'each') && isOf(other, 'each', 'port')
  return fails(a, b) || fails(b, a) ? 'relayed' : 'punched'
}

function letsOf({ address, boxes }: NatEnd): readonly Lets[] {
  return boxes.map(({ lets, inside }, i) => (inside.includes(boxes[i - 1]?.address ?? address) ? lets : 'each'))
}

const NOTES = `The columns are the same gateways; "public" has no NAT. From outside, "any sender" takes packets of all hosts, "known
addresses" of hosts to which the gateway has sent, "known ports" of places to which it has sent. These keep one port for
all destinations; "symmetric" does not. "Port kept" and "rebinding" are as "known ports": the first keeps the number of
the port, the second takes another port at times; relays carry its links again within 10 s. Two of one carrier have a
router each, and share a NAT that leads packets back inside (hairpin) or not. Two of one LAN share a router. "Two
carriers" is a router behind two NATs in a row. "Dual stack" is symmetric with IPv6 beside it, "no IPv6" as "known
ports": links use IPv4 alone.

Punched are all pairs of those that pass UDP but these: a symmetric NAT with another one, or with one that takes known
ports only (later, once a port is guessed); two behind a carrier without hairpin. Without UDP, a relay on port 443
carries the link, also where an HTTP proxy is the only way out. Each pair has its rung within 10 s once both gateways
have asked their relays.

Each gateway of a site has its own rung, here with a NAT for each site, of which that of b is symmetric for b2:`

/** docs/nat.md, by the rungs that the pairs of ENDS and SITES have got. Cells have no spaces, as words are counted. */
export function natDocument(rung: (a: NatEnd, b: NatEnd) => string): string {
  const row = (cells: readonly string[]): string => `|${cells.join('|')}|`
  const letter = (a: NatEnd, b: NatEnd): string => (a === b ? '' : rung(a, b).charAt(0).toUpperCase())
  const [rows = [], columns = []] = SITES
  return [
    '# Which links pass which NATs',
    '',
    '`test/lanes/nat-matrix.test.ts` writes this by links between all pairs of these gateways, with two members that relay',
    'and a relay on port 443. **D**: direct, **P**: punched, **R**: relayed by a member, **T**: by TCP port 443.',
    '',
    row(['', 'NAT', ...ENDS.map((_, i) => String(i + 1))]),
    row(['-:', '-', ...ENDS.map(() => ':-:')]),
    ...ENDS.map((a, i) => row([String(i + 1), a.name, ...ENDS.map((b) => letter(a, b))])),
    '',
    NOTES,
    '',
    row(['', ...columns.map(({ name }) => name)]),
    row(['-', ...columns.map(() => ':-:')]),
    ...rows.map((a) => row([a.name, ...columns.map((b) => letter(a, b))])),
    '',
  ].join('\n')
}
