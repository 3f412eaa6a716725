/** What a join says of the rung that its links will likely have. */
import t from 'tap'
import { likelyRungText } from '../../../model/lanes/lanes.ts'

t.test('by what is stated of the gateways', (t) => {
  const rows: readonly [Parameters<typeof likelyRungText>[0], RegExp][] = [
    [[], /^no public address is stated: links will likely be direct with members of the same network/],
    [[{ node: 'gw' }], /^no public address is stated/],
    [[{ node: 'gw', addresses: ['10.0.0.5'] }], /^only private addresses \(10\.0\.0\.5\): .*punched.*relayed/],
    [[{ node: 'gw', addresses: ['100.64.1.1', '192.168.1.1', 'fd00::1'] }], /^only private addresses/],
    [[{ node: 'gw', addresses: ['2001:db8::1', 'host.example'] }], /^only private addresses/],
    [[{ node: 'gw', addresses: ['127.0.0.1', '169.254.1.1'] }], /^only private addresses/],
    [[{ node: 'a' }, { node: 'b', addresses: ['198.51.100.7'] }], /direct: b has the address 198/],
    [[{ node: 'a', publicAddress: 'gw.example' }], /^links will likely be direct: others can call a at gw\.ex/],
    [[{ node: 'a\u001b[2J', publicAddress: 'x\ny' }], /call a\?\[2J at x\?y, if/],
  ]
  for (const [gateways, want] of rows) t.match(likelyRungText(gateways), want, JSON.stringify(gateways))
  t.end()
})
