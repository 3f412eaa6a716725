/** Node ports that are open to other clusters: as the operator writes them, and as nft matches them. */
import fc from 'fast-check'
import t from 'tap'
import { hostMatches, ledElsewhereMatches } from '../../../kernel/nft/host-guard.ts'
import { parseOpenPort } from '../../../model/addresses/address-port.ts'

t.test('a port as it is written', async (t) => {
  t.strictSame(parseOpenPort('tcp/9100'), { protocol: 'tcp', port: 9100 })
  t.strictSame(parseOpenPort('udp/53'), { protocol: 'udp', port: 53 })
  const wrong = [
    '',
    'tcp',
    '9100',
    'tcp/',
    'tcp/0',
    'tcp/65536',
    'tcp/080',
    'TCP/80',
    'sctp/80',
    'tcp/80 ',
    'tcp/8-9',
    'tcp/80\nudp/53',
  ]
  for (const text of wrong) t.equal(parseOpenPort(text), undefined, JSON.stringify(text))
  fc.assert(
    fc.property(fc.constantFrom('tcp', 'udp'), fc.integer({ min: 1, max: 65_535 }), (protocol, port) => {
      t.strictSame(parseOpenPort(`${protocol}/${port}`), { protocol, port })
    }),
  )
})

t.test('a port with an address is of one family', async (t) => {
  const ports = [
    { protocol: 'udp', port: 53, address: '10.42.0.1' },
    { protocol: 'udp', port: 53, address: 'fd42::1' },
    { protocol: 'tcp', port: 9100 },
  ] as const
  t.strictSame(hostMatches(4, ports).slice(2), ['ip daddr 10.42.0.1 udp dport 53', 'tcp dport 9100'])
  t.strictSame(hostMatches(6, ports).slice(2), ['ip6 daddr fd42::1 udp dport 53', 'tcp dport 9100'])
  t.strictSame(ledElsewhereMatches(6, ports), [
    'ct original ip6 daddr fd42::1 meta l4proto udp ct original proto-dst 53',
    'meta l4proto tcp ct original proto-dst 9100',
  ])
  t.equal(hostMatches(4, []).length, 2, 'ICMP and answers are always let in')
})
