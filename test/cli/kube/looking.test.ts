/** Commands that only read: which cluster they use, how they end when it does not answer, and what they show. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { siteConfigMap } from '../../../install/plan-member.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { LoopbackBroker } from '../loopback-broker.ts'
import { type CliResult, runCli, spawnCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'

const SITE = `
apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: fake }
spec: { kubernetes: {}, podCIDRs: [10.42.0.0/16], serviceCIDRs: [10.43.0.0/16] }
`

/** Returns a member with a Gateway, and an import in two namespaces. */
async function installed(t: Test): Promise<FakeApiServer> {
  const server = await fakeApiServer(t)
  const config = siteConfigMap('sealane-system', SITE)
  const at = { resource: 'v1/configmaps', apiVersion: 'v1', kind: 'ConfigMap', namespace: 'sealane-system' }
  server.objects.put({ ...at, name: config.metadata.name }, { ...config })
  const gateway = server.place('Gateway', 'n1')
  server.objects.put(gateway, { metadata: {} })
  const status = { version: '0.1.0', lanes: [], connections: [] }
  server.objects.apply(gateway, { metadata: {}, status }, { manager: 'fake', force: true, status: true })
  for (const namespace of ['shop', 'bank']) {
    const spec = { type: 'ClusterSetIP', ports: [{ port: 80, protocol: 'TCP' }] }
    server.objects.put(server.place('ServiceImport', 'web', namespace), { metadata: {}, spec })
  }
  server.fault = ({ path }) => (path === '/version' ? { status: 200, body: { gitVersion: 'v1.36.0' } } : undefined)
  return server
}

function masked(server: FakeApiServer, { code, stdout, stderr }: CliResult): CliResult {
  const mask = (text: string): string =>
    text.replaceAll(server.kubeconfig, 'FILE').replaceAll(server.url, 'SERVER').replaceAll(/ +/g, ' ')
  return { code, stdout: mask(stdout), stderr: mask(stderr) }
}

const SERVICES =
  'NAMESPACE NAME TYPE IP PORTS CLUSTERS\nbank web ClusterSetIP - 80/TCP -\nshop web ClusterSetIP - 80/TCP -\n'

t.test('which cluster is meant: flags, then KUBECONFIG, then what is here, then ~/.kube/config', async (t) => {
  const server = await installed(t)
  const home = temporaryFolder(t)
  mkdirSync(join(home, '.kube'))
  const file = join(home, '.kube', 'config')
  writeFileSync(file, `${JSON.stringify(kubeconfigText(server))}\n`)
  const site = new SiteFolder(t)
  const empty = temporaryFolder(t)
  const none = { code: 0, stdout: '', stderr: 'none\n' }
  const byFlag = { code: 0, stdout: SERVICES, stderr: '' }
  const by = (how: string, path = 'FILE') => ({
    code: 0,
    stdout: SERVICES,
    stderr: `context "fake" of ${path}, from ${how}\n`,
  })
  const KUBECONFIG = server.kubeconfig
  const rows: readonly (readonly [string, Record<string, string>, string, readonly string[], CliResult])[] = [
    ['a flag', {}, site.folder, ['--kubeconfig', KUBECONFIG], byFlag],
    ['a flag before KUBECONFIG', { KUBECONFIG: '/nowhere' }, site.folder, ['--kubeconfig', KUBECONFIG], byFlag],
    ['a context of KUBECONFIG', { KUBECONFIG }, site.folder, ['--context', 'fake'], byFlag],
    ['KUBECONFIG before site.yaml', { KUBECONFIG }, site.folder, [], by('KUBECONFIG')],
    ['--site before KUBECONFIG', { KUBECONFIG }, empty, ['--site', site.file], none],
    ['site.yaml before ~/.kube/config', { HOME: home }, site.folder, [], none],
    ['~/.kube/config', { HOME: home }, empty, [], by('~/.kube/config', 'HOME')],
    [
      'nothing',
      {},
      empty,
      [],
      {
        code: 1,
        stdout: '',
        stderr:
          'sealane: --site "site.yaml": no such file\n' +
          'name the site file with --site FILE, or run this in the folder that has site.yaml; for a Kubernetes cluster: --context NAME\n',
      },
    ],
  ]
  for (const [name, env, cwd, flags, want] of rows) {
    const found = await spawnCli(['show', 'services', ...flags], { env, cwd })
    const { code, stdout, stderr } = masked(server, found)
    t.strictSame({ code, stdout, stderr: stderr.replace(file, 'HOME') }, want, name)
  }
})

