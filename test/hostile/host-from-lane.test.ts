/** Calls from a pod of another cluster to the gateway node itself, whose own ports are closed to lanes. */
import t, { type Test } from 'tap'
import type { SiteInit } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { dropped } from '../gateway/support/take-over.ts'
import { DUAL_STACK_MILANO, DUAL_STACK_PARIS, type Running } from '../gateway/support/two-gateways.ts'
import { serving } from '../routeagent/support/datapath.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { attackLane } from './support/lane-up.ts'
import { HOST_SERVICES, knockAt } from './support/raw-packets.ts'

t.setTimeout(120_000 * SLOWNESS)

const NAMED = 9100
const MILANO: SiteInit = {
  ...DUAL_STACK_MILANO,
  openPorts: [
    { protocol: 'tcp', port: NAMED },
    { protocol: 'udp', port: 53, address: '10.42.0.1' },
  ],
}

/** The ports of the kubelet, of the overlay, of a named service, and of DNS. */
const PORTS = [10250, 4810, NAMED, 53]
/** The bridge address of milano's node, as paris calls it and as milano's own pods call it. */
const BRIDGES = [
  ['244.0.0.1', '10.42.0.1', 'ip'],
  ['fd42:1:0:0::1', 'fd42:1:0:0::1', 'ip6'],
] as const
const NODE_PORT = 30080

await attackLane(t, [MILANO, DUAL_STACK_PARIS], report)

async function report(milano: Running, paris: Running): Promise<void> {
  const { gateway, pod } = milano.site
  const knocker = paris.site.pod
  await serving(gateway.spawn(process.execPath, ['-e', HOST_SERVICES, ...PORTS.map(String)]))
  await serving(pod.spawn(process.execPath, ['-e', HOST_SERVICES, '8080']))
  for (const [family, to] of [
    ['ip', '10.42.0.5'],
    ['ip6', '[fd42:1:0:0::5]'],
  ] as const) {
    const table = `table ${family} proxy {
      chain ports {
        type nat hook prerouting priority -100;
        fib daddr type local tcp dport ${NODE_PORT} dnat to ${to}:8080
      }
    }`
    await gateway.exec('nft', ['-f', '-'], { input: table })
  }
  for (const [theirs] of BRIDGES) {
    await eventually(async () => (await pings(knocker, theirs, '-W', '1')).includes('1 received'), {
      say: `${theirs} answers echo`,
    })
  }
  await attack('lane-address-as-source', (t) => laneSource(t, milano, paris))
  await attack('host-tcp-from-lane', (t) => hostPorts(t, milano, paris, 'tcp'))
  await attack('host-udp-from-lane', (t) => hostPorts(t, milano, paris, 'udp'))
  await attack('node-port-from-lane', (t) => nodePorts(t, milano, paris))
  await attack('host-port-named', async (t) => {
    for (const [theirs, , family] of BRIDGES) {
      t.equal(await knockAt(knocker, 'tcp', theirs, NAMED), 'connected', `${theirs}: a port that is named`)
      t.equal(await knockAt(knocker, 'udp', theirs, NAMED), 'ECONNREFUSED', 'by its protocol only')
      const dns = family === 'ip' ? 'connected' : 'ECONNREFUSED'
      t.equal(await knockAt(knocker, 'udp', theirs, 53), dns, 'and at its address, where it has one')
      t.equal(await knockAt(knocker, 'tcp', theirs, 53), 'ECONNREFUSED')
    }
  })
}

async function hostPorts(t: Test, milano: Running, paris: Running, protocol: 'tcp' | 'udp'): Promise<void> {
  for (const [theirs, own, family] of BRIDGES) {
    const before = await dropped(milano, 'host-service', family)
    for (const port of [10250, 4810]) {
      const ours = await knockAt(milano.site.pod, protocol, own, port)
      t.equal(ours, 'connected', `own pods reach ${own}, port ${port}`)
      t.equal(await knockAt(paris.site.pod, protocol, theirs, port), 'ECONNREFUSED', `others do not reach port ${port}`)
    }
    t.equal((await dropped(milano, 'host-service', family)) - before, 2, 'and each packet is counted once')
    t.match(await pings(paris.site.pod, theirs), '1 received', `${theirs} answers echo`)
  }
}

async function nodePorts(t: Test, milano: Running, paris: Running): Promise<void> {
  for (const [theirs, own] of BRIDGES) {
    const podThere = theirs.replace(/1$/, '5')
    t.equal(await knockAt(paris.site.pod, 'tcp', podThere, 8080), 'connected', `${podThere}: the pod itself is reached`)
    t.equal(await knockAt(milano.site.far, 'tcp', own, NODE_PORT), 'connected', 'own pods use the NodePort')
    t.equal(await knockAt(paris.site.pod, 'tcp', theirs, NODE_PORT), 'ECONNREFUSED', 'others do not')
  }
}

async function laneSource(t: Test, milano: Running, paris: Running): Promise<void> {
  const { gateway: far } = paris.site
  const [own, ours] = ['246.0.2.0', '246.0.1.0']
  const { pod } = milano.site
  await pod.exec('nft', ['add table ip seen; add chain ip seen i { type filter hook input priority 0; }'])
  await pod.exec('nft', ['add rule ip seen i ip saddr 246.0.0.0/8 counter'])
  const before = await dropped(milano, 'in-lane-source', 'ip')
  t.match(await pings(far, '244.0.0.5', '-W', '1', '-I', own), '0 received')
  t.ok((await dropped(milano, 'in-lane-source', 'ip')) > before, 'counted')
  t.match(await pod.exec('nft', ['list', 'chain', 'ip', 'seen', 'i']), 'packets 0 ', 'no pod is reached')
  t.match(await pings(far, ours, '-W', '1', '-I', own), '1 received', 'the lane address itself answers')
  t.equal(milano.process.stateOf('paris'), 'up')
}
