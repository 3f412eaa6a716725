/** Lines of `nft monitor trace`: those that nft prints, and any others. */
import fc from 'fast-check'
import t from 'tap'
import { type TraceLine, parseTraceLine } from '../../../kernel/nft/parse-trace.ts'

const at = { id: 'a95ea7ef', family: 'ip', table: 'sealane_node', chain: 'local-guard' }
const HEAD = 'trace id a95ea7ef ip sealane_node local-guard '

const ROWS: readonly (readonly [name: string, line: string, expected: TraceLine | undefined])[] = [
  [
    'a packet that enters',
    `${HEAD}packet: iif "cni0" ether saddr 00:0d:b9:4a:49:3d ether daddr 3c:97:0e:39:aa:20 ip saddr 10.42.1.5 ip daddr 245.0.0.7 ip dscp cs0 ip ecn not-ect ip ttl 64 ip id 0 ip protocol tcp ip length 60 tcp sport 21000 tcp dport 80 tcp flags == syn tcp window 64240`,
    {
      ...{ ...at, what: 'packet' },
      packet: {
        ...{ inDevice: 'cni0', source: '10.42.1.5', destination: '245.0.0.7' },
        ...{ protocol: 'tcp', sourcePort: 21_000, port: 80 },
      },
    },
  ],
  [
    'a packet of IPv6 that leaves',
    `${HEAD}packet: oif "sealane0" ip6 saddr fd00::1 ip6 daddr fd53:ea1a:4e00::9 ip6 nexthdr udp udp sport 21000 udp dport 53 udp length 8 `,
    {
      ...{ ...at, what: 'packet' },
      packet: {
        ...{ outDevice: 'sealane0', source: 'fd00::1', destination: 'fd53:ea1a:4e00::9' },
        ...{ protocol: 'udp', sourcePort: 21_000, port: 53 },
      },
    },
  ],
  [
    'a rule that goes on',
    `${HEAD}rule ip daddr @remote counter name "dropped-access-egress" goto refused-access-egress (verdict goto refused-access-egress)`,
    {
      ...{ ...at, what: 'rule', action: 'goto', to: 'refused-access-egress' },
      rule: 'ip daddr @remote counter name "dropped-access-egress" goto refused-access-egress',
    },
  ],
  [
    'a rule with braces and its own brackets',
    `${HEAD}rule tcp flags & (syn | ack) == syn reject with tcp reset comment "(verdict accept)" (verdict drop)`,
    {
      ...{ ...at, what: 'rule', action: 'drop' },
      rule: 'tcp flags & (syn | ack) == syn reject with tcp reset comment "(verdict accept)"',
    },
  ],
  [
    'a rule that was added later',
    `${HEAD}unknown rule handle 12 (verdict continue)`,
    { ...at, what: 'rule', rule: 'unknown rule handle 12', action: 'continue' },
  ],
  ['a policy', `${HEAD}policy drop `, { ...at, what: 'policy', action: 'drop' }],
  ['a policy with a mark', `${HEAD}policy accept meta mark 0x00002000 `, { ...at, what: 'policy', action: 'accept' }],
  ['the end of a chain', `${HEAD}verdict return meta mark 0x00002000 `, { ...at, what: 'return', action: 'return' }],
  ['a plain end of a chain', `${HEAD}verdict continue`, { ...at, what: 'return', action: 'continue' }],
  [
    'a port that is a name',
    `${HEAD}packet: tcp sport ssh tcp dport 99999999`,
    { ...at, what: 'packet', packet: { protocol: 'tcp' } },
  ],
  ['no family', 'trace id a95ea7ef ipx t c policy accept', undefined],
  ['no id', 'trace id xyz ip t c policy accept', undefined],
  ['another event', 'add rule ip filter input accept', undefined],
  ['half a line', `${HEAD}rule ip daddr 10.0.0.1 (verdict`, undefined],
  [
    'a control character, and a comment in another script',
    `${HEAD}rule comment "\u001b[2J ввоз" (verdict drop)`,
    { ...at, what: 'rule', rule: 'comment "?[2J ????"', action: 'drop' },
  ],
  ['too long', `${HEAD}rule ${'x'.repeat(9000)} (verdict drop)`, undefined],
  ['nothing', '', undefined],
]

for (const [name, line, expected] of ROWS) {
  t.test(name, async (t) => t.strictSame(parseTraceLine(line), expected))
}

t.test('any line is refused, or gives short printable texts', async (t) => {
  const word = fc.constantFrom(
    ...['trace id ', 'a95ea7ef ', 'ip ', 'sealane_node ', 'c ', 'packet: ', 'rule ', '(verdict drop)', 'verdict '],
    ...[
      'policy accept',
      'iif "',
      '"',
      ' tcp sport 1',
      ' ip saddr ',
      '::',
      '\u001b[2J',
      '\n',
      '\u202e',
      '0'.repeat(500),
    ],
  )
  const line = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 300 }),
    fc.array(word, { maxLength: 12 }).map((words) => words.join('')),
    fc.array(word, { maxLength: 12 }).map((words) => `${HEAD}${words.join('')}`),
  )
  const kind = fc.constantFrom('packet: ', 'rule ', 'policy accept ', 'verdict return ')
  const plain = fc.constantFrom(
    ' iif "eth0"',
    ' ip saddr ',
    '10.0.0.1',
    ' tcp sport ',
    '1',
    'x'.repeat(500),
    ' (verdict drop)',
  )
  const ended = fc.constantFrom('', ' (verdict drop)', ' (verdict goto c)')
  const likely = fc
    .tuple(kind, fc.array(plain, { maxLength: 8 }), ended)
    .map(([what, words, end]) => `${HEAD}${what}${words.join('')}${end}`)
  let parsed = 0
  fc.assert(
    fc.property(fc.oneof(line, likely), (text) => {
      const found = parseTraceLine(text)
      if (found === undefined) return
      parsed += 1
      for (const value of JSON.stringify(found).matchAll(/"((?:[^"\\]|\\.)*)"/g)) {
        if ((value[1]?.length ?? 0) > 900 || /[^\x20-\x7e]/.test(value[1] ?? '')) throw new Error(value[1])
      }
    }),
    { numRuns: 2000 },
  )
  t.ok(parsed > 50, `${parsed} of them were lines of a trace`)
})
