/** `sealane up` in a joined site: it starts, fails to start, and stops. The test does not touch the kernel. */
import { once } from 'node:events'
import { createSocket } from 'node:dgram'
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { componentsOf } from '../../compose/site/run-site.ts'
import { parseSiteFile } from '../../kubeapi/files/site-file.ts'
import { MEMBERSHIP_NAME, type Membership } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { FakeApiServer } from '../support/fake-api-server.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { type CliResult, runCli, spawnCli, spawnServing, startCli } from '../cli/run-cli.ts'
import { SiteFolder, siteYaml } from '../cli/site-folder.ts'

async function joinedSite(t: Test, spec = ''): Promise<SiteFolder> {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'milano', spec)
  const { code } = await runCli(['join', '--site', site.file, '--token', await broker.token()])
  t.equal(code, 0)
  return site
}

const notRoot = process.getuid?.() === 0 ? false : 'needs root'
const GATEWAY = '  gateways: [{ node: gw, lane: 0 }]\n'

t.test('what a node needs', (t) => {
  const parts = (spec: string, node: string): string => {
    const config = parseSiteFile('site.yaml', siteYaml('milano', spec))
    return componentsOf({ config }, node).join()
  }
  const dns = '  dns: { listen: ["10.42.0.1:53"] }\n'
  t.equal(parts(GATEWAY + dns, 'gw'), 'agent,dns,gateway,routeagent')
  t.equal(parts(GATEWAY, 'gw'), 'agent,gateway,routeagent', 'no place to listen, no dns')
  t.equal(parts(GATEWAY + dns, 'w1'), 'routeagent')
  const several = '  gateways: [{ node: gw, lane: 0 }, { node: gw2, lane: 1 }, { node: gw3 }]\n'
  t.equal(parts(several, 'gw2'), 'agent,gateway,routeagent', 'what one is lost with, another one has')
  t.equal(parts(several + dns, 'gw3'), 'agent,dns,gateway,routeagent')
  t.equal(parts(several + dns, 'w1'), 'routeagent')
  t.end()
})

t.test('the agent serves until it is stopped, and that is no failure', async (t) => {
  const site = await joinedSite(t)
  const port = await freePort()
  const up = ['up', '--site', site.file, '--node', 'gw', '--component', 'agent', '--component', 'agent']
  const running = startCli([...up, '--status-listen', `:${port}`, '--log-level', 'silent'])
  await eventually(async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok)
  const plan = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}/debug/plan?name=agent`)).text()
  await eventually(async () => (await plan()).startsWith('broker: connected\n'), { say: 'it has found the broker' })
  running.stop()
  t.same(await running.result, { code: 0, stdout: '', stderr: '' })
  await t.rejects(fetch(`http://127.0.0.1:${port}/healthz`), 'the status page is gone')
})

/** Returns `level message: why` for each log line of a process. */
function logged(text: string): string[] {
  const lines = text.split('\n').slice(0, -1)
  const entries = lines.map((line) => JSON.parse(line) as Record<'level' | 'msg' | 'why', string>)
  return entries.map(({ level, msg, why }) => `${level} ${msg}: ${why}`)
}

