import fc from 'fast-check'
import t from 'tap'
import { KernelError } from '../../../kernel/errors.ts'
import { formatNft, parseCounts, parseElements } from '../../../kernel/nft/nft-text.ts'
import type { NftElement, NftStatement } from '../../../kernel/nft/nft-transaction.ts'
import { formatAddress } from '../../../model/values/ip.ts'

const table = 'sealane_node'
const SLOT = { kind: 'map', key: 'ipv4_addr . inet_proto . inet_service', value: 'ipv4_addr . inet_service' } as const
const backend: NftElement = { key: '245.0.0.7 . tcp . 80', value: '10.1.2.3 . 8080' }

t.test('each statement as nft reads it', (t) => {
  const rows: readonly (readonly [NftStatement, string])[] = [
    [{ verb: 'add-table', table }, 'add table ip sealane_node\n'],
    [{ verb: 'delete-table', table }, 'delete table ip sealane_node\n'],
    [{ verb: 'flush-table', table }, 'flush table ip sealane_node\n'],
    [{ verb: 'add-chain', table, chain: 'pick-2' }, 'add chain ip sealane_node pick-2\n'],
    [
      { verb: 'add-chain', table, chain: 'pre', base: { type: 'nat', hook: 'prerouting', priority: -101 } },
      'add chain ip sealane_node pre { type nat hook prerouting priority -101; policy accept; }\n',
    ],
    [{ verb: 'flush-chain', table, chain: 'pick-2' }, 'flush chain ip sealane_node pick-2\n'],
    [{ verb: 'delete-chain', table, chain: 'pick-2' }, 'delete chain ip sealane_node pick-2\n'],
    [
      { verb: 'add-rule', table, chain: 'pre', rule: 'iifname "sealane*" counter drop', comment: 'not ours' },
      'add rule ip sealane_node pre iifname "sealane*" counter drop comment "not ours"\n',
    ],
    [
      { verb: 'add-map', table, map: 'slot-0', type: SLOT },
      `add map ip sealane_node slot-0 { type ${SLOT.key} : ${SLOT.value}; }\n`,
    ],
    [
      { verb: 'add-map', table, map: 'remote', type: { kind: 'set', key: 'ipv4_addr', flags: ['interval'] } },
      'add set ip sealane_node remote { type ipv4_addr; flags interval; }\n',
    ],
    [
      {
        verb: 'add-map',
        table,
        map: 'slots',
        type: {
          ...SLOT,
          key: `${SLOT.key} . integer`,
          typeOf: { key: 'ip daddr . th dport . numgen random mod 2', value: 'ip daddr . th dport' },
        },
      },
      'add map ip sealane_node slots { typeof ip daddr . th dport . numgen random mod 2 : ip daddr . th dport; }\n',
    ],
    [
      {
        verb: 'add-map',
        table,
        map: 'affinity',
        type: { kind: 'map', key: 'ipv4_addr', value: 'mark', size: 9, flags: ['dynamic', 'timeout'] },
      },
      'add map ip sealane_node affinity { type ipv4_addr : mark; size 9; flags dynamic,timeout; }\n',
    ],
    [{ verb: 'flush-map', table, map: 'remote', kind: 'set' }, 'flush set ip sealane_node remote\n'],
    [{ verb: 'delete-map', table, map: 'slot-0', kind: 'map' }, 'delete map ip sealane_node slot-0\n'],
    [
      { verb: 'add-elements', table, map: 'slot-0', elements: [backend, { ...backend, key: '245.0.0.8 . tcp . 80' }] },
      'add element ip sealane_node slot-0 {\n245.0.0.7 . tcp . 80 : 10.1.2.3 . 8080,\n245.0.0.8 . tcp . 80 : 10.1.2.3 . 8080\n}\n',
    ],
    [
      { verb: 'delete-elements', table, map: 'slot-0', elements: [backend] },
      'delete element ip sealane_node slot-0 {\n245.0.0.7 . tcp . 80\n}\n',
    ],
    [{ verb: 'add-elements', table, map: 'slot-0', elements: [] }, ''],
  ]
  for (const [statement, want] of rows) t.equal(formatNft([statement], 'ip'), want)
  t.equal(
    formatNft(
      rows.map(([statement]) => statement),
      'ip',
    ),
    rows.map(([, want]) => want).join(''),
  )
  t.end()
})

