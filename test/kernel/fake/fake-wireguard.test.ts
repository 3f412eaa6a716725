import t from 'tap'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { FakeWireguard } from '../../../kernel/fake/fake-wireguard.ts'
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { wireguardCompliance } from '../../compliance/wireguard.ts'

wireguardCompliance(t, () => {
  const routes = new FakeRouteTable()
  return { routes, wireguard: new FakeWireguard({ routes }) }
})

t.test('sessions of unchanged peers live on, and only what differs is touched', async (t) => {
  const keyFiles = new Map([['/key', new FakeWireguard().generateKey().privateKey]])
  const wireguard = new FakeWireguard({ keyFiles })
  await wireguard.ensureDevice('sealane0', { privateKeyFile: '/key', mtu: 1420 })
  const a = { publicKey: wireguard.generateKey().publicKey, allowedIps: ['244.1.0.0/16'], keepaliveSeconds: 0 }
  const b = { publicKey: wireguard.generateKey().publicKey, allowedIps: ['244.2.0.0/16'], keepaliveSeconds: 0 }
  await wireguard.sync('sealane0', { listenPort: 4500, peers: [a, b] })
  wireguard.handshake('sealane0', a.publicKey, 1_000, parseAddressPort('203.0.113.5:4500'))
  wireguard.traffic('sealane0', a.publicKey, 10, 20)
  wireguard.touched.length = 0
  await wireguard.sync('sealane0', { listenPort: 4500, peers: [a, { ...b, keepaliveSeconds: 5 }] })
  t.same(wireguard.touched, [`sealane0 ${b.publicKey}`])
  t.match(
    (await wireguard.read('sealane0'))?.peers.find((peer) => peer.publicKey === a.publicKey),
    {
      endpoint: parseAddressPort('203.0.113.5:4500'),
      lastHandshakeMs: 1_000,
      rxBytes: 10,
      txBytes: 20,
    },
  )
  t.match(wireguard.toString(), /^# sealane0\n\[Interface\]\nListenPort = 4500\n\n\[Peer\]\n/)
})
