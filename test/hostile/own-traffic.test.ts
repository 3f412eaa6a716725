/**
 * A member states a public range that holds the broker, and every check has missed it: connections that start on the
 * node still reach the broker. The gateway node stands in for the lane to that member.
 */
import { spawn } from 'node:child_process'
import t, { type Test } from 'tap'
import { cluster, dualStack, gateway } from '../routeagent/support/site.ts'
import { here, ip, serving } from '../routeagent/support/datapath.ts'
import { countArrivals } from '../gateway/support/arrivals.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { HOST_SERVICES, knockAt } from './support/raw-packets.ts'
import { type Worker, buildWorker } from './support/worker.ts'

/** The broker is behind the uplink, where the default route leads. */
const BROKER = '203.0.113.2'
const BROKER6 = '2001:db8:b::2'
const RANGE = '203.0.113.0/28'
const RANGE6 = '2001:db8:b::/64'
/** A pod of the member in that range. */
const THERE = '203.0.113.9'

inPrivateNetns(t, import.meta.url, () =>
  withNetns((pod) =>
    withNetns((far) =>
      withNetns(async (internet) => {
        await buildInternet(internet)
        const worker = await buildWorker(t, pod, far)
        await onTheNode(worker, far)
      }),
    ),
  ),
)

async function buildInternet(internet: Netns): Promise<void> {
  await here('sysctl', '-qw', 'net.ipv6.conf.default.accept_dad=0')
  await internet.exec('sysctl', ['-qw', 'net.ipv6.conf.default.accept_dad=0'])
  await ip(`link add uplink type veth peer name eth0 netns ${internet.name}`)
  await ip('address add 198.51.100.11/24 dev uplink')
  await ip('address add 2001:db8:a::11/64 dev uplink')
  await ip('link set uplink up')
  const lines = [
    'address add 198.51.100.1/24',
    'address add 2001:db8:a::1/64',
    `address add ${BROKER}/32`,
    `address add ${BROKER6}/128`,
  ]
  for (const line of lines) await internet.exec('ip', [...line.split(' '), 'dev', 'eth0'])
  await internet.exec('ip', ['link', 'set', 'eth0', 'up'])
  await ip('route add default via 198.51.100.1')
  await ip('-6 route add default via 2001:db8:a::1')
  await serving(internet.spawn(process.execPath, ['-e', HOST_SERVICES, `7443@${BROKER}`, `7443@${BROKER6}`]))
}

async function onTheNode({ site, pod }: Worker, far: Netns): Promise<void> {
  await attack('own-broker-in-range', async (t) => {
    const seen = await countArrivals(far, 'ip', { broker: `ip daddr ${BROKER}` })
    const seen6 = await countArrivals(far, 'ip6', { broker: `ip6 daddr ${BROKER6}` })
    const held = await holds(t, BROKER)
    site.api.put(dualStack(cluster('evil', 9, undefined, RANGE), RANGE6))
    site.api.put(gateway('gw', { paris: 'up', rome: 'up', evil: 'up' }, 1400))
    // The route leads to a next-hop group on kernels that have them.
    const isRouted = (range: string, routes: string): boolean => new RegExp(`^${range} (via|nhid) `, 'm').test(routes)
    await eventually(async () => isRouted(RANGE, await ip('route show table all')), { say: 'the range is routed' })
    await eventually(async () => isRouted(RANGE6, await ip('-6 route show table all')), { say: 'IPv6 too' })
    t.ok(await held.asks(), 'the connection that there is goes on')
    for (const address of [BROKER, BROKER6]) {
      t.equal(await knockFromHere('tcp', address), 'connected', `a new one to ${address} as well`)
      t.equal(await knockFromHere('udp', address), 'connected', 'and a question by UDP, as DNS asks')
    }
    t.strictSame([await seen(), await seen6()], [[0], [0]], 'nothing of it went towards the member')
  })
  await attack('own-traffic-pods-as-before', async (t) => {
    await far.exec('ip', ['address', 'add', `${THERE}/32`, 'dev', 'lo'])
    await serving(far.spawn(process.execPath, ['-e', HOST_SERVICES, '8443']))
    await eventually(async () => (await knockAt(pod, 'tcp', THERE, 8443)) === 'connected', {
      say: 'pods reach the range',
    })
    const bound = `require('node:net').connect({ host: '${THERE}', port: 8443, localAddress: '10.42.1.1' }, () => { console.log('connected'); process.exit() })`
    t.equal(
      (await here('timeout', '5', process.execPath, '-e', bound)).trim(),
      'connected',
      'so does the node, as one of them',
    )
  })
}

/** A lasting connection from this node to the broker's host. */
async function holds(t: Test, address: string): Promise<{ asks(): Promise<boolean> }> {
  const script = `
    const socket = require('node:dgram').createSocket('udp4')
    socket.on('message', () => console.log('answer'))
    process.stdin.on('data', () => socket.send('x'))
    socket.connect(7443, '${address}', () => socket.send('x'))`
  const child = spawn(process.execPath, ['-e', script], { stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => child.kill())
  let answers = 0
  child.stdout.on('data', () => (answers += 1))
  await eventually(() => answers > 0, { say: 'the broker answers' })
  return {
    async asks() {
      const before = answers
      child.stdin.write('ask\n')
      await eventually(() => answers > before, { say: 'the broker answers again' })
      return true
    },
  }
}

async function knockFromHere(protocol: 'tcp' | 'udp', address: string): Promise<string> {
  return knockAt({ exec: (command, args = []) => here(command, ...args) }, protocol, address, 7443)
}