t.test('for tables of IPv6', (t) => {
  const backend6 = { key: 'fd53:ea1a:4e00::f500:7 . tcp . 80', value: 'fd42:: . 8080' }
  const statements: readonly NftStatement[] = [
    { verb: 'add-table', table },
    { verb: 'add-rule', table, chain: 'pre', rule: 'meta l4proto tcp dnat ip6 to [fd42::5]:80' },
    { verb: 'add-elements', table, map: 'slot-0', elements: [backend6, { key: ':: . udp . 53', value: '::1 . 53' }] },
    { verb: 'add-elements', table, map: 'remote', elements: [{ key: 'fd00::/8' }, { key: 'fe00::1-fe00::9' }] },
    { verb: 'delete-elements', table, map: 'slot-0', elements: [backend6] },
  ]
  t.equal(
    formatNft(statements, 'ip6'),
    [
      'add table ip6 sealane_node',
      'add rule ip6 sealane_node pre meta l4proto tcp dnat ip6 to [fd42::5]:80',
      'add element ip6 sealane_node slot-0 {',
      'fd53:ea1a:4e00::f500:7 . tcp . 80 : fd42:: . 8080,',
      ':: . udp . 53 : ::1 . 53',
      '}',
      'add element ip6 sealane_node remote {',
      'fd00::/8,',
      'fe00::1-fe00::9',
      '}',
      'delete element ip6 sealane_node slot-0 {',
      'fd53:ea1a:4e00::f500:7 . tcp . 80',
      '}',
      '',
    ].join('\n'),
  )
  for (const key of [
    ':',
    ' : ',
    'a : b',
    'fd00::1 : accept',
    'fd00:1',
    'fd00::/8/9',
    'x::1',
    '::1-',
    'tcp:80',
    '[::1]',
  ])
    t.throws(
      () => formatNft([{ verb: 'add-elements', table, map: 'm', elements: [{ key }] }], 'ip6'),
      { code: 'EINVAL', message: /element key ".*": expected letters, digits, .*or IPv6 addresses/ },
      key,
    )
  t.throws(() => formatNft([{ verb: 'add-rule', table, chain: 'c', rule: 'dnat to [::1' }], 'ip6'), {
    code: 'EINVAL',
    message: /brackets and quotes in pairs/,
  })
  t.end()
})

