/** Messages as the kernel sends them; test/lanes/access.test.ts has real ones. */
import fc from 'fast-check'
import t from 'tap'
import { decodeLogged, encodeFollowRequest, readHeaders } from '../../../kernel/nfnetlink/log-codec.ts'
import { addressBytes, body } from '../../../kernel/route/rtnetlink-codec.ts'

const GROUP = 7310

function ipv4(protocol: number, rest: readonly number[], fragment = 0, options = 0): Buffer {
  const head = Buffer.alloc(20 + options)
  head[0] = 0x40 | (5 + options / 4)
  head.writeUInt16BE(fragment, 6)
  head[9] = protocol
  addressBytes('244.1.0.9').copy(head, 12)
  addressBytes('10.42.1.5').copy(head, 16)
  return Buffer.concat([head, Buffer.from(rest)])
}

function ipv6(next: number, ...rest: readonly (readonly number[])[]): Buffer {
  const head = Buffer.alloc(40)
  head[0] = 0x60
  head[6] = next
  addressBytes('fd42:2::9').copy(head, 8)
  addressBytes('fd42:1::5').copy(head, 24)
  return Buffer.concat([head, Buffer.from(rest.flat())])
}

const PORTS = [0x9c, 0x40, 0x1f, 0x90]
const ENDS4 = { source: '244.1.0.9', destination: '10.42.1.5' }
const ENDS6 = { source: 'fd42:2::9', destination: 'fd42:1::5' }

t.test('headers', async (t) => {
  const rows: readonly [what: string, packet: Buffer, want: unknown][] = [
    ['TCP', ipv4(6, PORTS), { ...ENDS4, protocol: 'tcp', sourcePort: 40_000, port: 8080 }],
    ['UDP after options', ipv4(17, PORTS, 0, 8), { ...ENDS4, protocol: 'udp', sourcePort: 40_000, port: 8080 }],
    ['a first part', ipv4(17, PORTS, 0x2000), { ...ENDS4, protocol: 'udp', sourcePort: 40_000, port: 8080 }],
    ['a later part', ipv4(17, PORTS, 0x2010), { ...ENDS4, protocol: 'udp' }],
    ['ICMP', ipv4(1, PORTS), { ...ENDS4, protocol: 'icmp' }],
    ['GRE', ipv4(47, PORTS), { ...ENDS4, protocol: '47' }],
    ['cut off in the ports', ipv4(6, [0x9c, 0x40, 0x1f]), { ...ENDS4, protocol: 'tcp' }],
    ['cut off in the addresses', ipv4(6, []).subarray(0, 19), undefined],
    ['a wrong length', Buffer.concat([Buffer.from([0x44]), ipv4(6, PORTS).subarray(1)]), undefined],
    ['nothing', Buffer.alloc(0), undefined],
    ['IPv6', ipv6(6, PORTS), { ...ENDS6, protocol: 'tcp', sourcePort: 40_000, port: 8080 }],
    [
      'after two headers',
      ipv6(0, [60, 0, 0, 0, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0, 0, 0], PORTS),
      { ...ENDS6, protocol: 'tcp', sourcePort: 40_000, port: 8080 },
    ],
    [
      'an IPv6 first part',
      ipv6(44, [17, 0, 0, 1, 0, 0, 0, 1], PORTS),
      { ...ENDS6, protocol: 'udp', sourcePort: 40_000, port: 8080 },
    ],
    [
      'what an ICMP error is about',
      ipv4(1, [3, 3, 0, 0, 0, 0, 0, 0, ...ipv4(17, PORTS)]),
      { ...ENDS4, protocol: 'icmp', about: { ...ENDS4, protocol: 'udp', sourcePort: 40_000, port: 8080 } },
    ],
    [
      'an error about an error',
      ipv4(1, [3, 3, 0, 0, 0, 0, 0, 0, ...ipv4(1, [3, 3, 0, 0, 0, 0, 0, 0, ...ipv4(17, PORTS)])]),
      { ...ENDS4, protocol: 'icmp', about: { ...ENDS4, protocol: 'icmp' } },
    ],
    [
      'what an ICMPv6 error is about',
      ipv6(58, [1, 4, 0, 0, 0, 0, 0, 0], [...ipv6(17, PORTS)]),
      { ...ENDS6, protocol: 'icmpv6', about: { ...ENDS6, protocol: 'udp', sourcePort: 40_000, port: 8080 } },
    ],
    [
      'an echo request is about nothing',
      ipv4(1, [8, 0, 0, 0, 0, 0, 0, 0, ...ipv4(17, PORTS)]),
      { ...ENDS4, protocol: 'icmp' },
    ],
    [
      'an ICMP error that is cut off before the ports',
      ipv4(1, [3, 3, 0, 0, 0, 0, 0, 0, ...ipv4(17, PORTS).subarray(0, 20)]),
      { ...ENDS4, protocol: 'icmp', about: { ...ENDS4, protocol: 'udp' } },
    ],
    ['an ICMP error that is cut off', ipv4(1, [3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0]), { ...ENDS4, protocol: 'icmp' }],
    ['an IPv6 later part', ipv6(44, [17, 0, 0, 9, 0, 0, 0, 1], PORTS), { ...ENDS6, protocol: 'udp' }],
    ['headers beyond the copy', ipv6(0, [6, 255, 0, 0, 0, 0, 0, 0], PORTS), { ...ENDS6, protocol: 'tcp' }],
    ['cut off in IPv6 addresses', ipv6(6).subarray(0, 39), undefined],
  ]
  for (const [what, packet, want] of rows) t.same(readHeaders(packet), want, what)
})

t.test('any octets', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 128 }), (bytes) => {
      const found = readHeaders(Buffer.from(bytes))
      return found === undefined || found.port === undefined || (found.port >= 0 && found.port <= 65535)
    }),
  )
  t.pass()
})

t.test('messages', async (t) => {
  const head = Buffer.from([2, 0, GROUP >> 8, GROUP & 0xff])
  const message = (parts: Parameters<typeof body>[1]): Buffer => Buffer.concat(body(head, parts))
  const whole = message([
    [10, Buffer.from('access-node\0')],
    [9, ipv4(6, PORTS)],
  ])
  t.same(decodeLogged(whole, GROUP), {
    prefix: 'access-node',
    ...ENDS4,
    protocol: 'tcp',
    sourcePort: 40_000,
    port: 8080,
  })
  t.equal(decodeLogged(whole, GROUP + 1), undefined, 'of another group')
  t.equal(decodeLogged(message([[10, Buffer.from('x\0')]]), GROUP), undefined, 'without the packet')
  t.equal(
    Buffer.concat(encodeFollowRequest(GROUP)).toString('hex'),
    '00001c8e05000100010000000a00020000000080020000000800050000000001',
  )
})
