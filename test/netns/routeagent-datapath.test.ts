/** IPv4, with packets: the worker and the gateway node of test/routeagent/support/datapath.ts. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { ProcSysctl } from '../../kernel/proc-sysctl.ts'
import type { KubeObject, ServiceImport } from '../../model/objects.ts'
import {
  type Site,
  TALKER,
  buildBridge,
  buildGatewayNode,
  call,
  here,
  kernelDump,
  serving,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { cluster, endpoint, gateway, membership, node, serviceImport, slice } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

const VIP = '245.0.0.7'

inPrivateNetns(t, import.meta.url, () => {
  t.test('clusterset IPs on a node', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        // Its own addresses come and go at their own pace, and the dumps are compared.
        await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
        await buildBridge([client])
        await buildGatewayNode(far)
        await serving(far.spawn(process.execPath, [TALKER, 'serve', '244.1.0.5:8080', '244.1.0.6:8080']))
        await serving(client.spawn(process.execPath, [TALKER, 'serve', '10.42.1.5:8080']))
        await new ProcSysctl().write('net/ipv4/ip_forward', '0')
        const before = await kernelDump()
        const site = startRouteAgent(t, objects())
        await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })

        const fromPod = (kind: string, count: number, port = 80): Promise<string[]> =>
          call(client, kind, { address: VIP, port, count })
        const fromNode = (kind: string, count: number, port = 80): Promise<string[]> =>
          call(undefined, kind, { address: VIP, port, count })
        const settled = async (want: RegExp): Promise<void> => {
          await eventually(async () => want.test((await site.elements()).join(' ')), { say: String(want) })
        }

        await settled(/no-backends: 245.0.0.7/)
        t.strictSame(await fromPod('tcp', 1), ['ECONNREFUSED'], 'no backend: a pod is refused')
        t.strictSame(await fromNode('tcp', 1), ['ECONNREFUSED'], 'no backend: the node is refused')
        t.strictSame(await fromPod('udp', 1), ['ECONNREFUSED'], 'no backend, UDP')
        t.strictSame(await fromNode('udp', 1), ['ECONNREFUSED'], 'no backend, UDP, from the node')
        t.strictSame(await fromPod('tcp', 1, 81), ['EHOSTUNREACH'], 'a port that nobody has')

        site.api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6'], PORTS))
        await settled(/slot-1: 245.0.0.7/)
        const answers = await fromPod('tcp', 400)
        t.strictSame(
          new Set(answers),
          new Set(['244.1.0.5 10.42.1.5', '244.1.0.6 10.42.1.5']),
          'both answer and see the pod itself, in spite of the masquerade rule',
        )
        const share = answers.filter((a) => a.startsWith('244.1.0.5')).length
        // 200 expected, standard deviation 10: five of them is one run in two million.
        t.ok(Math.abs(share - 200) <= 50, `${share} of 400 connections went to the first of two`)
        t.strictSame(
          new Set((await fromPod('udp', 12)).map((a) => a.split(' ')[1])),
          new Set(['10.42.1.5']),
          'UDP with 3,000 bytes',
        )
        t.strictSame(
          new Set((await fromNode('tcp', 30)).map((a) => a.split(' ')[1])),
          new Set(['10.42.1.1']),
          'the node calls with its pod network address',
        )
        t.equal(new Set((await fromNode('tcp', 30)).map((a) => a.split(' ')[0])).size, 2, 'and is balanced too')
        t.strictSame(
          new Set((await fromNode('udp', 5)).map((a) => a.split(' ')[1])),
          new Set(['10.42.1.1']),
          'UDP from the node',
        )

        const held = holdConnection(client)
        const first = await held.ask()
        const [mine, other] = first.startsWith('244.1.0.5') ? ['244.1.0.5', '244.1.0.6'] : ['244.1.0.6', '244.1.0.5']
        t.equal(await held.ask(), first, 'a connection stays where it is')
        const sockets = await far.exec('ss', ['-tinH', 'state', 'established'])
        const segments = [...sockets.matchAll(/ mss:(\d+)/g)].map((match) => Number(match[1]))
        t.ok(
          segments.length > 0 && Math.max(...segments) <= 1360,
          `segments of ${segments.join()} bytes fit a lane of 1400`,
        )
        site.api.put(slice('web', 'paris', [other], PORTS))
        await eventually(async () => !(await site.elements()).join(' ').includes(mine), { say: 'the backend is gone' })
        t.equal(await held.ask(), first, 'also when its backend takes no new ones')
        t.strictSame(
          new Set(await fromPod('tcp', 20)),
          new Set([`${other} 10.42.1.5`]),
          'new connections go to the one that is left',
        )

        site.api.put(slice('web', 'paris', [], PORTS))
        site.api.put(slice('web', 'milano', ['10.42.1.5'], PORTS))
        await settled(/hairpin: 10.42.1.5/)
        t.strictSame(await fromPod('tcp', 1), ['10.42.1.5 10.42.1.1'], 'a pod that is balanced to itself gets through')
        t.strictSame(await fromNode('tcp', 1), ['10.42.1.5 10.42.1.1'], 'from the node to a pod of its own')

        await keepsToItsPlace(t, site, fromPod, fromNode)

        site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS, sessionAffinity: 'ClientIP' }))
        site.api.put(slice('web', 'milano', [], PORTS))
        site.api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6'], PORTS))
        await settled(/slot-63: 245.0.0.7/)
        t.equal(new Set(await fromPod('tcp', 30)).size, 1, 'with ClientIP affinity a client sticks')

        await breakAndRepair(site)
        t.equal(new Set(await fromPod('tcp', 5)).size, 1, 'a table that others broke works again')

        site.api.put(membership('leaving'))
        await site.ended
        t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
      }),
    ),
  )
})

const PORTS = [
  { name: 'http', protocol: 'TCP', port: 8080 },
  { name: 'udp', protocol: 'UDP', port: 8080 },
] as const
const IMPORT_PORTS = [
  { name: 'http', protocol: 'TCP', port: 80 },
  { name: 'udp', protocol: 'UDP', port: 80 },
] as const

function objects(): KubeObject[] {
  return [
    membership(),
    node('gw', '192.168.7.1', '10.42.0.0/24'),
    node('worker', '192.168.7.11', '10.42.1.0/24', 'a'),
    cluster('milano', 1, '244.0.0.0/16'),
    cluster('paris', 2, '244.1.0.0/16'),
    // Neighbours in the interval set, which nft must give back as they were sent.
    cluster('rome', 3, '244.2.0.0/16'),
    cluster('tokyo', 4, '244.3.0.0/16'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up' }, 1400),
    serviceImport('web', VIP, { ports: IMPORT_PORTS }),
  ]
}

type Call = (kind: string, count: number) => Promise<string[]>

/** internalTrafficPolicy and trafficDistribution, with packets. */
async function keepsToItsPlace(t: Test, site: Site, fromPod: Call, fromNode: Call): Promise<void> {
  const serves = async (want: string[], elements: RegExp, spec: Partial<ServiceImport['spec']>): Promise<void> => {
    site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS, ...spec }))
    await eventually(async () => elements.test((await site.elements()).join(' ')), { say: String(elements) })
    const told = JSON.stringify(spec)
    t.strictSame(new Set((await fromPod('tcp', 20)).map((a) => a.split(' ')[0])), new Set(want), told)
  }
  const local = { internalTrafficPolicy: 'Local' }
  site.api.put(slice('web', 'paris', ['244.1.0.5 on worker in a', '244.1.0.6 in b'], PORTS))
  site.api.put(slice('web', 'milano', ['10.42.1.5 on worker in b'], PORTS))
  await serves(['10.42.1.5'], /slot-0: 245.0.0.7 . tcp . 80 10.42.1.5 /, local)
  site.api.put(slice('web', 'milano', ['10.42.9.9 on other in b'], PORTS))
  await eventually(async () => (await site.elements()).join(' ').includes(`none-here: ${VIP} `))
  t.strictSame(await fromPod('tcp', 1), ['timeout'], 'nobody on this node: a pod’s call is dropped')
  t.strictSame(await fromPod('udp', 1), ['timeout'], 'UDP')
  t.strictSame(await fromNode('tcp', 1), ['timeout'], 'and the node’s own')
  const close = { trafficDistribution: 'PreferClose' }
  await serves(['244.1.0.5'], /slot-0: 245.0.0.7 . tcp . 80 244.1.0.5 /, close)
  site.api.put(node('worker', '192.168.7.11', '10.42.1.0/24', 'c'))
  site.api.put(slice('web', 'milano', [], PORTS))
  await serves(['244.1.0.5', '244.1.0.6'], /slot-1: 245.0.0.7 . tcp . 80 244.1.0.6 /, close)
}

