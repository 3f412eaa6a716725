/** The output of `show`, `export` and `unexport` for people and for programs, and the objects that they write. */
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import t, { type Test } from 'tap'
import { FileApi } from '../../kubeapi/files/file-api.ts'
import { parse as parseYaml } from 'yaml'
import type { KubeObject } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli, spawnCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'
import { connectProxy } from '../support/connect-proxy.ts'
import { clusterObject, endpointObject } from '../support/objects/cluster-objects.ts'

const GATEWAY: KubeObject = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Gateway',
  metadata: { name: 'gw' },
  status: {
    version: '0.1.0',
    lanes: [{ lane: 0, device: 'sealane0', mtu: 1420, driver: 'kernel' }],
    connections: [
      {
        cluster: 'paris',
        lane: 0,
        endpoint: 'paris-gw-0',
        state: 'up',
        message: '',
        asleep: true,
        usingAddress: '198.51.100.7:4500',
        usingNat: true,
        rttMs: 12.345,
        loss: 0.05,
        mtu: 1440,
        receiveMtu: 1216,
        handshakeAgeSeconds: 61.4,
        rxBytes: 1,
        txBytes: 2,
      },
      {
        cluster: 'tokyo',
        lane: 0,
        remoteLane: 1,
        endpoint: 'tokyo-gw-0',
        state: 'connecting',
        message: 'no answer yet',
        usingNat: false,
        rxBytes: 0,
        txBytes: 0,
      },
    ],
  },
}

