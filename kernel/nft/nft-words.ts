/**
 * Words of the nft language (1.0.6): a chain, map or table cannot be called so. Found by asking `nft --check`; the
 * fake refuses them as the real one does.
 */
const WORDS = `
  accept add ah all and arp bridge chain comment comp constant continue counter cpu create ct day dccp define
  delete describe device devices dnat drop dst dup dynamic ecn element elements eq esp ether exists expires
  export exthdr fib flags flow flowtable flush frag fwd gc-interval ge get goto gt handle hbh hook hour ibriport
  ibrname icmp icmpv6 igmp iif iifgroup iifname iiftype import include index inet insert interval ip ip6 ipsec
  jhash jump le limit list log lshift lt map mark masquerade meta meter mh missing monitor ne netdev nftrace not
  notrack numgen obriport obrname oif oifgroup oifname oiftype or osf pkttype policy position priority queue
  quota random redefine redirect reject rename replace reset return rshift rt rt0 rt2 rtclassid rule ruleset
  sctp secmark set size skgid skuid snat socket srh symhash synproxy table tcp th timeout tproxy type typeof udp
  udplite undefine update vlan vmap xor xt
`

export const NFT_WORDS: ReadonlySet<string> = new Set(WORDS.trim().split(/\s+/))
