/** `sealane leave` and `uninstall` before any change: their output, and the answers that they need. */
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { type CliResult, runCli, spawnCli } from '../run-cli.ts'

async function member(t: Test): Promise<FakeApiServer> {
  const server = await fakeApiServer(t)
  server.fault = ({ path }) => (path === '/version' ? { status: 200, body: { gitVersion: 'v1.36.0' } } : undefined)
  const metadata = {}
  server.objects.put(server.place('Namespace', 'sealane-system'), { metadata })
  const spec = { clusterId: 'c1', clusterset: 'demo', phase: 'joined' }
  server.objects.put(server.place('Membership', 'self'), { metadata, spec })
  for (const name of ['c1', 'c2', 'c3']) server.objects.put(server.place('Cluster', name), { metadata, spec: {} })
  server.objects.put(server.place('ServiceExport', 'web', 'shop'), { metadata })
  server.objects.put(server.place('RouteAgent', 'n1'), { metadata })
  return server
}

function masked(server: FakeApiServer, { code, stdout, stderr }: CliResult): CliResult {
  return { code, stdout, stderr: stderr.replaceAll(server.kubeconfig, 'FILE') }
}

/** Returns the requests that change objects. The search for Service ranges uses dry runs, which do not count. */
const writes = ({ requests }: FakeApiServer): string[] =>
  requests.filter((line) => !line.startsWith('GET ') && !line.includes('dryRun=All'))

const LISTED =
  'this removes from context "fake" of FILE:\n' +
  '  c1 leaves clusterset demo: cut off from c2, c3\n' +
  '  other clusters can no longer call the services exported here: shop/web\n' +
  '  lanes, routes and rules in the kernel of n1\n' +
  '  installed objects: Namespace sealane-system; node labels, settings of cluster DNS\n'

t.test('without a terminal and --yes nothing is done, and the command to type is said', async (t) => {
  const server = await member(t)
  const at = ['--kubeconfig', server.kubeconfig]
  const rows: readonly (readonly [readonly string[], string, string])[] = [
    [['leave'], 'kept: the CRDs', 'leave --kubeconfig FILE --yes'],
    [['uninstall', '--force'], 'kept: the CRDs (--crds)', 'uninstall --kubeconfig FILE --force --yes'],
    [
      ['uninstall', '--crds', '--delete-data'],
      'the CRDs, except those of the Kubernetes project that are in use',
      'uninstall --kubeconfig FILE --crds --delete-data --yes',
    ],
  ]
  for (const [words, last, command] of rows) {
    const refused = 'sealane: there is no terminal to ask for confirmation: expected --yes\n'
    t.strictSame(
      masked(server, await runCli([...words, ...at])),
      { code: 2, stdout: '', stderr: `${LISTED}  ${last}\n${refused}run: sealane ${command}\n` },
      words.join(' '),
    )
  }
  t.strictSame(writes(server), [])
})

t.test('who says no changes nothing', async (t) => {
  const server = await member(t)
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => input })
  const output = Object.assign(new PassThrough(), { isTTY: true })
  output.once('data', () => input.write('no\r'))
  const terminal = { input, output, interrupt: () => undefined }
  const said = masked(server, await runCli(['leave', '--kubeconfig', server.kubeconfig], { terminal }))
  t.match(said, { code: 1, stderr: /\nsealane: nothing was changed\n$/ })
  t.strictSame(writes(server), [])
})

t.test('a cluster by KUBECONFIG is named, and asked about', async (t) => {
  const server = await member(t)
  const init = { env: { KUBECONFIG: server.kubeconfig }, cwd: temporaryFolder(t) }
  for (const verb of ['leave', 'uninstall']) {
    const said = masked(server, await spawnCli([verb], init))
    t.equal(said.code, 2)
    t.ok(said.stderr.startsWith(`context "fake" of FILE, from KUBECONFIG\n${LISTED}`), said.stderr)
    t.ok(said.stderr.endsWith(`\nrun: sealane ${verb} --context fake --yes\n`), said.stderr)
  }
  const joining = await spawnCli(['join', '--token', 'x'], init)
  t.match(joining, {
    code: 2,
    stderr: /^sealane: there is no terminal to ask for confirmation: expected --yes\nrun: sealane join /,
  })
  t.strictSame(writes(server), [])
})

t.test('nothing is there', async (t) => {
  const server = await fakeApiServer(t)
  server.fault = ({ path }) => (path === '/version' ? { status: 200, body: { gitVersion: 'v1.36.0' } } : undefined)
  const at = ['--kubeconfig', server.kubeconfig]
  const none = 'sealane: context "fake" of FILE: Sealane is not installed\n'
  t.strictSame(masked(server, await runCli(['leave', ...at])), { code: 1, stdout: '', stderr: none })
  server.objects.put(server.place('Namespace', 'sealane-broker'), { metadata: {} })
  t.strictSame(masked(server, await runCli(['leave', ...at])), {
    code: 1,
    stdout: '',
    stderr: `${none}there is a broker; to remove it: sealane uninstall --kubeconfig FILE\n`,
  })
  t.strictSame(writes(server), [])
})