t.test('what could do more than it says is refused', (t) => {
  const rows: readonly (readonly [NftStatement, RegExp])[] = [
    [{ verb: 'add-table', table: 'a b' }, /table name "a b": expected a letter or _, then/],
    [{ verb: 'add-table', table: '' }, /table name "": expected/],
    [{ verb: 'add-chain', table, chain: 'x\nflush ruleset' }, /chain name "x\\nflush ruleset"/],
    [
      { verb: 'add-chain', table, chain: 'accept' },
      /chain name "accept": expected a name that is not a word of the nft language/,
    ],
    [
      { verb: 'add-rule', table, chain: 'c', rule: 'accept; flush ruleset' },
      /rule "accept; flush ruleset": expected one nft rule/,
    ],
    [{ verb: 'add-rule', table, chain: 'c', rule: 'accept\nflush ruleset' }, /expected one nft rule/],
    [{ verb: 'add-rule', table, chain: 'c', rule: 'accept # and the rest' }, /expected one nft rule/],
    [{ verb: 'add-rule', table, chain: 'c', rule: 'iifname "a' }, /brackets and quotes in pairs/],
    [{ verb: 'add-rule', table, chain: 'c', rule: 'accept }' }, /brackets and quotes in pairs/],
    [{ verb: 'add-rule', table, chain: 'c', rule: '' }, /expected one nft rule/],
    [{ verb: 'add-rule', table, chain: 'c', rule: 'accept', comment: 'a" accept' }, /comment "a\\" accept"/],
    [{ verb: 'add-map', table, map: 'm', type: { kind: 'map', key: 'ipv4_addr' } }, /a type, as this is a map/],
    [{ verb: 'add-map', table, map: 'm', type: { kind: 'set', key: 'ipv4_addr; }' } }, /key type/],
    [{ verb: 'add-elements', table, map: 'm', elements: [{ key: '1.2.3.4 }' }] }, /element key/],
    [{ verb: 'add-elements', table, map: 'm', elements: [{ key: '1.2.3.4, 5.6.7.8' }] }, /element key/],
    [{ verb: 'add-elements', table, map: 'm', elements: [{ key: '1.2.3.4', value: 'accept\n' }] }, /element value/],
  ]
  for (const [statement, want] of rows) t.throws(() => formatNft([statement], 'ip'), { code: 'EINVAL', message: want })
  t.end()
})

t.test('no text makes a second statement', (t) => {
  const anything = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.constantFrom('accept', 'a\n', '";', '}{', 'a"b"', '::1 : accept', 'fd00::1', '[::1]:80'),
  )
  fc.assert(
    fc.property(anything, anything, anything, (name, rule, value) => {
      const statements: readonly NftStatement[] = [
        { verb: 'add-chain', table, chain: name },
        { verb: 'add-rule', table, chain: 'c', rule, comment: value },
        { verb: 'add-elements', table, map: 'm', elements: [{ key: rule, value }] },
      ]
      for (const statement of statements) {
        let text: string
        try {
          text = formatNft([statement], 'ip')
        } catch (error) {
          if (error instanceof KernelError && error.code === 'EINVAL') continue
          throw error
        }
        const lines = statement.verb === 'add-elements' ? 4 : 2
        // There is one colon between key and value, and none inside them.
        if (statement.verb === 'add-elements' && text.match(/ : |^: | :$/gm)?.length !== 1) return false
        if (text.split('\n').length !== lines || /[;#$\\]/.test(text.replace(/comment ".*"$/m, ''))) return false
      }
      return true
    }),
    { numRuns: 2000 },
  )
  t.end()
})

t.test('elements that are printed are read back', (t) => {
  const octet = fc.integer({ min: 0, max: 255 })
  const address = fc.tuple(octet, octet, octet, octet).map((parts) => parts.join('.'))
  const address6 = fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }).map((value) => formatAddress({ family: 6, value }))
  const port = fc.integer({ min: 1, max: 65_535 })
  const anyAddress = fc.oneof(address, address6)
  const key = fc.tuple(anyAddress, fc.constantFrom('tcp', 'udp'), port).map((parts) => parts.join(' . '))
  const value = fc.oneof(
    fc.tuple(anyAddress, port).map((parts) => parts.join(' . ')),
    fc.constant('goto pick-2'),
    fc.constant(undefined),
  )
  fc.assert(
    fc.property(fc.uniqueArray(fc.tuple(key, value), { selector: ([text]) => text, maxLength: 30 }), (pairs) => {
      const elements = pairs.map(([k, v]): NftElement => (v === undefined ? { key: k } : { key: k, value: v }))
      const body = elements
        .map((item) => (item.value === undefined ? item.key : `${item.key} : ${item.value}`))
        .join(',\n\t\t')
      const listing = `table ip t {\n\tmap m {\n\t\ttype x\n\t\telements = { ${body} }\n\t}\n}\n`
      const want = elements.sort((a, b) => (a.key < b.key ? -1 : 1))
      return (
        JSON.stringify(parseElements(elements.length === 0 ? listing.replace(/elements.*/, '') : listing)) ===
        JSON.stringify(want)
      )
    }),
  )
  t.end()
})

const COUNTED = `table ip sealane_flows {
	counter all-opened {
		packets 16 bytes 12832
	}

	set opened {
		type ipv4_addr . ipv4_addr
		size 16384
		flags dynamic,timeout
		elements = { 10.42.1.5 . 245.0.0.7 counter packets 12 bytes 12592 timeout 15m expires 14m52s812ms,
			     10.42.1.6 . 245.0.0.7 timeout 15m expires 1s counter packets 2 bytes 120,
			     10.42.1.7 . 245.0.0.7 timeout 15m expires 1s }
	}

	set none {
		typeof ct id
		flags dynamic,timeout
	}

	chain opened {
		update @opened { ip saddr timeout 15m counter }
	}
}
`

t.test('what a table has counted', async (t) => {
  const { sets } = parseCounts(COUNTED)
  t.same(
    [...sets],
    [
      [
        'opened',
        [
          { key: '10.42.1.5 . 245.0.0.7', packets: 12, bytes: 12_592 },
          { key: '10.42.1.6 . 245.0.0.7', packets: 2, bytes: 120 },
        ],
      ],
      ['none', []],
    ],
  )
  const cuts = fc.tuple(fc.nat(COUNTED.length), fc.nat(COUNTED.length), fc.string())
  fc.assert(
    fc.property(cuts, ([from, to, text]) => {
      const { sets: found } = parseCounts(`${COUNTED.slice(0, from)}${text}${COUNTED.slice(to)}`)
      return [...found.values()]
        .flat()
        .every(({ packets, bytes }) => Number.isInteger(packets) && Number.isInteger(bytes))
    }),
  )
})