const OBJECTS: readonly KubeObject[] = [
  clusterObject({
    id: 'paris',
    index: 2,
    podCIDRs: ['10.42.0.0/16'],
    serviceCIDRs: ['10.43.0.0/16'],
    globalCIDRs: ['244.1.0.0/16'],
    labels: { zone: 'a', region: 'eu' },
  }),
  clusterObject({ id: 'oslo', index: 3, podCIDRs: ['10.50.0.0/16'] }),
  endpointObject({
    cluster: 'paris',
    publicKey: 'xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=',
    candidates: [{ kind: 'public', address: '198.51.100.7', port: 4500 }],
  }),
  GATEWAY,
  {
    apiVersion: 'multicluster.x-k8s.io/v1beta1',
    kind: 'ServiceImport',
    metadata: { name: 'web', namespace: 'shop' },
    spec: { type: 'ClusterSetIP', ips: ['245.0.0.1'], ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
    status: { clusters: [{ cluster: 'paris' }, { cluster: 'tokyo' }] },
  },
]

async function filledSite(t: Test): Promise<SiteFolder> {
  const site = new SiteFolder(t)
  site.write('objects/web.yaml', 'apiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: shop }\n')
  const init = { objects: site.path('objects'), state: site.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  for (const object of OBJECTS) {
    await api.apply(object)
    if ('status' in object) await api.applyStatus(object)
  }
  await api.close()
  return site
}

t.test('tables for people', async (t) => {
  const site = await filledSite(t)
  const want: Record<string, string> = {
    clusters: `
CLUSTER  PODS          GLOBAL        SERVICES      LABELS
oslo     10.50.0.0/16  -             -             -
paris    10.42.0.0/16  244.1.0.0/16  10.43.0.0/16  region=eu,zone=a
`,
    endpoints: `
CLUSTER  NODE  LANE  CANDIDATES                PUBLIC KEY
paris    gw    0     public 198.51.100.7:4500  xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
`,
    connections: `
NODE  LANE  CLUSTER  FAR LANE  STATE       ADDRESS            RUNG              RTT  LOSS        MTU  HANDSHAKE  HEARD  MESSAGE
gw    0     paris    0         up, asleep  198.51.100.7:4500  direct, NAT  12.35 ms   5 %  1440/1216   61 s ago      -
gw    0     tokyo    1         connecting  -                  -                   -     -          -          -      -  no answer yet
`,
    services: `
NAMESPACE  NAME  TYPE          IP         PORTS   CLUSTERS
shop       web   ClusterSetIP  245.0.0.1  80/TCP  paris,tokyo
`,
  }
  for (const [view, table] of Object.entries(want)) {
    const { code, stdout, stderr } = await runCli(['show', view, '--site', site.file])
    t.equal(`\n${stdout}`, table, view)
    t.same({ code, stderr }, { code: 0, stderr: '' }, view)
  }
})

t.test('JSON and YAML for programs: the same whole objects', async (t) => {
  const site = await filledSite(t)
  for (const view of ['clusters', 'endpoints', 'connections', 'relays', 'services', 'exports']) {
    const show = (format: string) => runCli(['show', view, '--site', site.file, '-o', format])
    const [json, yaml] = [await show('json'), await show('yaml')]
    const value = JSON.parse(json.stdout) as { items: unknown[] }
    t.same(parseYaml(yaml.stdout), value, view)
    t.equal(json.stderr + yaml.stderr, '', `${view}: nothing on stderr, also when there are none`)
  }
  const { stdout } = await runCli(['show', 'connections', '--site', site.file, '-o', 'json'])
  t.match(JSON.parse(stdout), { items: [{ node: 'gw', cluster: 'paris', rttMs: 12.345 }, { state: 'connecting' }] })
})

t.test('export, twice, and unexport, twice', async (t) => {
  const site = await filledSite(t)
  const at = ['-n', 'shop', '--site', site.file]
  const rows: [string, string][] = [
    ['export', 'service shop/web exported\n'],
    ['export', 'service shop/web exported\n'],
    ['unexport', 'service shop/web is no longer exported\n'],
    ['unexport', 'service shop/web was not exported\n'],
  ]
  for (const [i, [verb, want]] of rows.entries()) {
    const { code, stdout, stderr } = await runCli([verb, 'web', ...at])
    t.same({ code, stdout, stderr }, { code: 0, stdout: want, stderr: '' }, `${i}: ${verb}`)
    t.equal(existsSync(site.path('objects/serviceexport-shop-web.yaml')), verb === 'export', `${i}: the file`)
    const shown = await runCli(['show', 'exports', '--site', site.file])
    const table = verb === 'export' ? /^NAMESPACE .*\nshop +web +- +- +- +- +-\n$/ : /^$/
    t.match(shown.stdout, table)
    t.equal(shown.stderr, verb === 'export' ? '' : 'none\n')
  }
  t.same(readdirSync(site.path('objects')), ['nodes.yaml', 'web.yaml'], 'the rest is as it was')
})

t.test('unexport while the broker is away says when it counts', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  site.write('objects/web.yaml', 'apiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: shop }\n')
  t.equal((await runCli(['join', '--site', site.file, '--token', await broker.token()])).code, 0)
  const at = ['web', '-n', 'shop', '--site', site.file]
  const gone = 'service shop/web is no longer exported\n'
  await runCli(['export', ...at])
  t.equal((await runCli(['unexport', ...at])).stdout, gone, 'the broker is there')
  await runCli(['export', ...at])
  await broker.stop()
  const later =
    'the broker cannot be reached from here: other members may still call it until the agent of this site reaches the broker again\n'
  t.same(await runCli(['unexport', ...at]), { code: 0, stdout: gone + later, stderr: '' })
})

t.test('unexport behind a proxy, and beside a port of another program', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const proxy = await connectProxy(t)
  const site = new SiteFolder(t)
  site.write('objects/web.yaml', 'apiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: shop }\n')
  const env = { HTTPS_PROXY: proxy.url }
  t.equal((await runCli(['join', '--site', site.file, '--token', await broker.token()])).code, 0)
  // The proxy alone knows the name.
  const known = site.path('state/identity/broker.json')
  writeFileSync(known, readFileSync(known, 'utf8').replaceAll(broker.address, `broker.test:${broker.port}`))
  const at = ['web', '-n', 'shop', '--site', site.file]
  const gone = 'service shop/web is no longer exported\n'
  const later =
    'the broker cannot be reached from here: other members may still call it until the agent of this site reaches the broker again\n'
  const unexport = async (how: Readonly<Record<string, string>>): Promise<string> => {
    await runCli(['export', ...at])
    return (await spawnCli(['unexport', ...at], { env: how })).stdout
  }
  proxy.asked.splice(0)
  t.equal(await unexport(env), gone, 'the broker answers through the proxy')
  t.strictSame(proxy.asked, [`broker.test:${broker.port}`])
  proxy.fault = 'HTTP/1.1 403 Forbidden'
  t.equal(await unexport(env), gone + later, 'a proxy that refuses')
  t.equal(await unexport({}), gone + later, 'without the proxy the name is unknown')
  await broker.stop()
  const other = createServer((socket) => socket.end('SSH-2.0-other\r\n'))
  await new Promise<void>((resolve) => other.listen(broker.port, '127.0.0.1', resolve))
  t.teardown(() => other.close())
  proxy.fault = undefined
  t.equal(await unexport(env), gone + later, 'a port that accepts is no broker')
})