t.test('the broker is not there when the agent starts: it says so, and its replica brings nothing back', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const [milano, paris] = [new SiteFolder(t), new SiteFolder(t, 'paris')]
  for (const site of [milano, paris]) await runCli(['join', '--site', site.file, '--token', await broker.token()])
  const port = await freePort()
  const status = async (path: string): Promise<string> => (await fetch(`http://127.0.0.1:${port}${path}`)).text()
  const up = ['up', '--site', milano.file, '--node', 'gw', '--component', 'agent', '--status-listen', `:${port}`]
  const knows = (): boolean => milano.has('state/objects/Cluster/_/paris.json')
  const first = startCli([...up, '--log-level', 'silent'])
  await eventually(knows, { say: 'it has received paris' })
  first.stop()
  await first.result

  await broker.stop()
  // The saved replica still has paris, but another agent of the site may have learned since that paris is gone.
  milano.remove('state/objects/Cluster/_/paris.json')
  const agent = spawnServing(t, up)
  const why = `broker at 127.0.0.1:${broker.port}: connection refused: nothing listens there`
  await eventually(() => logged(agent.said()).includes(`info the watch was interrupted; retrying: ${why}`), {
    say: 'the log tells it',
  })
  t.equal(await status('/readyz'), 'ready\n')
  const connection = async (): Promise<string | undefined> => (await status('/debug/plan?name=agent')).split('\n')[0]
  await eventually(async () => (await connection()) === `broker: ${why}`, { say: 'the plan tells it' })
  t.equal(agent.exitCode, null, 'it goes on')
  t.notOk(knows(), 'what was saved brings nothing back')

  await broker.start()
  await eventually(async () => (await connection()) === 'broker: connected', {
    deadlineMs: 15_000,
    say: 'and finds the broker once it is there',
  })
  await eventually(knows, { deadlineMs: 10_000, say: 'which says that paris is a member' })
  agent.kill('SIGTERM')
  t.same(await once(agent, 'close'), [0, null])
})

t.test('the site file was edited to something wrong: a part starts with what was valid last', async (t) => {
  const site = await joinedSite(t)
  const good = site.read('site.yaml')
  const bad = (rest = ''): void =>
    site.write('site.yaml', siteYaml('milano', `  gateways: [{ node: gw, publicAddress: 192.0.2 }]\n${rest}`))
  const starts = async (): Promise<void> => {
    const port = await freePort()
    const up = ['up', '--site', site.file, '--node', 'gw', '--component', 'agent', '--status-listen', `:${port}`]
    const running = startCli([...up, '--log-level', 'silent'])
    await eventually(async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok)
    running.stop()
    t.same(await running.result, { code: 0, stdout: '', stderr: '' })
  }
  bad()
  await starts()
  t.notOk(site.has('state/site.yaml'), 'one row is wrong: it starts, and keeps nothing')
  site.write('site.yaml', good)
  await starts()
  t.equal(site.read('state/site.yaml'), good)
  bad('  openHostPorts: [tcp]\n')
  await starts()
  t.equal(site.read('state/site.yaml'), good)
  t.match(await runCli(['show', 'services', '--site', site.file]), { code: 1, stderr: /:7:41: spec.gateways\[0\]/ })
})

t.test('the port of dns is taken', async (t) => {
  const socket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => socket.close())
  const { port } = socket.address()
  const site = await joinedSite(t, `  dns: { listen: ["127.0.0.1:${port}"] }\n`)
  const up = ['up', '--site', site.file, '--node', 'gw', '--component', 'dns', '--log-level', 'silent']
  t.same(await runCli([...up, '--status-listen', ':0']), {
    code: 1,
    stdout: '',
    stderr: `sealane: dns: cannot listen on 127.0.0.1:${port}/udp: another process uses the port\n`,
  })
})

t.test('dns without a place to listen', async (t) => {
  const site = await joinedSite(t)
  site.write('site.yaml', siteYaml('milano'))
  const up = ['up', '--site', site.file, '--node', 'gw', '--component', 'dns', '--log-level', 'silent']
  const { code, stderr } = await runCli([...up, '--status-listen', ':0'])
  t.equal(stderr, `sealane: spec.dns.listen of ${site.file}: expected at least one address:port such as 10.42.0.1:53\n`)
  t.equal(code, 1)
})

t.test('a dry run prints what would be applied, and applies nothing', { skip: notRoot }, async (t) => {
  const site = await joinedSite(t, GATEWAY)
  const { code, stdout, stderr } = await spawnCli(['up', '--site', site.file, '--node', 'w1', '--dry-run'])
  t.same({ code, stderr }, { code: 0, stderr: '' })
  t.match(stdout, '# NodeNotUsable: Node w1 does not exist\n')
  t.match(stdout, '# nft -f -\nadd table ip sealane_node\n')
  const own = ['Cluster/_/milano.json', 'Membership/_/self.json', 'Node/_/gw@user.json']
  t.same(site.objects(), own, 'no RouteAgent object either')
})

