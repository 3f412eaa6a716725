import t from 'tap'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { routeTableCompliance } from '../../compliance/route-table.ts'

routeTableCompliance(t, () => new FakeRouteTable())

t.test('prints itself as commands', async (t) => {
  const table = new FakeRouteTable({
    links: [{ name: 'eth0' }],
    addresses: [{ device: 'eth0', address: '192.0.2.1/24' }],
    defaultDevice: 'eth0',
  })
  await table.addLink({
    kind: 'vxlan',
    name: 'sealane-vx',
    vni: 7300,
    port: 4810,
    local: '192.0.2.1',
    mac: '0a:5e:c0:00:02:01',
    mtu: 1450,
  })
  await table.setLink('sealane-vx', { up: true })
  await table.replaceNeighbour({ device: 'sealane-vx', address: '192.0.2.2', mac: '0a:5e:c0:00:02:02' })
  await table.replaceForwardingEntry({ device: 'sealane-vx', mac: '0a:5e:c0:00:02:02', destination: '192.0.2.2' })
  await table.addRule({ priority: 7312, table: 7312 })
  const hop = { device: 'sealane-vx', onlink: true }
  await table.replaceRoute({
    table: 7312,
    destination: '244.1.0.0/16',
    type: 'unicast',
    mtu: 1370,
    nextHops: [
      { ...hop, via: '192.0.2.2' },
      { ...hop, via: '192.0.2.3' },
    ],
  })
  await table.replaceRoute({
    table: 7312,
    destination: '244.0.0.0/8',
    type: 'unreachable',
    nextHops: [],
    metric: 4278198272,
  })
  t.equal(
    table.toString(),
    [
      'bridge fdb replace 0a:5e:c0:00:02:02 dev sealane-vx dst 192.0.2.2 self permanent',
      'ip link add sealane-vx address 0a:5e:c0:00:02:01 mtu 1450 type vxlan id 7300 local 192.0.2.1 dstport 4810 nolearning',
      'ip link set sealane-vx up',
      'ip neighbour replace 192.0.2.2 lladdr 0a:5e:c0:00:02:02 dev sealane-vx nud permanent',
      'ip route replace 244.1.0.0/16 table 7312 proto 173 mtu 1370 nexthop via 192.0.2.2 dev sealane-vx weight 1 onlink nexthop via 192.0.2.3 dev sealane-vx weight 1 onlink',
      'ip route replace unreachable 244.0.0.0/8 table 7312 proto 173 metric 4278198272',
      'ip rule add priority 7312 lookup 7312 protocol 173',
    ].join('\n'),
  )
  t.match(await table.lookup('203.0.113.9'), { device: 'eth0', source: '192.0.2.1', mtu: 1500 })
})

t.test('IPv6: prints itself, and leaves by a device that has an address', async (t) => {
  const table = new FakeRouteTable({
    links: [{ name: 'eth0' }],
    addresses: [{ device: 'eth0', address: '192.0.2.1/24' }],
    defaultDevice: 'eth0',
  })
  await t.rejects(table.lookup('2001:db8::9'), {
    code: 'ENETUNREACH',
    message: 'ip -6 route get 2001:db8::9: network is unreachable',
  })
  await table.addAddress({ device: 'eth0', address: 'fd00::1/64' })
  t.match(await table.lookup('2001:db8::9'), { device: 'eth0', source: 'fd00::1', mtu: 1500 })
  t.match(await table.lookup('203.0.113.9'), { device: 'eth0', source: '192.0.2.1' })
  await table.addRule({ family: 6, priority: 74, table: 7311, exceptMark: 0x1073 })
  await table.replaceNeighbour({ device: 'eth0', address: 'fe80::5ea1:c000:202', mac: '0a:5e:c0:00:02:02' })
  const hop = { device: 'eth0', onlink: true }
  await table.replaceRoute({
    table: 7312,
    destination: 'fd01::/48',
    type: 'unicast',
    nextHops: [
      { ...hop, via: 'fe80::1' },
      { ...hop, via: 'fe80::2', weight: 2 },
    ],
    source: 'fd00::1',
  })
  await table.replaceRoute({ table: 7312, destination: 'fd00::/8', type: 'unreachable', nextHops: [], metric: 2000 })
  t.equal(
    table.toString(),
    [
      'ip -6 neighbour replace fe80::5ea1:c000:202 lladdr 0a:5e:c0:00:02:02 dev eth0 nud permanent',
      'ip -6 route replace fd01::/48 table 7312 proto 173 src fd00::1 nexthop via fe80::1 dev eth0 weight 1 onlink nexthop via fe80::2 dev eth0 weight 2 onlink',
      'ip -6 route replace unreachable fd00::/8 table 7312 proto 173 metric 2000',
      'ip -6 rule add not fwmark 0x1073 priority 74 lookup 7311 protocol 173',
      'ip address add fd00::1/64 dev eth0 nodad',
    ].join('\n'),
  )
  await table.deleteAddress({ device: 'eth0', address: '192.0.2.1/24' })
  t.match(table.toString(), 'ip -6 neighbour', 'the end of IPv4 is not that of IPv6')
})
