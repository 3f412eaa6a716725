import { inspect } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { parseAddressPort } from '../../model/addresses/address-port.ts'
import { KernelError } from '../../kernel/errors.ts'
import { formatDevice, parseDump } from '../../kernel/wireguard/wg-text.ts'
import { planWgSync } from '../../kernel/wireguard/plan-wg-sync.ts'
import {
  type DeviceConfig,
  type DeviceState,
  generateWireguardKey,
  publicKeyOf,
} from '../../kernel/wireguard/wireguard-device.ts'

const A = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
const B = 'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA='
const C = 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA='
const SECRET = 'SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSA='

t.test('a dump', (t) => {
  const dump =
    `${SECRET}\t${A}\t4500\toff\n` +
    `${C}\t(none)\t[2001:db8::1]:4500\t(none)\t0\t0\t0\toff\n` +
    `${B}\t(none)\t(none)\tfd42:1::/48,246.0.0.2/32,244.1.0.0/16\t1795000000\t10\t20\t15\n`
  const state = parseDump('sealane0', dump)
  t.strictSame(state, {
    name: 'sealane0',
    publicKey: A,
    listenPort: 4500,
    peers: [
      {
        publicKey: B,
        allowedIps: ['244.1.0.0/16', '246.0.0.2/32', 'fd42:1::/48'],
        keepaliveSeconds: 15,
        lastHandshakeMs: 1_795_000_000_000,
        rxBytes: 10,
        txBytes: 20,
      },
      {
        publicKey: C,
        endpoint: parseAddressPort('[2001:db8::1]:4500'),
        allowedIps: [],
        keepaliveSeconds: 0,
        rxBytes: 0,
        txBytes: 0,
      },
    ],
  })
  t.notMatch(inspect(state, { depth: null }), SECRET, 'the private key stays behind')
  t.throws(() => parseDump('x', `${dump}${A}\t(none)\t(none)\tfd42::zz/48\t0\t0\t0\toff\n`), {
    code: 'UNKNOWN',
    message: 'wg show x dump: expected tab-separated fields of a device and its peers',
  })
  t.match(parseDump('sealane0', '(none)\t(none)\t45904\toff\n'), { publicKey: '', listenPort: 45_904, peers: [] })
  t.end()
})

t.test('what is no dump is said so, without its content', (t) => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(fc.string()).map((parts) => parts.join('\t')),
      ),
      (text) => {
        try {
          parseDump('x', `${SECRET}${text}`)
          return true
        } catch (error) {
          return error instanceof KernelError && !error.message.includes(SECRET)
        }
      },
    ),
  )
  t.end()
})

t.test('wg set is told what differs, and no more', (t) => {
  const state: DeviceState = {
    name: 'sealane0',
    publicKey: A,
    listenPort: 4500,
    peers: [
      {
        publicKey: B,
        endpoint: parseAddressPort('192.0.2.1:4500'),
        allowedIps: ['244.1.0.0/16', '246.0.0.2/32'],
        keepaliveSeconds: 15,
        rxBytes: 0,
        txBytes: 0,
      },
      { publicKey: C, allowedIps: ['244.2.0.0/16'], keepaliveSeconds: 0, rxBytes: 0, txBytes: 0 },
    ],
  }
  const b = { publicKey: B, allowedIps: ['246.0.0.2/32', '244.1.0.0/16'], keepaliveSeconds: 15 }
  const c = { publicKey: C, allowedIps: ['244.2.0.0/16'], keepaliveSeconds: 0 }
  const rows: readonly (readonly [string, DeviceConfig, string])[] = [
    ['the same in another order', { listenPort: 4500, peers: [c, b] }, ''],
    ['the same endpoint', { listenPort: 4500, peers: [{ ...b, endpoint: parseAddressPort('192.0.2.1:4500') }, c] }, ''],
    [
      'the same endpoint anew',
      { listenPort: 4500, peers: [{ ...b, endpoint: parseAddressPort('192.0.2.1:4500'), setsEndpointAgain: true }, c] },
      `peer ${B} endpoint 192.0.2.1:4500`,
    ],
    ['any port', { listenPort: 0, peers: [b, c] }, ''],
    ['another port', { listenPort: 4501, peers: [b, c] }, 'listen-port 4501'],
    [
      'another endpoint',
      { listenPort: 4500, peers: [{ ...b, endpoint: parseAddressPort('192.0.2.9:1') }, c] },
      `peer ${B} endpoint 192.0.2.9:1`,
    ],
    [
      'no keepalive',
      { listenPort: 4500, peers: [{ ...b, keepaliveSeconds: 0 }, c] },
      `peer ${B} persistent-keepalive 0`,
    ],
    [
      'other prefixes',
      { listenPort: 4500, peers: [b, { ...c, allowedIps: ['244.3.0.0/16'] }] },
      `peer ${C} allowed-ips 244.3.0.0/16`,
    ],
    ['no prefixes', { listenPort: 4500, peers: [b, { ...c, allowedIps: [] }] }, `peer ${C} allowed-ips `],
    ['a peer less', { listenPort: 4500, peers: [b] }, `peer ${C} remove`],
    ['a peer more', { listenPort: 4500, peers: [b, c, { ...c, publicKey: A, allowedIps: [] }] }, `peer ${A}`],
  ]
  const six = { ...state, peers: [{ ...state.peers[1]!, allowedIps: ['fd42:2::/48'] }] }
  const sixes = (...allowedIps: string[]): DeviceConfig => ({ listenPort: 4500, peers: [{ ...c, allowedIps }] })
  t.equal(planWgSync(six, sixes('FD42:2:0::/48')).join(' '), '', 'the same in another form')
  t.equal(
    planWgSync(six, sixes('FD42:2:0::/48', '244.2.0.0/16')).join(' '),
    `peer ${C} allowed-ips 244.2.0.0/16,fd42:2::/48`,
    'both families',
  )
  for (const [say, config, want] of rows) t.equal(planWgSync(state, config).join(' '), want, say)
  t.end()
})

t.test('a device as wg reads it', (t) => {
  const peers = [
    { publicKey: C, allowedIps: ['244.2.0.0/16'], keepaliveSeconds: 0 },
    {
      publicKey: B,
      endpoint: parseAddressPort('192.0.2.1:4500'),
      allowedIps: ['244.1.0.0/16', '246.0.0.2/32'],
      keepaliveSeconds: 15,
    },
  ]
  t.equal(
    formatDevice({ listenPort: 4500, peers }),
    `[Interface]
ListenPort = 4500

[Peer]
PublicKey = ${B}
Endpoint = 192.0.2.1:4500
AllowedIPs = 244.1.0.0/16, 246.0.0.2/32
PersistentKeepalive = 15

[Peer]
PublicKey = ${C}
AllowedIPs = 244.2.0.0/16
`,
  )
  t.end()
})

t.test('keys', (t) => {
  const { privateKey, publicKey } = generateWireguardKey()
  const bytes = Buffer.from(privateKey, 'base64')
  t.equal((bytes[0] ?? 1) & 7, 0, 'clamped: RFC 7748 section 5')
  t.equal((bytes[31] ?? 0) & 192, 64)
  t.equal(publicKeyOf(privateKey), publicKey)
  t.throws(() => publicKeyOf('short'), {
    code: 'EINVAL',
    message: 'wg pubkey: the private key is not 32 bytes in base64',
  })
  t.end()
})
