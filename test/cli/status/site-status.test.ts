/** `sealane status` of a site: screens, documents and exit codes, whatever its folders and pages contain. */
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import t, { type Test } from 'tap'
import { parse as parseYaml, parseAllDocuments } from 'yaml'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { HEALTHY_BROKER } from '../../support/objects/member-facts.ts'
import { LoopbackBroker } from '../loopback-broker.ts'
import { runCli, startCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'
import { cutOff, siteWith } from './site-with.ts'

/** Serves a status page, and returns its host:port. */
async function page(t: Test, answer: { readonly code?: number; readonly text: string }): Promise<string> {
  const server = createServer((_request, response) => {
    response.writeHead(answer.code ?? 200)
    response.end(answer.text)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

const AGENT = {
  part: 'site',
  version: '0.1.0',
  ready: true,
  broker: { ...HEALTHY_BROKER, certificateEnds: '2036-01-01T00:00:00Z' },
}

t.test('a healthy site: one screen, exit code 0, a second time as well', async (t) => {
  const site = await siteWith(t)
  const at = await page(t, { text: JSON.stringify(AGENT) })
  for (const time of ['first', 'second']) {
    const { code, stdout, stderr } = await runCli(['status', '--site', site.file, '--ask', at])
    t.same({ code, stderr }, { code: 0, stderr: '' }, time)
    const [head = '', versions = '', brokerLine = ''] = stdout.split('\n')
    t.equal(head, 'milano in clusterset demo: healthy')
    t.equal(versions, 'versions     0.1.0 (cli, gateway ×2, routeagent ×3, site)')
    t.match(brokerLine, /^broker {7}connected for \d+[dhms0-9]*, 3 addresses known, certificate ends in \d+d$/)
    t.match(stdout, /^exports {6}1: 1 exported\nimports {6}1: 1 can be called\n/m)
    t.match(stdout, /^paris {4}reached {4}4\/4 {2}12\.5 ms {3}0 % {2}1420 {2}heard {3}\ds ago\n/m)
    t.match(stdout, /\nno problems\n$/)
    t.ok(stdout.split('\n').length <= 24, 'it fits a terminal')
  }
})

t.test('a cluster that is cut off: exit code 2, cause first, with what follows and what to do', async (t) => {
  const site = await siteWith(t, cutOff)
  const at = await page(t, { text: JSON.stringify(AGENT) })
  const { code, stdout } = await runCli(['status', '--site', site.file, '--ask', at])
  t.equal(code, 2)
  t.match(stdout, /^milano in clusterset demo: down\n/)
  const problem = stdout.slice(stdout.indexOf('down: '))
  t.equal(
    problem.replace(site.file, 'FILE'),
    `down: ClusterCutOff, Cluster paris
  seen:  none of 4 links is up: open UDP 4500 at the other gateway (state of FILE)
  hence: LaneProbeTimeout ×4 (Link gw0 lane 0 to paris lane 0, …)
  to do: Check the condition \`Connected\` of the Cluster, and \`sealane show connections\`.
`,
  )
})

t.test('JSON and YAML are one document, with the same fields', async (t) => {
  const site = await siteWith(t, cutOff)
  const at = await page(t, { text: JSON.stringify(AGENT) })
  const show = (format: string) => runCli(['status', '--site', site.file, '--ask', at, '-o', format])
  const [json, yaml] = [await show('json'), await show('yaml')]
  const [a, b] = [JSON.parse(json.stdout) as Record<string, unknown>, parseYaml(yaml.stdout) as Record<string, unknown>]
  t.same(Object.keys(a).sort(), Object.keys(b).sort())
  t.same(Object.keys(a), [
    ...['format', 'health', 'takenAt', 'target', 'cluster', 'clusterset', 'phase', 'exposure'],
    ...['versions', 'broker', 'nodes'],
    ...['gateways', 'clusters', 'links', 'clusterDns', 'exports', 'imports', 'problems'],
  ])
  t.match(a, { format: 1, health: 'down', cluster: 'milano', target: 'site milano' })
  t.match(a['problems'], [{ reason: 'ClusterCutOff', consequences: [{ reason: 'LaneProbeTimeout', count: 4 }] }])
  t.same([json.code, yaml.code], [2, 2])
})

t.test('pages that are down, dead, foreign or hostile: told, and never waited for', async (t) => {
  const site = await siteWith(t)
  const dead = createTcpServer(() => undefined)
  await new Promise<void>((resolve) => dead.listen(0, '127.0.0.1', resolve))
  t.teardown(() => dead.close())
  const rows: readonly (readonly [at: string, reason: string, seen: RegExp])[] = [
    ['127.0.0.1:1', 'NothingRuns', /^nothing listens at 127\.0\.0\.1:1$/],
    [`127.0.0.1:${(dead.address() as AddressInfo).port}`, 'NotAnswered', /^no answer within 700ms$/],
    [await page(t, { code: 404, text: 'try /readyz\n' }), 'NotAnswered', /answers 404/],
    [await page(t, { text: '<html>' }), 'NotAnswered', /answers no JSON/],
    [await page(t, { text: 'x'.repeat(3 << 20) }), 'NotAnswered', /more than a status page/],
    [await page(t, { text: '[1,2]' }), 'NotReadable', /^report\.part: /],
    [await page(t, { text: '{"part":7}' }), 'NotReadable', /^report\.part: /],
    [await page(t, { text: '{"__proto__":{"part":"agent"},"version":{}}' }), 'NotReadable', /^report\./],
  ]
  for (const [at, reason, seen] of rows) {
    const began = performance.now()
    const { stdout } = await runCli(['status', '--site', site.file, '--ask', at, '-o', 'json'])
    t.ok(performance.now() - began < 5000, `${reason}: it is not waited for`)
    const { problems } = JSON.parse(stdout) as { problems: { reason: string; seen: string }[] }
    t.match(problems, [{ reason, seen }], at)
  }
})

t.test('names and messages of others do not steer the terminal', async (t) => {
  const evil = '\u001b[2Jnothing to see\u202e\nparis is fine'
  const site = await siteWith(t, (object) => {
    const changed = cutOff(object)
    if (changed.kind !== 'Gateway' || changed.status === undefined) return changed
    const connections = changed.status.connections.map((one) => ({ ...one, message: evil }))
    return { ...changed, status: { ...changed.status, connections } }
  })
  for (const format of ['table', 'wide']) {
    const { stdout } = await runCli(['status', '--site', site.file, '--ask', '127.0.0.1:1', '-o', format])
    t.notMatch(stdout, /[\u001b\u202e]/, format)
    t.match(stdout, 'nothing to see??paris is fine')
  }
})

t.test('a folder that cannot be read is a problem, not silence', async (t) => {
  const site = await siteWith(t)
  site.write('state/objects/Gateway/_/gw0.json', '{"kind":')
  const { code, stdout } = await runCli(['status', '--site', site.file, '--ask', '127.0.0.1:1', '-o', 'json'])
  const { problems } = JSON.parse(stdout) as { problems: { reason: string; subject: { kind: string } }[] }
  t.equal(code, 1)
  t.match(problems[0], { reason: 'NotReadable', subject: { kind: 'State' } })
})

t.test('a site that has not joined is down; what cannot be looked at has exit code 3', async (t) => {
  const site = new SiteFolder(t)
  const empty = await runCli(['status', '--site', site.file, '--ask', '127.0.0.1:1'])
  t.equal(empty.code, 2)
  t.match(empty.stdout, /^not joined: down\n/)
  const rows: readonly (readonly [args: readonly string[], said: RegExp])[] = [
    [['--bogus'], /^sealane: unknown option '--bogus'\nsee: sealane status --help\n$/],
    [['-o', 'xml'], /^sealane: --output "xml": expected table, wide, json, yaml\n/],
    [['--timeout', 'soon'], /^sealane: --timeout /],
    [['--ask', 'nowhere'], /^sealane: --ask "nowhere": /],
    [['--site', '/nonexistent/site.yaml'], /no such file/],
    [['--kubeconfig', '/nonexistent/config'], /nonexistent/],
    [['--site', site.file, '--context', 'c1'], /cannot be used with/],
    [['--ask', '127.0.0.1:1', '--context', 'c1'], /cannot be used with/],
  ]
  for (const [args, said] of rows) {
    const { code, stdout, stderr } = await runCli(['status', ...args])
    t.same({ code, stdout }, { code: 3, stdout: '' }, args.join(' '))
    t.match(stderr, said)
  }
})

t.test('--watch goes on until it is interrupted, and ends with what it saw last', async (t) => {
  const site = await siteWith(t, cutOff)
  const at = await page(t, { text: JSON.stringify(AGENT) })
  for (const format of ['json', 'yaml', 'table']) {
    let seen = 0
    const running = startCli(['status', '--site', site.file, '--ask', at, '--watch', '-o', format])
    await eventually(() => (seen = running.answers().split('ClusterCutOff').length - 1) >= 2, { deadlineMs: 15_000 })
    running.stop()
    const { code, stdout, stderr } = await running.result
    t.same({ code, stderr }, { code: 2, stderr: '' }, `${format}: ${seen} looks`)
    if (format === 'json') for (const line of stdout.trim().split('\n')) t.match(JSON.parse(line), { health: 'down' })
    if (format === 'yaml') for (const one of parseAllDocuments(stdout)) t.match(one.toJS(), { health: 'down' })
  }
})

t.test('a site that has joined and on which nothing was started: that comes first, in words of a site', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'milano', '  gateways: [{ node: gw1 }]\n')
  for (const verb of ['status', 'diagnose']) {
    const { stdout } = await runCli([verb, '--site', site.file, '--ask', '127.0.0.1:1'])
    t.match(stdout, /NoMembership, .*\n {2}seen: {2}this site has not joined .*\n(.*\n)*? {2}to do: Join: /, verb)
  }
  t.equal((await runCli(['join', '--site', site.file, '--token', await broker.token()])).code, 0)
  for (const verb of ['status', 'diagnose']) {
    const { code, stdout } = await runCli([verb, '--site', site.file, '--ask', '127.0.0.1:1'])
    t.equal(code, 2, verb)
    const [first = ''] = stdout.split('\n').filter((line) => /^(down|degraded|notice): /.test(line))
    t.equal(first, 'down: SiteNotStarted, Cluster milano', stdout)
    t.match(stdout, 'start `sealane up` on gw1, then on the other nodes')
    t.equal(stdout.match(/^(down|degraded): /gm)?.length, 1, 'everything else follows from it')
    t.notMatch(stdout, /kubectl|pods?\b|label/, 'words of a site')
  }
})

t.test('what is exposed: named, and all pods are a notice that fails nothing', async (t) => {
  const rows: readonly [exposure: string | undefined, line: string][] = [
    ['exports', 'exposed      exported services'],
    ['nothing', 'exposed      nothing'],
    ['pods', 'exposed      all pods'],
    [undefined, 'exposed      all pods'],
  ]
  for (const [exposure, line] of rows) {
    const site = await siteWith(t, (object) => {
      if (object.kind !== 'Membership') return object
      const { exposure: _before, ...spec } = object.spec
      return { ...object, spec: { ...spec, ...(exposure === undefined ? {} : { exposure }) } } as typeof object
    })
    const at = await page(t, { text: JSON.stringify(AGENT) })
    const { code, stdout } = await runCli(['status', '--site', site.file, '--ask', at])
    t.equal(code, 0, String(exposure))
    t.match(stdout, `${line}\n`)
    const notice =
      /notice: AllPodsExposed, Membership self\n.*all members may call all pods.*\n.*sealane join --expose exports/
    t.equal(notice.test(stdout), line.endsWith('all pods'), stdout)
  }
})

t.test(
  'what is drained is a notice, a traffic policy that is not valid a problem; a gathered file says both',
  async (t) => {
    const site = await siteWith(t, (object) =>
      object.kind === 'Cluster' && object.metadata.name === 'paris'
        ? { ...object, spec: { ...object.spec, drained: true } }
        : object,
    )
    const at = await page(t, { text: JSON.stringify(AGENT) })
    const args = ['--site', site.file, '--ask', at]
    const drained = await runCli(['status', ...args])
    t.match(drained, {
      code: 0,
      stdout: /notice: ClusterDrained, Cluster paris\n.*it gets no new connections while others/,
    })
    const policy = {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'TrafficPolicy',
      metadata: { name: 'web', namespace: 'shop' },
      spec: { order: [{ local: {} }] },
    }
    site.write('objects/policy.yaml', JSON.stringify(policy))
    const init = { objects: site.path('objects'), state: site.path('state') }
    const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
    const policies = api.cache('TrafficPolicy')
    const signal = new AbortController().signal
    await policies.whenSynced(signal)
    const read = policies.get('web', 'shop')
    const message = 'spec.order: "9 tiers": expected at most 8'
    const valid = { type: 'Valid', status: 'False', reason: 'TrafficPolicyInvalid', message } as const
    const conditions = [{ ...valid, lastTransitionTime: new Date().toISOString() }]
    if (read !== undefined) await api.applyStatus({ ...read, status: { conditions } })
    await api.close()
    const line = /degraded: TrafficPolicyInvalid, TrafficPolicy shop\/web.*\n.*spec.order: "9 tiers"/
    t.match(await runCli(['status', ...args]), { code: 1, stdout: line })
    const file = site.path('bundle.tar.gz')
    t.equal((await runCli(['gather', ...args, '-o', file])).code, 0)
    t.match(await runCli(['status', '--bundle', file]), { code: 1, stdout: line })
  },
)
