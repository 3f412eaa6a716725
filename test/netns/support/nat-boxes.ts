/** Kinds of NAT, made of nft, and the rung that a link between ends behind two of them gets. */
import type { NatMapping } from '../../../gateway/reach/relay/bind-frame.ts'
import type { LinkRung } from '../../../model/lanes/lanes.ts'

/** Whom a box that maps endpoint-independently lets in (RFC 4787 section 5); `each`: a mapping for each destination. */
type Lets = 'anyone' | 'address' | 'port' | 'each'

export interface BoxKind {
  readonly lets: Lets
  /** Its address outside. */
  readonly address: string
  /** Those behind it: their packets from port `inner` get a port of the box for good, unless it maps each destination. */
  readonly inside: readonly string[]
  readonly inner: number
  /** It leads packets from inside to its own outside address back inside (RFC 4787 section 6). */
  readonly hairpins?: true
}

export interface NatEnd {
  readonly name: string
  readonly address: string
  /** From the end to the internet. */
  readonly boxes: readonly BoxKind[]
  readonly mapping: NatMapping
}

/** The port outside of what is behind a box, by its place in the list. */
const FIRST_MAPPED = 41_000

/** The rules of one box. Its cables are `wan` and, a bridge, `lan`. */
export function boxRules({ lets, address, inside, inner, hairpins }: BoxKind): string {
  const mapped = inside.map((one, i) => ({ one, port: FIRST_MAPPED + i, from: inner }))
  // A kernel may show packets between two ports of the bridge to these rules, too.
  const leaves = hairpins === true ? '' : 'oifname wan '
  const out =
    lets === 'each'
      ? ['oifname wan masquerade fully-random']
      : mapped.map(({ one, port, from }) => `${leaves}ip saddr ${one} udp sport ${from} snat to ${address}:${port}`)
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
    }
  }`
}

function one(name: string, lets: Lets, net: number): NatEnd {
  const address = `10.${net}.0.2`
  const box: BoxKind = { lets, address: `198.51.${net}.1`, inside: [address], inner: 4500 }
  return { name, address, boxes: [box], mapping: lets === 'each' ? 'addressDependent' : 'endpointIndependent' }
}

/** Two homes behind one carrier. */
function carrier(name: string, lets: Lets, net: number, hairpins: boolean): NatEnd[] {
  const homes = [`100.64.${net}.2`, `100.64.${net}.3`]
  const box: BoxKind = {
    ...{ lets, address: `198.51.${net}.1`, inside: homes, inner: FIRST_MAPPED },
    ...(hairpins ? { hairpins: true } : {}),
  }
  return homes.map((home, i) => {
    const address = `10.${net + i}.0.2`
    const own: BoxKind = { lets: 'port', address: home, inside: [address], inner: 4500 }
    return { name: `${name} ${i + 1}`, address, boxes: [own, box], mapping: 'endpointIndependent' }
  })
}

const LAN: BoxKind = { lets: 'port', address: '198.51.90.1', inside: ['10.90.0.2', '10.90.0.3'], inner: 4500 }

export const ENDS: readonly NatEnd[] = [
  { name: 'public', address: '198.51.10.2', boxes: [], mapping: 'endpointIndependent' },
  one('any sender', 'anyone', 20),
  one('known addresses', 'address', 30),
  one('known ports', 'port', 40),
  one('symmetric 1', 'each', 50),
  one('symmetric 2', 'each', 55),
  ...carrier('carrier', 'anyone', 60, true),
  ...carrier('carrier without hairpin', 'port', 70, false),
  ...LAN.inside.map((address, i): NatEnd => {
    return { name: `one LAN ${i + 1}`, address, boxes: [LAN], mapping: 'endpointIndependent' }
  }),
]

/** By what RFC 5128 section 3.3 expects, whatever the program does. */
export function expectedRung(a: NatEnd, b: NatEnd): LinkRung {
  if (a.boxes.length === 0 || b.boxes.length === 0) return 'direct'
  const [outerA, outerB] = [a.boxes.at(-1), b.boxes.at(-1)]
  if (a.boxes[0] === b.boxes[0]) return 'direct'
  if (outerA === outerB && outerA?.hairpins !== true) return 'relayed'
  const isOf = (end: NatEnd, ...kinds: readonly Lets[]): boolean => end.boxes.some(({ lets }) => kinds.includes(lets))
  // The port of a symmetric NAT towards the other end is known to that end only if it lets the probe in.
  const fails = (one: NatEnd, other: NatEnd): boolean => isOf(one, 'each') && isOf(other, 'each', 'port')
  return fails(a, b) || fails(b, a) ? 'relayed' : 'punched'
}

const NOTES = `The columns are the same gateways; "public" has no NAT. From outside, "any sender" takes packets of all hosts, "known
addresses" of hosts to which the gateway has sent, "known ports" of places to which it has sent. These keep one port for
all destinations; "symmetric" does not. Two of one carrier have a router each, and share a NAT that leads packets back
inside (hairpin) or not. Two of one LAN share a router.

All pairs are passed but those with one symmetric NAT and another that is symmetric or takes known ports only, and two
behind a carrier without hairpin.`

const WIDEST_NAME = Math.max(...ENDS.map(({ name }) => name.length))

/** docs/nat.md, by the rungs that the pairs of ENDS have got. */
export function natDocument(rung: (a: NatEnd, b: NatEnd) => string): string {
  const row = (number: string, name: string, cells: readonly string[]): string =>
    `| ${[number.padStart(2), name.padEnd(WIDEST_NAME), ...cells.map((cell) => cell.padEnd(3))].join(' | ')} |`
  const letter = (a: NatEnd, b: NatEnd): string => (a === b ? '' : ` ${rung(a, b).charAt(0).toUpperCase()}`)
  const numbers = ENDS.map((_, i) => String(i + 1).padStart(2))
  return [
    '# Which links pass which NATs',
    '',
    '`test/netns/nat-matrix.test.ts` writes this by links between all pairs of these gateways, with two members that relay.',
    '**D**: direct, **P**: punched, **R**: relayed.',
    '',
    row('', 'NAT', numbers),
    row(
      '-:',
      '-'.repeat(WIDEST_NAME),
      ENDS.map(() => ':-:'),
    ),
    ...ENDS.map((a, i) =>
      row(
        numbers[i] ?? '',
        a.name,
        ENDS.map((b) => letter(a, b)),
      ),
    ),
    '',
    NOTES,
    '',
  ].join('\n')
}
