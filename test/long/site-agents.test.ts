/** Each gateway node of a site has an agent and a DNS server. One of the agents acts, and all DNS servers answer. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { actInTurn } from '../../compose/site/agent.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { membership } from '../gateway/support/netns-sites.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli, spawnServing } from '../cli/run-cli.ts'
import { SiteFolder } from '../cli/site-folder.ts'

t.setTimeout(110_000)

const GATEWAYS = '  gateways: [{ node: gw1 }, { node: gw2 }]\n'
const LONG = { deadlineMs: 40_000 }
const SHOP = `apiVersion: v1
kind: Namespace
metadata: { name: shop }
`
const WEB = `apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: 10.43.0.80, ports: [{ port: 80 }] }
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: web, namespace: shop }
`

function agentOf(t: Test, site: SiteFolder, node: string): ReturnType<typeof spawnServing> {
  const up = ['up', '--site', site.file, '--node', node, '--component', 'agent', '--status-listen', '127.0.0.1:0']
  return spawnServing(t, up)
}

t.test(
  'one agent acts; when it is killed another one publishes; one that is started anew waits for nobody',
  async (t) => {
    const broker = await LoopbackBroker.start(t)
    const [milano, paris] = [new SiteFolder(t, 'milano', GATEWAYS), new SiteFolder(t, 'paris')]
    for (const site of [milano, paris]) {
      t.equal((await runCli(['join', '--site', site.file, '--token', await broker.token()])).code, 0)
    }
    for (const site of [milano, paris]) site.write('objects/shop.yaml', SHOP)
    agentOf(t, paris, 'w1')
    const first = agentOf(t, milano, 'gw1')
    await eventually(() => first.said().includes('"msg":"agent started"'), { ...LONG, say: 'the first one acts' })
    const second = agentOf(t, milano, 'gw2')
    await eventually(() => /gw1_\w+ is leading/.test(second.said()), { ...LONG, say: 'the second one stands by' })
    t.notMatch(second.said(), '"msg":"agent started"')

    first.kill('SIGKILL')
    milano.write('objects/web.yaml', WEB)
    await eventually(() => second.said().includes('"msg":"agent started"'), { ...LONG, say: 'the second one acts' })
    await eventually(() => paris.has('state/objects/ServiceImport/shop/web.json'), { ...LONG, say: 'paris knows it' })

    second.kill('SIGKILL')
    await once(second, 'close')
    const anew = agentOf(t, milano, 'gw2')
    await eventually(() => anew.said().includes('"msg":"agent started"'), { ...LONG, say: 'it acts again' })
    t.notMatch(anew.said(), 'is leading', 'without waiting for the Lease of the one before it')

    const standby = agentOf(t, milano, 'gw1')
    await eventually(() => /gw2_\w+ is leading/.test(standby.said()), { ...LONG, say: 'gw1 stands by' })
    const ends = [anew, standby].map((agent) => once(agent, 'close'))
    t.equal((await runCli(['leave', '--yes', '--site', milano.file])).code, 0)
    t.same(await Promise.all(ends), [
      [0, null],
      [0, null],
    ])
    // The temporary file of a killed process is not an object.
    const left = milano.objects().filter((file) => !/\/\.[^/]+\.tmp$/.test(file))
    t.notMatch(left.join(' '), /Membership|Cluster|Lease|ServiceImport/, 'nothing of the clusterset is left')
  },
)

t.test(
  'a file system without hard links: the only agent of a site acts all the same, one of several does not',
  async (t) => {
    const api = new MemoryApi({ clock: new SystemClock() })
    t.teardown(() => api.close())
    api.put(membership('milano', 'joined'))
    const logger = new CapturingLogger()
    const refusal = new ClusterApiError('Forbidden', 'no hard links')
    const leases = { read: () => Promise.resolve(undefined), write: () => Promise.reject(refusal) }
    const deps = { api, clock: new SystemClock(), logger, leases }
    const acts = async (alone: boolean): Promise<boolean> => {
      const stop = new AbortController()
      let acted = false
      const act = (): Promise<void> => {
        acted = true
        return Promise.resolve()
      }
      const running = actInTurn(deps, { node: 'gw1', alone, retryMs: 20 }, act, stop.signal)
      const refused = (): boolean => acted || logger.messages('warn').includes('cannot renew the lease; retrying')
      await eventually(refused, { say: 'it has tried' })
      stop.abort()
      await running
      return acted
    }
    t.equal(await acts(false), false)
    t.equal(await acts(true), true)
  },
)

t.test('dns of several nodes: ready where it has none of the addresses, and where a port is taken', async (t) => {
  const broker = await LoopbackBroker.start(t)
  // The test holds the TCP port too, so that no other process takes it before the DNS server needs it.
  const connections = createServer().listen(0, '127.0.0.1')
  await once(connections, 'listening')
  const { port } = connections.address() as AddressInfo
  const other = createSocket('udp4').bind(port, '127.0.0.1')
  await once(other, 'listening')
  const listen = `  dns: { listen: ["192.0.2.77:${port}", "127.0.0.1:${port}"] }\n`
  const site = new SiteFolder(t, 'milano', GATEWAYS + listen)
  t.equal((await runCli(['join', '--site', site.file, '--token', await broker.token()])).code, 0)
  const status = await freePort()
  const up = ['up', '--site', site.file, '--node', 'gw2', '--component', 'dns', '--status-listen', `:${status}`]
  const dns = spawnServing(t, up)
  await eventually(() => dns.said().includes('"reason":"ListenPortTaken"'), { ...LONG, say: 'it tells and waits' })
  await eventually(async () => (await fetch(`http://127.0.0.1:${status}/readyz`)).ok, LONG)
  t.equal(dns.exitCode, null, 'it ends nothing else of its process')
  other.close()
  connections.close()
  await eventually(() => dns.said().includes('"msg":"listening"'), { ...LONG, say: 'it listens where it can' })
  t.match(dns.said(), `cannot listen on 192.0.2.77:${port}/udp: this node does not have the address; waiting for it`)
  t.notMatch(dns.said(), 'ListenAddressMissing', 'the address of another node is no trouble')
})
