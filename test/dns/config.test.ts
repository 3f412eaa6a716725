import t from 'tap'
import { dnsConfig, formatSocketAddress } from '../../dns/config/dns-config.ts'
import { messageOf } from '../support/failure.ts'

t.test('addresses as people write them', async (t) => {
  const { listen, upstreams } = dnsConfig({
    clusterId: 'west',
    listen: ['10.42.0.1:53', '10.42.0.2', '[fd00::1]:5353', '127.0.0.1:0', '127.0.0.1:0'],
    upstreams: ['192.0.2.1', 'fd00::53'],
  })
  t.same(listen.map(formatSocketAddress), [
    '10.42.0.1:53',
    '10.42.0.2:53',
    '[fd00::1]:5353',
    '127.0.0.1:0',
    '127.0.0.1:0',
  ])
  t.same(upstreams.map(formatSocketAddress), ['192.0.2.1:53', '[fd00::53]:53'])
})

t.test('one address beside all of them is no mistake: earlier releases served both', (t) => {
  for (const listen of [
    ['10.0.0.1:53', '0.0.0.0:53'],
    ['[::]', '[fd00::1]:53'],
  ])
    t.equal(dnsConfig({ clusterId: 'west', listen }).listen.length, 2, listen.join(' '))
  t.end()
})

t.test('mistakes name the field, the value and what was expected', async (t) => {
  const rows: [string[], string[], string][] = [
    [[], [], 'dns.listen: expected at least one address:port'],
    [
      ['dns.example:53'],
      [],
      'dns.listen[0] "dns.example:53": expected an address or address:port such as 10.42.0.1:53 or [fd00::1]:53',
    ],
    [
      ['[fd00::1'],
      [],
      'dns.listen[0] "[fd00::1": expected an address or address:port such as 10.42.0.1:53 or [fd00::1]:53',
    ],
    [['10.0.0.1:70000'], [], 'dns.listen[0] "10.0.0.1:70000": expected a port from 0 to 65535'],
    [['10.0.0.1:53'], ['192.0.2.1:0'], 'dns.upstreams[0] "192.0.2.1:0": expected a port from 1 to 65535'],
    [['10.0.0.1:53'], ['192.0.2.1', '10.0.0.1'], 'dns.upstreams[1] 10.0.0.1:53: this server listens there itself'],
    [
      ['10.0.0.1:53', '10.0.0.1'],
      [],
      'dns.listen[1] 10.0.0.1:53: expected an address:port of its own, beside dns.listen[0] 10.0.0.1:53',
    ],
    [['0.0.0.0:53'], ['127.0.0.53'], 'dns.upstreams[0] 127.0.0.53:53: this server listens there itself'],
  ]
  for (const [listen, upstreams, message] of rows) {
    t.equal(await messageOf(() => dnsConfig({ clusterId: 'west', listen, upstreams })), message, message)
  }
})