/** Half a minute passes and something pokes the loop, first with nothing wrong, then twice with something broken. */
async function breakAndRepair(site: Site): Promise<void> {
  const warnings = (): string[] => site.logger.messages('warn').filter((m) => m.startsWith('someone'))
  const check = async (turn: number): Promise<void> => {
    site.clock.lateMs += 31_000
    site.api.put(serviceImport('other', `245.0.1.${turn}`))
    await eventually(async () => (await site.elements()).join(' ').includes(`no-backends: 245.0.1.${turn} `))
    await eventually(() => warnings().length === turn, { say: `${turn} warnings` })
  }
  await check(0)
  await here('nft', 'flush', 'chain', 'ip', 'sealane_node', 'balance-forwarded')
  await check(1)
  await here('nft', 'delete', 'element', 'ip', 'sealane_node', 'slot-7', `{ ${VIP} . tcp . 80 }`)
  await here('nft', 'add', 'element', 'ip', 'sealane_node', 'remote', '{ 192.0.2.0/24 }')
  await check(2)
  const all = ['someone changed our table; replacing it', 'someone changed elements of our table; putting them right']
  await eventually(() => warnings().join() === all.join())
  await check(2)
}

function holdConnection(ns: Netns): { ask(): Promise<string> } {
  const child = spawn('ip', ['netns', 'exec', ns.name, process.execPath, TALKER, 'hold', VIP, '80'])
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    async ask() {
      child.stdin.write('hello\n')
      const line = await lines.next()
      return String(line.value)
    },
  }
}