t.test('a dry run of an example before it joins and before anything runs', { skip: notRoot }, async (t) => {
  const folder = temporaryFolder(t)
  cpSync(join(import.meta.dirname, '../../examples/three-sites/milano'), folder, { recursive: true })
  const dry = (node: string): Promise<CliResult> =>
    spawnCli(['up', '--site', join(folder, 'site.yaml'), '--node', node, '--dry-run'])
  const { code, stdout, stderr } = await dry('gw')
  t.same({ code, stderr }, { code: 0, stderr: '' })
  t.match(stdout, /^# this site has not joined: /)
  for (const text of ['table ip sealane_gateway', 'table ip sealane_node', 'rule add', 'sealane0'])
    t.match(stdout, text)
  const site = join(folder, 'site.yaml')
  writeFileSync(site, readFileSync(site, 'utf8').replaceAll(/ +lane: \d\n/g, ''))
  t.match(await dry('gw2'), { code: 0, stdout: /sealane0/ }, 'any lane: the first that is free')
  t.notOk(existsSync(join(folder, 'state', 'objects', 'Cluster')), 'no object of Sealane is written')
})

t.test('where the DNS of a site listens opens nothing to other clusters', { skip: notRoot }, async (t) => {
  const site = await joinedSite(t, `${GATEWAY}  openHostPorts: [tcp/9100]\n  dns: { listen: ['10.42.0.1:53'] }\n`)
  const { stdout } = await spawnCli(['up', '--site', site.file, '--node', 'gw', '--dry-run'])
  t.match(stdout, 'tcp dport 9100', 'what openHostPorts names is open')
  t.notMatch(stdout, /dport 53\b/)
})

const MEMBERSHIP: Membership = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Membership',
  metadata: { name: MEMBERSHIP_NAME },
  spec: {
    clusterId: 'milano',
    phase: 'joined',
    clusterset: 'set',
    globalRange: '244.0.0.0/8',
    clustersetIpRange: '245.0.0.0/16',
  },
}

t.test('in a real cluster: not ready before the cluster has joined, and its requests are counted', async (t) => {
  const server = new FakeApiServer({})
  await server.start(t)
  const kubernetes = `  kubernetes: { kubeconfig: ${server.kubeconfig} }\n`
  const site = new SiteFolder(t, 'milano', `${kubernetes}  dns: { listen: ["127.0.0.1:${await freePort()}"] }\n`)
  const port = await freePort()
  const status = async (path: string): Promise<string> => (await fetch(`http://127.0.0.1:${port}${path}`)).text()
  const up = ['up', '--site', site.file, '--node', 'n1', '--component', 'dns', '--log-level', 'silent']
  const running = startCli([...up, '--status-listen', `:${port}`])
  await eventually(
    async () => (await status('/readyz')) === 'membership: waiting for this cluster to join a clusterset\n',
  )
  await eventually(() => server.watching('memberships') === 1, { say: 'it follows memberships' })
  server.objects.put(server.place('Membership', MEMBERSHIP_NAME), { ...MEMBERSHIP })
  await eventually(async () => (await status('/readyz')) === 'ready\n')
  const metrics = await status('/metrics')
  for (const line of [
    'sealane_kube_lists_total{kind="Membership",component="dns"} 1',
    'sealane_kube_watch_events_total{kind="Membership",component="dns"} 1',
    'sealane_kube_cached_objects{kind="Membership",component="dns"} 1',
  ]) {
    t.match(metrics, line)
  }
  running.stop()
  t.same(await running.result, { code: 0, stdout: '', stderr: '' })
})
