/**
 * Rewrites addresses inside ICMP errors. ICMP errors (RFC 792: types 3, 11 and 12) carry the IP header of the packet
 * that caused them, so translation must change the address in that header too. nft can write there, but does not update
 * the ICMP checksum for what it wrote. Two facts help:
 *
 * - Rewriting a prefix one to one changes the sum of the packet's 16-bit words by a constant d, because the host bits
 *   stay and network bits and host bits do not overlap.
 * - nft does update the checksum for fields that it knows by name (`icmp type`, `icmp code`, `icmp mtu`), by the
 *   difference between the old and the new value.
 *
 * So a rule writes the inner address, which changes the sum by d. It then writes (known - d) to a word whose content is
 * known, which restores the sum. Last, it lets nft write the known content back by name, which moves d into the
 * checksum. The packet leaves with a correct checksum, and only the inner address has changed. The other end needs no
 * support for this.
 *
 * The known word is type and code (bytes 0 and 1) where there is one rule per code. For type 3 with a code other than 4
 * it is the unused bytes 6 and 7, which are zero (RFC 792, RFC 4884). The checksum of the inner IP header stays as it
 * was: no receiver of an error checks it (Linux does not), and nft has no name for it. Pure.
 */
import { type Prefix, addressBits } from '../../model/addresses/addresses.ts'

/** Bit offsets of the inner header's addresses from the ICMP header: 8 bytes of ICMP, then 12 or 16 of IP. */
export const INNER_SOURCE = 160
export const INNER_DESTINATION = 192

export const ICMP_ERROR_TYPES = '{ 3, 11, 12 }'

const DESTINATION_UNREACHABLE = 3
/** RFC 1191: the only code of type 3 that uses bytes 6 and 7 (next-hop MTU). */
const FRAGMENTATION_NEEDED = 4
/** Types with all their codes: RFC 792, RFC 1108 and RFC 1122 section 3.2.2. */
const CODED: readonly { readonly type: number; readonly code: number }[] = [
  { type: DESTINATION_UNREACHABLE, code: FRAGMENTATION_NEEDED },
  { type: 11, code: 0 },
  { type: 11, code: 1 },
  { type: 12, code: 0 },
  { type: 12, code: 1 },
  { type: 12, code: 2 },
]

/**
 * How much the one's complement sum of a packet's 16-bit words grows when an address in it is moved from one prefix to
 * the other: 0 to 65534. RFC 1071.
 */
export function sumDifference(from: Prefix, to: Prefix): number {
  return mod(wordSum(to) - wordSum(from))
}

/** `@th,192,32 & 0xffff0000 == 0x0a2a0000`: matches if the inner address is in the prefix. */
export function innerMatch(offset: number, prefix: Prefix): string {
  return `@th,${offset},32 & ${hex32(networkMask(prefix))} == ${hex32(prefix.value)}`
}

/**
 * Rules of a chain that receives ICMP errors whose inner address at `offset` is in `from`, and moves that address to
 * `to`. A rule that matches returns to the calling chain; an error that none matches reaches the next rule.
 */
export function innerRewriteRules(offset: number, from: Prefix, to: Prefix): string[] {
  const difference = sumDifference(from, to)
  const rewrite = `@th,${offset},32 set @th,${offset},32 & ${hex32(hostMask(from))} | ${hex32(to.value)}`
  const coded = CODED.map(({ type, code }) => {
    const known = type * 256 + code
    const restore = `@th,0,16 set ${hex16(mod(known - difference))} icmp type set ${type} icmp code set ${code}`
    return `icmp type ${type} icmp code ${code} ${rewrite} ${restore} return`
  })
  const unused = `@th,48,16 0 ${rewrite} @th,48,16 set ${hex16(mod(-difference))} icmp mtu set 0`
  return [...coded, `icmp type ${DESTINATION_UNREACHABLE} icmp code != ${FRAGMENTATION_NEEDED} ${unused} return`]
}

/** The bits that a rewrite keeps, as an address: `0.0.255.255`. */
export function hostMask(prefix: Prefix): bigint {
  return (1n << BigInt(addressBits(prefix.family) - prefix.length)) - 1n
}

function networkMask(prefix: Prefix): bigint {
  return 0xffffffffn ^ hostMask(prefix)
}

function wordSum(prefix: Prefix): number {
  return Number(prefix.value >> 16n) + Number(prefix.value & 0xffffn)
}

// One's complement arithmetic on 16 bits is arithmetic modulo 65535: 0 and 65535 are the same number.
function mod(value: number): number {
  return ((value % 0xffff) + 0xffff) % 0xffff
}

function hex16(value: number): string {
  return `0x${value.toString(16).padStart(4, '0')}`
}

function hex32(value: bigint): string {
  return `0x${value.toString(16).padStart(8, '0')}`
}