function kubeconfigText(server: FakeApiServer): unknown {
  return {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'fake',
    clusters: [{ name: 'fake', cluster: { server: server.url, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'fake', user: { token: 'let-me-in' } }],
    contexts: [{ name: 'fake', context: { cluster: 'fake', user: 'fake' } }],
  }
}

t.test('who brings in or takes out names the cluster', async (t) => {
  const server = await installed(t)
  const site = new SiteFolder(t)
  const env = { KUBECONFIG: server.kubeconfig }
  for (const words of [['leave'], ['join', '--token', 'x']]) {
    const { code, stderr } = await spawnCli(words, { env, cwd: site.folder })
    t.strictSame(
      { code, stderr },
      {
        code: 2,
        stderr:
          `sealane: ${words[0] ?? ''}: KUBECONFIG is set and site.yaml exists: expected a flag that names one of them\n` +
          'use --site site.yaml for the site, or --context NAME for the cluster\n',
      },
    )
  }
  t.strictSame(
    server.requests.filter((line) => !line.startsWith('GET ')),
    [],
    'nothing was changed',
  )
})

t.test('broker deploy says where to, when nobody named it', async (t) => {
  const server = await installed(t)
  const home = temporaryFolder(t)
  mkdirSync(join(home, '.kube'))
  const file = join(home, '.kube', 'config')
  writeFileSync(file, `${JSON.stringify(kubeconfigText(server))}\n`)
  const KUBECONFIG = server.kubeconfig
  const rows: readonly (readonly [string, Record<string, string>, readonly string[], string])[] = [
    ['a flag', {}, ['--kubeconfig', KUBECONFIG], ''],
    ['a flag before KUBECONFIG', { KUBECONFIG: '/nowhere' }, ['--kubeconfig', KUBECONFIG], ''],
    ['KUBECONFIG', { KUBECONFIG, HOME: home }, [], 'context "fake" of FILE, from KUBECONFIG\n'],
    ['~/.kube/config', { HOME: home }, [], 'context "fake" of HOME, from ~/.kube/config\n'],
  ]
  for (const [name, env, flags, want] of rows) {
    const found = masked(server, await runCli(['broker', 'deploy', '--dry-run', '--force', ...flags], { env }))
    const [said = ''] = /^context .*\n/.exec(found.stderr.replaceAll(file, 'HOME')) ?? []
    t.equal(said, want, name)
  }
})

t.test('a broker here, or in the cluster of KUBECONFIG', async (t) => {
  const server = await installed(t)
  const broker = await LoopbackBroker.start(t)
  await broker.token()
  const env = { KUBECONFIG: server.kubeconfig }
  const none =
    'sealane: context "fake" of FILE: no broker is installed\ninstall or repair it: sealane broker deploy --context fake\n'
  for (const words of [
    ['token', 'list'],
    ['token', 'create'],
    ['cluster', 'list'],
    ['cluster', 'evict', 'paris'],
  ]) {
    const away = masked(server, await runCli(words, { env }))
    const stderr = `context "fake" of FILE, from KUBECONFIG\n${none}`
    t.strictSame(away, { code: 1, stdout: '', stderr }, words.join(' '))
  }
  const here = await runCli(['token', 'list', '--state', broker.state], { env })
  t.match(here, { code: 0, stdout: /^ID +STATE .*\n\S+ +valid / }, 'a flag counts for more')
})

t.test('namespaces', async (t) => {
  const server = await installed(t)
  const show = async (...words: string[]): Promise<CliResult> =>
    masked(server, await runCli(['show', 'services', '--kubeconfig', server.kubeconfig, ...words]))
  t.equal((await show('-n', 'shop')).stdout.split('\n').slice(1).join(), 'shop web ClusterSetIP - 80/TCP -,')
  t.equal((await show('-A')).stdout, SERVICES)
  t.strictSame(await show('-n', 'empty'), { code: 0, stdout: '', stderr: 'none\n' })
  t.match(await show('-n', 'shop', '-A'), { code: 2, stderr: / cannot be used with option / })
  t.match(await show('-n', 'A.b'), { code: 2, stderr: /^sealane: --namespace "A\.b": expected an RFC 1123 label/ })
  const spec = { id: 'c1', index: 7, podCIDRs: ['10.1.0.0/16'], serviceCIDRs: [], globalCIDRs: [], labels: {} }
  server.objects.put(server.place('Cluster', 'c1'), { metadata: {}, spec })
  const member = 'CLUSTER PODS GLOBAL SERVICES LABELS\nc1 10.1.0.0/16 - - -\n'
  for (const words of [[], ['-n', 'shop'], ['-A']]) {
    const shown = await runCli(['show', 'clusters', '--kubeconfig', server.kubeconfig, ...words])
    t.strictSame(masked(server, shown), { code: 0, stdout: member, stderr: '' }, `in no namespace: ${words.join(' ')}`)
  }
})

t.test('a missing CRD is named, with what brings it back', async (t) => {
  const server = await installed(t)
  const rows = [
    ['connections', 'sealane.io/v1alpha1/gateways', 'gateways.sealane.io'],
    ['clusters', 'sealane.io/v1alpha1/clusters', 'clusters.sealane.io'],
    ['endpoints', 'sealane.io/v1alpha1/endpoints', 'endpoints.sealane.io'],
    ['services', 'multicluster.x-k8s.io/v1beta1/serviceimports', 'serviceimports.multicluster.x-k8s.io'],
    ['exports', 'multicluster.x-k8s.io/v1beta1/serviceexports', 'serviceexports.multicluster.x-k8s.io'],
  ] as const
  for (const [view, resource, crd] of rows) {
    server.missing.clear()
    server.missing.add(resource)
    const shown = masked(server, await runCli(['show', view, '--kubeconfig', server.kubeconfig]))
    t.strictSame(
      shown,
      {
        code: 1,
        stdout: '',
        stderr: `sealane: context "fake" of FILE: its CustomResourceDefinition ${crd} is missing\nrestore it: sealane join --kubeconfig FILE\n`,
      },
      view,
    )
  }
})

t.test('who may not read is told so at once', async (t) => {
  const server = await installed(t)
  const message = 'gateways.sealane.io is forbidden'
  server.fault = ({ path }) =>
    path.endsWith('/gateways') ? { status: 403, body: { kind: 'Status', reason: 'Forbidden', message } } : undefined
  const shown = masked(server, await runCli(['show', 'connections', '--kubeconfig', server.kubeconfig]))
  t.match(shown, {
    code: 1,
    stderr: /gateways\.sealane\.io is forbidden \(403 Forbidden\)\nuse a kubeconfig that has this right/,
  })
})

t.test('an API server that does not answer: every command ends in its time', async (t) => {
  const server = await installed(t)
  server.fault = () => 'hang'
  const late = {
    code: 1,
    stdout: '',
    stderr:
      'sealane: context "fake" of FILE at SERVER: no answer within 300ms\n' +
      'check that it runs and can be reached from here, or wait longer with --timeout\n',
  }
  for (const words of [
    'show clusters',
    'show endpoints',
    'show gateways',
    'show connections',
    'show services',
    'show exports',
    'export web',
    'unexport web',
    'token list',
    'token create',
    'token revoke 4f0c2a9b11',
    'cluster list',
    'cluster evict paris',
  ]) {
    const at = ['--kubeconfig', server.kubeconfig, '--timeout', '300ms']
    t.strictSame(masked(server, await runCli([...words.split(' '), ...at])), late, words)
  }
  // The server answers the first list and hangs on the next request.
  server.fault = ({ path, query }) => (path.endsWith('/gateways') && query.get('limit') !== '1' ? 'hang' : undefined)
  const shown = await runCli(['show', 'connections', '--kubeconfig', server.kubeconfig, '--timeout', '300ms'])
  t.strictSame(masked(server, shown), late)
})

t.test('wide shows more than the table', async (t) => {
  const server = await installed(t)
  const spec = { id: 'c1', index: 7, podCIDRs: ['10.1.0.0/16'], serviceCIDRs: [], globalCIDRs: [], labels: {} }
  server.objects.put(server.place('Cluster', 'c1'), { metadata: {}, spec })
  const show = async (format: string): Promise<string> => {
    const at = ['--kubeconfig', server.kubeconfig, '-o', format]
    return masked(server, await runCli(['show', 'clusters', ...at])).stdout
  }
  t.equal(await show('table'), 'CLUSTER PODS GLOBAL SERVICES LABELS\nc1 10.1.0.0/16 - - -\n')
  t.equal(await show('wide'), 'CLUSTER PODS GLOBAL SERVICES LABELS INDEX\nc1 10.1.0.0/16 - - - 7\n')
})

t.test('version asks the cluster, and is not held up by it', async (t) => {
  const server = await installed(t)
  const version = async (...words: string[]): Promise<CliResult> =>
    masked(server, await runCli(['version', '--kubeconfig', server.kubeconfig, ...words]))
  const { code, stdout } = await version()
  t.equal(code, 0)
  t.match(
    stdout,
    /^sealane \d+\.\d+\.\d+ \(node [^)]+\)\nPART VERSION BY IMAGE\nkubernetes v1\.36\.0 the API server -\n/,
  )
  t.match(stdout, /^gateway 0\.1\.0 status of n1 -$/m)
  t.match(stdout, /^broker unknown: not in this cluster - -$/m)
  const { stdout: json } = await version('-o', 'json')
  const parts = (JSON.parse(json) as { cluster: { parts: { part: string }[] } }).cluster.parts
  t.match(parts, [{ part: 'kubernetes', version: 'v1.36.0' }])
  t.match((await version('--client')).stdout, /^sealane [^\n]+\n$/)
  server.fault = () => 'hang'
  t.match(await version('--timeout', '300ms'), {
    code: 0,
    stdout: /^kubernetes unknown: no answer within 300ms - -$/m,
  })
  const away = await runCli(['version', '--kubeconfig', '/nowhere'])
  t.match(away, { code: 0, stdout: /\ncluster unknown: kubeconfig \/nowhere does not exist\n$/ })
})
