/** What a plan for one family says, where the other family has another word. */
import type { NftFamily } from '../../kernel/nft/nft-transaction.ts'
import type { Family } from '../../model/addresses/ip.ts'

export interface FamilyWords {
  /** Of the table, and of address matches inside it. */
  readonly ip: NftFamily
  readonly addressType: 'ipv4_addr' | 'ipv6_addr'
  /** Matches ICMP redirects. */
  readonly redirect: string
}

export const FAMILY_WORDS: Readonly<Record<Family, FamilyWords>> = {
  4: { ip: 'ip', addressType: 'ipv4_addr', redirect: 'icmp type redirect' },
  6: { ip: 'ip6', addressType: 'ipv6_addr', redirect: 'icmpv6 type nd-redirect' },
}
