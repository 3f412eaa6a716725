/** A machine becomes a node of a site by one file, and continues without the hub once it has its certificate. */
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openSiteNode, type SiteNode } from '../../compose/hub/open-site-node.ts'
import { componentsOf } from '../../compose/site/run-site.ts'
import type { NodeFile } from '../../kubeapi/files/node-file.ts'
import { parseNodeFile } from '../../kubeapi/files/node-file.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { SiteFolder, nodeYaml } from '../cli/site-folder.ts'
import { runCli } from '../cli/run-cli.ts'
import { HubSite } from '../kubeapi/remote/hub-site.ts'
import { failure } from '../support/failure.ts'

const { signal } = new AbortController()
const SITE_YAML = `apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: milano }
spec:
  podCIDRs: [10.42.0.0/16]
  gateways: [{ node: gw1 }, { node: gw2 }]
  hub: { listen: [127.0.0.1:9474] }
  dns: { listen: [10.42.2.1:53] }
  objects: /srv/site/objects
`

async function openNode(t: Test, file: NodeFile): Promise<SiteNode & { readonly logger: CapturingLogger }> {
  const logger = new CapturingLogger()
  const node = await openSiteNode({ clock: new SystemClock(), logger }, file, signal)
  t.teardown(() => node.api.close())
  return { ...node, logger }
}

t.test('it enrols once, keeps its key, and needs no hub later', async (t) => {
  const site = await HubSite.open(t, { siteText: SITE_YAML })
  const file = site.nodeFile('gw2', await site.store.invite('gw2', 60_000))
  const node = await openNode(t, file)
  t.match(node.config, { name: 'milano', state: file.state, objects: join(file.state, 'objects') })
  const key = join(file.state, 'node', 'node.key')
  t.equal(statSync(key).mode & 0o777, 0o600)
  const stored = readFileSync(key, 'utf8')
  const hubFiles = readdirSync(join(site.site.state, 'hub'), { recursive: true, withFileTypes: true })
  for (const one of hubFiles.filter((entry) => entry.isFile())) {
    const text = readFileSync(join(one.parentPath, one.name), 'utf8')
    t.notOk(text.includes(stored.slice(30, 100)), `the key of the node is not in ${one.name} of the hub`)
    t.notOk(text.includes(file.token.split('.')[1] ?? ''), `nor is the secret in ${one.name}`)
  }
  await node.api.cache('Service').whenSynced(AbortSignal.timeout(5000))
  await node.api.close()
  await site.stop()
  const again = await openNode(t, file)
  t.match(again.logger.messages('warn').join('\n'), /the site file is the last one that the hub gave/)
  t.equal(readFileSync(key, 'utf8'), stored)
  t.same(again.config.podCIDRs, ['10.42.0.0/16'])
})

t.test(
  'the site file was edited to something wrong: a node starts with what it had, else without one gateway',
  async (t) => {
    const siteText = SITE_YAML.replace('{ node: gw1 }', '{ node: gw1, publicAddress: 192.0.2 }')
    const site = await HubSite.open(t, { siteText })
    const first = site.nodeFile('gw2', await site.store.invite('gw2', 60_000))
    const node = await openNode(t, first)
    t.match(node.config.gateways, [{ node: 'gw1', publicAddress: '192.0.2' }, { node: 'gw2' }])
    t.match(node.logger.messages('warn').join(), /the gateways in these lines take no lane/)
    await node.api.close()
    writeFileSync(join(first.state, 'site.yaml'), SITE_YAML)
    const again = await openNode(t, first)
    t.same(again.config.gateways, [{ node: 'gw1' }, { node: 'gw2' }])
    t.match(again.logger.messages('warn').join(), /its last valid content counts/)
    t.equal(readFileSync(join(first.state, 'site.yaml'), 'utf8'), SITE_YAML)
  },
)

t.test('without a hub, or with a used file, it says what to do', async (t) => {
  const site = await HubSite.open(t, { siteText: SITE_YAML })
  const file = site.nodeFile('gw2', await site.store.invite('gw2', 60_000))
  await openNode(t, file)
  const copied = { ...file, state: `${file.state}-copy` }
  t.match(await failure(openNode(t, copied)), {
    message: /no certificate for node gw2: .* was used already, for another key/,
    hint: /sealane site invite gw2/,
    reason: 'HubRefused',
  })
  const late = site.nodeFile('gw3', await site.store.invite('gw3', 60_000))
  await site.stop()
  t.match(await failure(openNode(t, late)), { hint: /spec\.hub\.listen/, reason: 'HubUnreachable' })
  await site.start()
  t.equal((await openNode(t, late)).node, 'gw3', 'the invitation was not used up')
  const renewed = { ...file, token: await site.store.invite('gw2', 60_000) }
  t.equal((await openNode(t, renewed)).node, 'gw2', 'a new file replaces key and certificate')
})

t.test('a node without the folder runs neither agent nor hub', async (t) => {
  const site = await HubSite.open(t, { siteText: SITE_YAML })
  const { config, keep } = await openNode(t, site.nodeFile('gw2', await site.store.invite('gw2', 60_000)))
  const remote = { node: 'gw2', keep }
  t.same(componentsOf({ config, remote }, 'gw2'), ['dns', 'gateway', 'routeagent'])
  t.same(componentsOf({ config, remote }, 'worker'), ['routeagent'])
  t.same(componentsOf({ config }, 'gw1'), ['hub', 'agent', 'dns', 'gateway', 'routeagent'])
})

t.test('sealane site invite writes the file with mode 0600, and refuses what cannot work', async (t) => {
  const site = new SiteFolder(t, 'milano', '  hub: { listen: ["127.0.0.1:9474"] }\n')
  site.write('objects/gw2.yaml', nodeYaml('gw2', '192.168.1.2'))
  const out = site.path('gw2.yaml')
  const ended = await runCli(['site', 'invite', 'gw2', '--site', site.file, '--out', out])
  t.match(ended, { code: 0, stdout: /sealane up --site .*gw2\.yaml --node gw2/ })
  t.equal(statSync(out).mode & 0o777, 0o600)
  const text = readFileSync(out, 'utf8')
  t.match(parseNodeFile(out, text), { node: 'gw2', site: 'milano', hubs: [{ host: '127.0.0.1', port: 9474 }] })
  const again = await runCli(['site', 'invite', 'gw2', '--site', site.file, '--out', out])
  t.match(again, { code: 1, stderr: /already exists/ })
  t.equal(readFileSync(out, 'utf8'), text, 'and it is still valid')
  t.match(await runCli(['export', 'web', '-n', 'shop', '--site', out]), {
    code: 1,
    stderr: /needs the folder of the site/,
  })
  const failover = ['verify', '--service', 'shop/web', '--failover']
  t.match(await runCli([...failover, '--site', out]), { stderr: /needs the folder of the site/ }, 'it drains a gateway')
  const unknown = await runCli(['site', 'invite', 'gw9', '--site', site.file, '--out', site.path('gw9.yaml')])
  t.match(unknown, { code: 1, stderr: /this site has no such Node: expected one of gw, gw2/ })
  t.match(await runCli(['site', 'revoke', 'gw9', '--site', site.file]), { code: 1, stderr: /no node has a cert/ })
  const without = new SiteFolder(t)
  t.match(await runCli(['site', 'invite', 'gw2', '--site', without.file]), { code: 1, stderr: /spec\.hub\.listen/ })
})
