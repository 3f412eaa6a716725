/** The tables and packets of the tests of nft, for either address family. */
import type { NftElement, NftFamily, NftStatement } from '../../kernel/nft/nft-transaction.ts'

export const table = 'sealane_test'

/** The names and addresses that differ between the families. */
export interface Words {
  readonly addressType: 'ipv4_addr' | 'ipv6_addr'
  /** Returns a service address by its number. */
  readonly service: (n: number) => string
  readonly pod: (n: number) => string
  readonly services: string
  /** Two prefixes, sorted as text. */
  readonly remote: readonly [string, string]
  readonly insideRemote: string
  readonly elsewhere: readonly [string, string]
}

export const WORDS: Readonly<Record<NftFamily, Words>> = {
  ip: {
    addressType: 'ipv4_addr',
    service: (n) => `245.0.${n >> 8}.${n & 255}`,
    pod: (n) => `10.42.${n >> 8}.${n & 255}`,
    services: '245.0.0.0/16',
    remote: ['10.2.0.0/15', '244.0.0.0/16'],
    insideRemote: '10.2.5.0/24',
    elsewhere: ['10.8.0.0/16', '10.9.0.0/16'],
  },
  ip6: {
    addressType: 'ipv6_addr',
    service: (n) => `fd53:ea1a:4e00::f500:${(n + 1).toString(16)}`,
    pod: (n) => `fd42::${(n + 1).toString(16)}`,
    services: 'fd53:ea1a:4e00::f500:0/112',
    remote: ['2001:db8::/32', 'fd02::/48'],
    insideRemote: '2001:db8:5::/64',
    elsewhere: ['fd08::/48', 'fd09::/48'],
  },
}

/** The statements of the tests for one family. */
export interface Cast {
  readonly family: NftFamily
  readonly words: Words
  readonly services: Extract<NftStatement, { readonly verb: 'add-map' }>
  readonly slot: Extract<NftStatement, { readonly verb: 'add-map' }>
  readonly web: NftElement
  readonly backend: NftElement
  /** The statements of a table with one base chain that looks up `services`, and one service. */
  readonly base: readonly NftStatement[]
}

export const chain = (name: string): NftStatement => ({ verb: 'add-chain', table, chain: name })
export const rule = (name: string, text: string): NftStatement => ({ verb: 'add-rule', table, chain: name, rule: text })
export const add = (map: string, ...elements: NftElement[]): NftStatement => ({
  verb: 'add-elements',
  table,
  map,
  elements,
})
export const del = (map: string, ...elements: NftElement[]): NftStatement => ({
  verb: 'delete-elements',
  table,
  map,
  elements,
})

export function castOf(family: NftFamily): Cast {
  const words = WORDS[family]
  const key = `${words.addressType} . inet_proto . inet_service`
  const services = { verb: 'add-map', table, map: 'services', type: { kind: 'map', key, value: 'verdict' } } as const
  const value = `${words.addressType} . inet_service`
  const slot = { verb: 'add-map', table, map: 'slot-0', type: { kind: 'map', key, value } } as const
  const remote = { kind: 'set', key: words.addressType, flags: ['interval'] } as const
  const web: NftElement = { key: `${words.service(7)} . tcp . 80`, value: 'goto pick-2' }
  const backend: NftElement = { key: web.key, value: `${words.pod(3)} . 8080` }
  const base: readonly NftStatement[] = [
    { verb: 'add-table', table },
    chain('pick-2'),
    chain('spare'),
    services,
    slot,
    { verb: 'add-map', table, map: 'remote', type: remote },
    { verb: 'add-chain', table, chain: 'pre', base: { type: 'nat', hook: 'prerouting', priority: -101 } },
    {
      verb: 'add-rule',
      table,
      chain: 'pick-2',
      rule: `dnat ${family} to ${family} daddr . meta l4proto . th dport map @slot-0`,
      comment: 'slot 0',
    },
    rule('pre', `${family} daddr ${words.services} ${family} daddr . meta l4proto . th dport vmap @services`),
    add('services', web),
    add('slot-0', backend),
    add('remote', ...words.remote.map((prefix) => ({ key: prefix }))),
  ]
  return { family, words, services, slot, web, backend, base }
}
